//! Values that a hostile author gives to fields, of the type that the field has.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

/// The UID of the victim's Job, which all users see in Events and logs.
pub(crate) const VICTIM: &str = "11111111-1111-1111-1111-111111111111";
/// UIDs of Jobs of the author's own.
pub(crate) const OWN: [&str; 2] =
    ["22222222-2222-2222-2222-222222222222", "33333333-3333-3333-3333-333333333333"];

/// Fields that the controller reads.
const READ: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "name",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "parallelism",
    "completions",
    "completionMode",
    "suspend",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "podReplacementPolicy",
    "podFailurePolicy",
    "successPolicy",
    "selector",
    "manualSelector",
    "managedBy",
    "template",
    "conditions",
    "startTime",
    "completionTime",
    "active",
    "ready",
    "terminating",
    "succeeded",
    "failed",
    "uncountedTerminatedPods",
    "completedIndexes",
    "failedIndexes",
    "containers",
    "initContainers",
    "env",
    "nodeName",
    "restartPolicy",
    "phase",
    "reason",
    "containerStatuses",
    "initContainerStatuses",
    "restartCount",
    "state",
    "terminated",
    "exitCode",
    "finishedAt",
    "startedAt",
    "type",
    "lastTransitionTime",
    "rules",
    "action",
    "onExitCodes",
    "onPodConditions",
    "operator",
    "values",
    "containerName",
    "succeededIndexes",
    "succeededCount",
    "matchLabels",
    "matchExpressions",
    "key",
    "controller",
    "uid",
    "schedulingGroup",
    "schedulingGates",
    "message",
]; // The walk reaches all others, too.

pub(crate) fn is_read(field: &str) -> bool {
    READ.contains(&field)
}

/// Times as an API server writes them, and in forms that it never writes.
const TIMES: [&str; 16] = [
    "1970-01-01T00:00:00Z",
    "2027-01-15T08:00:00Z",
    "2027-01-15T08:00:00.999999999Z",
    "2027-01-15T08:00:00.123456Z",
    "2027-01-15T07:59:60Z",
    "2016-12-31T23:59:60Z",
    "2027-01-15T08:00:00+23:59",
    "2027-01-15T08:00:00-12:00",
    "0001-01-01T00:00:00Z",
    "0000-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999999Z",
    "9999-12-31T23:59:59-23:59",
    "9999-12-30T22:00:00Z",
    "2262-04-11T23:47:16Z",
    "2038-01-19T03:14:08Z",
];

const NUMBERS: [i64; 14] = [
    i32::MIN as i64,
    -2,
    -1,
    0,
    1,
    2,
    3,
    7,
    255,
    500,
    100_000,
    1 << 30,
    i32::MAX as i64 - 1,
    i32::MAX as i64,
];

const LARGE: [i64; 6] = [i64::MIN, -(1 << 40), u32::MAX as i64, 1 << 40, i64::MAX - 1, i64::MAX];

const TEXTS: [&str; 22] = [
    "",
    "a",
    "x.y-z",
    "-",
    ".",
    "..",
    "/",
    "?watch=1&n=1",
    "a/b",
    "%2e%2e",
    "\u{1b}[31m",
    "\u{1b}]0;t\u{7}",
    "\u{202e}abc",
    "a\u{200b}b",
    "ä€𝄞",
    "\r\n",
    "\"",
    "\\",
    "a=b\nc=d",
    "0",
    "4294967295",
    "{{.}}",
];

const QUANTITIES: [&str; 8] =
    ["0", "1", "-1", "1e309", "9223372036854775807", "9e18Ei", "1n", "0.000000000000000001"];

/// Lists of indexes.
fn indexes(random: &mut SmallRng) -> Value {
    match random.random_range(0..12) {
        0 => json!({"$text": 100_000, "of": "%", "by": ","}),
        1 => json!({"$text": 30_000, "of": "%", "by": ", "}),
        2 => json!({"$text": 200_000, "of": "0-4294967295", "by": ","}),
        3 => json!({"$text": 50_000, "of": ","}),
        _ => {
            let texts = [
                "",
                "0",
                "0-4294967295",
                "0-2147483646",
                "3-1",
                "1,0",
                "0,0,0",
                "0-1,1-2",
                "a-b",
                "-",
                "4294967294-4294967295",
                "99999999999999999999",
                "0-",
                "-5",
                " 1 , 2 ",
                "1-2-3",
                "0x1",
            ];
            (*texts.choose(random).unwrap()).into()
        }
    }
}

fn annotation(random: &mut SmallRng) -> Value {
    let pick = |values: &[&str], random: &mut SmallRng| (*values.choose(random).unwrap()).to_owned();
    let numbers = [
        "0",
        "1",
        "-1",
        "2147483647",
        "2147483648",
        "4294967295",
        "9223372036854775807",
        "",
        "+1",
        "01",
        "1e3",
    ];
    let (key, value) = match random.random_range(0..11) {
        0 | 1 => {
            let places = [
                "0/0",
                "0/1",
                "0/4294967294",
                "0/4294967295",
                "4294967295/4294967295",
                "4294967295/0",
                "1/0",
                "-1/0",
                "/",
            ];
            ("yardmaster.dev/place", pick(&places, random))
        }
        2 => ("batch.kubernetes.io/job-completion-index", pick(&numbers, random)),
        3 => ("batch.kubernetes.io/job-index-failure-count", pick(&numbers, random)),
        4 => ("batch.kubernetes.io/job-index-ignored-failure-count", pick(&numbers, random)),
        5 => {
            let failures = pick(&["1", "9999", "4294967295", "0", "-1"], random);
            ("yardmaster.dev/backoff", format!("{failures}@{}", pick(&TIMES, random)))
        }
        6 | 7 => {
            // Each is near the end of a type, some in sum.
            let parts = [
                "0s",
                "1ns",
                "1000ms",
                "10m",
                "-1s",
                "x",
                "1h",
                "1",
                "999999999y",
                "1000000000ns",
                "9223372036854775807s",
                "18446744073709551615s",
                "184467440 737095516 15s",
                "584942417355y",
            ];
            let few = random.random_range(1..4);
            let parts: Vec<_> = (0..few).map(|_| pick(&parts, random)).collect();
            (
                *["yardmaster.dev/backoff-initial", "yardmaster.dev/backoff-max"].choose(random).unwrap(),
                parts.join(" "),
            )
        }
        8 => ("yardmaster.dev/failed-pods-limit", pick(&numbers, random)),
        9 => ("yardmaster.dev/prune-succeeded", pick(&["true", "false", "True", ""], random)),
        _ => {
            let traces = ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-00", "ff"];
            ("tracing.k8s.io/traceparent", pick(&traces, random))
        }
    };
    json!({key: value})
}

fn label(random: &mut SmallRng) -> Value {
    match random.random_range(0..8) {
        0 => json!({"batch.kubernetes.io/controller-uid": VICTIM, "batch.kubernetes.io/job-name": "victim"}),
        1 => {
            json!({"batch.kubernetes.io/controller-uid": OWN.choose(random).unwrap(), "batch.kubernetes.io/job-name": "own-0"})
        }
        2 => {
            json!({"yardmaster.dev/shard": (["0", "1", "-1", "4294967295", "x", ""].choose(random).unwrap())})
        }
        3 => json!({"app": "own"}),
        4 => {
            json!({"batch.kubernetes.io/job-completion-index": (["0", "4294967295", "x"].choose(random).unwrap())})
        }
        5 => json!({"batch.kubernetes.io/job-name": TEXTS.choose(random).unwrap()}),
        _ => {
            json!({"$keys": {"$times": ([100, 5_000, 20_000].choose(random).unwrap()), "key": "k-#", "of": "v#"}})
        }
    }
}

fn owner(random: &mut SmallRng) -> Value {
    let uids = [VICTIM, OWN[0], OWN[1], "44444444-4444-4444-4444-#", "", "?x"];
    let names = ["victim", "own-0", "own-1", "?watch=1&n=1", "a/../b", "", "#"];
    let kinds = [
        ("batch/v1", "Job"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("apps/v1", "ReplicaSet"),
        ("batch/v1beta1", "Job"),
        ("", ""),
    ];
    let (version, kind) = *kinds.choose(random).unwrap();
    let mut owner = json!({
        "apiVersion": version, "kind": kind, "name": names.choose(random).unwrap(), "uid": uids.choose(random).unwrap(),
    });
    match random.random_range(0..8) {
        0 => owner["controller"] = false.into(),
        1 => {}
        2 => owner["name"] = json!({"$text": 1_000_000, "of": "a"}),
        _ => owner["controller"] = true.into(),
    }
    owner
}

fn some(of: Value, random: &mut SmallRng) -> Value {
    match random.random_range(0..4) {
        0 => json!([{"$times": ([100, 10_000, 100_000].choose(random).unwrap()), "of": of}]),
        _ => json!([of]),
    }
}

fn condition(name: &str, random: &mut SmallRng) -> Value {
    let kinds: &[&str] = match name.ends_with("JobStatus") {
        true => &["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget", "Suspended", "x-#"],
        false => &["Ready", "PodScheduled", "DisruptionTarget", "ConfigIssue", "x-#"],
    };
    json!({
        "type": kinds.choose(random).unwrap(), "status": (["True", "True", "False", "Unknown", "Maybe"].choose(random).unwrap()),
        "reason": TEXTS.choose(random).unwrap(), "message": text(random), "lastTransitionTime": TIMES.choose(random).unwrap(),
    })
}

fn expression(random: &mut SmallRng) -> Value {
    let operator = *["In", "NotIn", "Exists", "DoesNotExist", "Gt"].choose(random).unwrap();
    let values = if operator.ends_with("In") { some("v-#".into(), random) } else { json!([]) };
    json!({"key": (["app", "k-#"].choose(random).unwrap()), "operator": operator, "values": values})
}

fn failure_rule(random: &mut SmallRng) -> Value {
    let mut rule =
        json!({"action": (["FailJob", "FailIndex", "Ignore", "Count", "New"].choose(random).unwrap())});
    if random.random() {
        let number = [1, 0, 137, -1, i32::MAX].choose(random).unwrap();
        let values = (0..*[1, 255].choose(random).unwrap()).map(|code| code + number % 2).collect::<Vec<_>>();
        rule["onExitCodes"] =
            json!({"operator": (["In", "NotIn", "New"].choose(random).unwrap()), "values": values});
    } else {
        rule["onPodConditions"] = json!([{"type": "DisruptionTarget", "status": "True"}, {"type": "c-#"}]);
    }
    rule
}

fn text(random: &mut SmallRng) -> Value {
    match random.random_range(0..12) {
        0 => {
            json!({"$text": ([300, 70_000, 1_400_000].choose(random).unwrap()), "of": (["a", "\u{1b}", "ä", "\"", "\n"].choose(random).unwrap())})
        }
        _ => (*TEXTS.choose(random).unwrap()).into(),
    }
}

fn one(values: &[&str], random: &mut SmallRng) -> Value {
    (*values.choose(random).unwrap()).into()
}

/// A value for a field that means something to the controller.
pub(crate) fn of_field(name: &str, field: &str, random: &mut SmallRng) -> Option<Value> {
    let is_status = name.ends_with("JobStatus") || name.ends_with("PodStatus");
    Some(match field {
        "annotations" => annotation(random),
        "labels" | "matchLabels" => label(random),
        "finalizers" => {
            let names = [
                "batch.kubernetes.io/job-tracking",
                "yardmaster.dev/job-tracking",
                "foregroundDeletion",
                "orphan",
                "example.com/f-#",
            ];
            some(one(&names, random), random)
        }
        "ownerReferences" => match some(owner(random), random) {
            Value::Array(mut owners) => {
                owners.push(owner(random));
                owners.into()
            }
            other => other,
        },
        "completedIndexes" | "failedIndexes" | "succeededIndexes" => indexes(random),
        "uncountedTerminatedPods" => {
            let uid = one(&["55555555-5555-5555-5555-#", "", VICTIM, "same", "pod-uid-#"], random);
            json!({"succeeded": some(uid.clone(), random), "failed": some(uid, random)})
        }
        "conditions" if is_status => {
            let mut conditions = some(condition(name, random), random);
            conditions.as_array_mut()?.push(condition(name, random));
            conditions
        }
        "containerStatuses" | "initContainerStatuses" => some(
            json!({
                "name": (["main", "c-#"].choose(random).unwrap()), "ready": false, "image": "i", "imageID": "",
                "restartCount": NUMBERS.choose(random).unwrap(),
                "state": {"terminated": {
                    "exitCode": NUMBERS.choose(random).unwrap(), "reason": text(random),
                    "startedAt": TIMES.choose(random).unwrap(), "finishedAt": TIMES.choose(random).unwrap(),
                }},
            }),
            random,
        ),
        "initContainers" => some(
            json!({"name": "c-#", "image": "i", "restartPolicy": one(&["Always", "Never"], random)}),
            random,
        ),
        "matchExpressions" => some(expression(random), random),
        "rules" if name.ends_with("PodFailurePolicy") => json!([{"$times": 20, "of": failure_rule(random)}]),
        "rules" if name.ends_with("SuccessPolicy") => {
            json!([{"$times": 20, "of": {"succeededIndexes": indexes(random), "succeededCount": NUMBERS.choose(random).unwrap()}}])
        }
        "env" => some(json!({"name": "E#", "value": text(random)}), random),
        "completionMode" => one(&["Indexed", "NonIndexed", "Indexed", "New"], random),
        "podReplacementPolicy" => one(&["Failed", "TerminatingOrFailed", "New"], random),
        "managedBy" => one(
            &["kubernetes.io/job-controller", "yardmaster.dev/job-controller", "example.com/other"],
            random,
        ),
        "phase" => one(&["Pending", "Running", "Succeeded", "Failed", "Unknown", "New"], random),
        "parallelism"
        | "completions"
        | "backoffLimit"
        | "backoffLimitPerIndex"
        | "maxFailedIndexes"
        | "succeededCount" => (*NUMBERS.choose(random)?).into(),
        _ => return None,
    })
}

/// A value of a type.
pub(crate) fn scalar(kind: &str, random: &mut SmallRng) -> Value {
    match kind {
        "int32" => (*NUMBERS.choose(random).unwrap()).into(),
        "int64" if random.random() => (*LARGE.choose(random).unwrap()).into(),
        "int64" => (*NUMBERS.choose(random).unwrap()).into(),
        "boolean" => random.random::<bool>().into(),
        "Time" | "MicroTime" => one(&TIMES, random),
        "Quantity" => one(&QUANTITIES, random),
        "IntOrString" if random.random() => (*NUMBERS.choose(random).unwrap()).into(),
        "FieldsV1" => json!({}),
        _ => text(random),
    }
}
