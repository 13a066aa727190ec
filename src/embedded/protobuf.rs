//! Bodies in `application/vnd.kubernetes.protobuf`, as kubectl's typed commands send them.
//!
//! Known are the messages that `kubectl create` and `kubectl auth` make; the tables hold their field numbers from the
//! `generated.proto` files of the Kubernetes API. A body with anything else in it is refused, never half read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// What precedes every message.
const MAGIC: &[u8] = b"k8s\0";

/// A field of a message: its number, its name in JSON, its type.
struct Field(u64, &'static str, Type);

enum Type {
    Text,
    Texts,
    Integer,
    Bool,
    Time,
    TextMap,
    BytesMap,
    QuantityMap,
    Message(&'static [Field]),
    Messages(&'static [Field]),
    /// Clients cannot set it.
    Ignored,
}

use Type::{Bool, BytesMap, Ignored, Integer, Message, Messages, QuantityMap, Text, TextMap, Texts, Time};

static OWNER_REFERENCE: &[Field] = &[
    Field(1, "kind", Text),
    Field(3, "name", Text),
    Field(4, "uid", Text),
    Field(5, "apiVersion", Text),
    Field(6, "controller", Bool),
    Field(7, "blockOwnerDeletion", Bool),
];
static METADATA: &[Field] = &[
    Field(1, "name", Text),
    Field(2, "generateName", Text),
    Field(3, "namespace", Text),
    Field(4, "selfLink", Ignored),
    Field(5, "uid", Text),
    Field(6, "resourceVersion", Text),
    Field(7, "generation", Ignored),
    Field(8, "creationTimestamp", Time),
    Field(9, "deletionTimestamp", Time),
    Field(10, "deletionGracePeriodSeconds", Integer),
    Field(11, "labels", TextMap),
    Field(12, "annotations", TextMap),
    Field(13, "ownerReferences", Messages(OWNER_REFERENCE)),
    Field(14, "finalizers", Texts),
    Field(17, "managedFields", Ignored),
];
static LABEL_SELECTOR: &[Field] = &[
    Field(1, "matchLabels", TextMap),
    Field(
        2,
        "matchExpressions",
        Messages(&[Field(1, "key", Text), Field(2, "operator", Text), Field(3, "values", Texts)]),
    ),
];
static RESOURCES: &[Field] = &[Field(1, "limits", QuantityMap), Field(2, "requests", QuantityMap)];
static CONTAINER: &[Field] = &[
    Field(1, "name", Text),
    Field(2, "image", Text),
    Field(3, "command", Texts),
    Field(4, "args", Texts),
    Field(5, "workingDir", Text),
    Field(7, "env", Messages(&[Field(1, "name", Text), Field(2, "value", Text)])),
    Field(8, "resources", Message(RESOURCES)),
    Field(13, "terminationMessagePath", Text),
    Field(14, "imagePullPolicy", Text),
    Field(16, "stdin", Bool),
    Field(17, "stdinOnce", Bool),
    Field(18, "tty", Bool),
    Field(20, "terminationMessagePolicy", Text),
];
static POD_SPEC: &[Field] = &[
    Field(2, "containers", Messages(CONTAINER)),
    Field(3, "restartPolicy", Text),
    Field(4, "terminationGracePeriodSeconds", Integer),
    Field(5, "activeDeadlineSeconds", Integer),
    Field(6, "dnsPolicy", Text),
    Field(7, "nodeSelector", TextMap),
    Field(8, "serviceAccountName", Text),
    Field(9, "serviceAccount", Text),
    Field(10, "nodeName", Text),
    Field(11, "hostNetwork", Bool),
    Field(12, "hostPID", Bool),
    Field(13, "hostIPC", Bool),
    Field(16, "hostname", Text),
    Field(17, "subdomain", Text),
    Field(19, "schedulerName", Text),
    Field(20, "initContainers", Messages(CONTAINER)),
    Field(24, "priorityClassName", Text),
];
static POD_TEMPLATE: &[Field] =
    &[Field(1, "metadata", Message(METADATA)), Field(2, "spec", Message(POD_SPEC))];
static JOB_SPEC: &[Field] = &[
    Field(1, "parallelism", Integer),
    Field(2, "completions", Integer),
    Field(3, "activeDeadlineSeconds", Integer),
    Field(4, "selector", Message(LABEL_SELECTOR)),
    Field(5, "manualSelector", Bool),
    Field(6, "template", Message(POD_TEMPLATE)),
    Field(7, "backoffLimit", Integer),
    Field(8, "ttlSecondsAfterFinished", Integer),
    Field(9, "completionMode", Text),
    Field(10, "suspend", Bool),
    Field(12, "backoffLimitPerIndex", Integer),
    Field(13, "maxFailedIndexes", Integer),
    Field(14, "podReplacementPolicy", Text),
    Field(15, "managedBy", Text),
];
static JOB_TEMPLATE: &[Field] =
    &[Field(1, "metadata", Message(METADATA)), Field(2, "spec", Message(JOB_SPEC))];
static CRON_JOB_SPEC: &[Field] = &[
    Field(1, "schedule", Text),
    Field(2, "startingDeadlineSeconds", Integer),
    Field(3, "concurrencyPolicy", Text),
    Field(4, "suspend", Bool),
    Field(5, "jobTemplate", Message(JOB_TEMPLATE)),
    Field(6, "successfulJobsHistoryLimit", Integer),
    Field(7, "failedJobsHistoryLimit", Integer),
    Field(8, "timeZone", Text),
];
static RESOURCE_ATTRIBUTES: &[Field] = &[
    Field(1, "namespace", Text),
    Field(2, "verb", Text),
    Field(3, "group", Text),
    Field(4, "version", Text),
    Field(5, "resource", Text),
    Field(6, "subresource", Text),
    Field(7, "name", Text),
];
static ACCESS_REVIEW_SPEC: &[Field] = &[
    Field(1, "resourceAttributes", Message(RESOURCE_ATTRIBUTES)),
    Field(2, "nonResourceAttributes", Message(&[Field(1, "path", Text), Field(2, "verb", Text)])),
];
static DELETE_OPTIONS: &[Field] = &[
    Field(1, "gracePeriodSeconds", Integer),
    Field(2, "preconditions", Message(&[Field(1, "uid", Text), Field(2, "resourceVersion", Text)])),
    Field(3, "orphanDependents", Bool),
    Field(4, "propagationPolicy", Text),
    Field(5, "dryRun", Texts),
];

/// An object of metadata, spec and status.
macro_rules! object {
    ($spec:expr) => {
        &[
            Field(1, "metadata", Message(METADATA)),
            Field(2, "spec", Message($spec)),
            Field(3, "status", Ignored),
        ]
    };
}

/// The messages that are known, by kind.
static KINDS: &[(&str, &[Field])] = &[
    ("Job", object!(JOB_SPEC)),
    ("CronJob", object!(CRON_JOB_SPEC)),
    ("Pod", object!(POD_SPEC)),
    ("Namespace", object!(&[Field(1, "finalizers", Texts)])),
    ("ResourceQuota", object!(&[Field(1, "hard", QuantityMap), Field(2, "scopes", Texts)])),
    ("SelfSubjectAccessReview", object!(ACCESS_REVIEW_SPEC)),
    (
        "ConfigMap",
        &[
            Field(1, "metadata", Message(METADATA)),
            Field(2, "data", TextMap),
            Field(3, "binaryData", BytesMap),
            Field(4, "immutable", Bool),
        ],
    ),
    (
        "Secret",
        &[
            Field(1, "metadata", Message(METADATA)),
            Field(2, "data", BytesMap),
            Field(3, "type", Text),
            Field(4, "stringData", TextMap),
            Field(5, "immutable", Bool),
        ],
    ),
    (
        "ServiceAccount",
        &[Field(1, "metadata", Message(METADATA)), Field(4, "automountServiceAccountToken", Bool)],
    ),
    ("DeleteOptions", DELETE_OPTIONS),
];

static TYPE_META: &[Field] = &[Field(1, "apiVersion", Text), Field(2, "kind", Text)];

/// Decodes a body into the JSON object that says the same.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let body = body.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
    let (mut type_meta, mut raw): (Value, &[u8]) = (Value::Null, &[]);
    let mut reader = Reader(body);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => type_meta = message(TYPE_META, bytes)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let kind = type_meta["kind"].as_str().unwrap_or_default().to_owned();
    let Some((_, fields)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return Err(format!("kind {kind:?} is not supported in protobuf; send it as application/json"));
    };
    let mut object = message(fields, raw)?;
    for field in ["apiVersion", "kind"] {
        object[field] = type_meta[field].take();
    }
    Ok(object)
}

fn message(fields: &[Field], bytes: &[u8]) -> Result<Value, String> {
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some(Field(_, name, kind)) = fields.iter().find(|Field(known, ..)| *known == number) else {
            if wire.is_empty() {
                continue;
            }
            return Err(format!(
                "field {number} is not supported in protobuf; send the object as application/json"
            ));
        };
        let slot = || name.to_string();
        match (kind, wire) {
            (Ignored, _) => {}
            (Text, Wire::Bytes(bytes)) => drop(object.insert(slot(), text(bytes)?.into())),
            (Texts, Wire::Bytes(bytes)) => push(&mut object, name, text(bytes)?.into()),
            (Integer, Wire::Varint(number)) => drop(object.insert(slot(), number.cast_signed().into())),
            (Bool, Wire::Varint(number)) => drop(object.insert(slot(), (number != 0).into())),
            (Time, Wire::Bytes(bytes)) => {
                let seconds = message(&[Field(1, "seconds", Integer), Field(2, "nanos", Ignored)], bytes)?;
                let time = seconds["seconds"].as_i64().and_then(|at| jiff::Timestamp::from_second(at).ok());
                if let Some(time) = time {
                    object.insert(slot(), super::server::format_time(time).into());
                }
            }
            (TextMap | BytesMap | QuantityMap, Wire::Bytes(bytes)) => {
                let (key, value) = entry(kind, bytes)?;
                let map = object.entry(slot()).or_insert_with(|| Value::Object(Map::new()));
                map[key] = value;
            }
            (Message(fields), Wire::Bytes(bytes)) => drop(object.insert(slot(), message(fields, bytes)?)),
            (Messages(fields), Wire::Bytes(bytes)) => push(&mut object, name, message(fields, bytes)?),
            _ => return Err(format!("proto: wrong wireType for field {name}")),
        }
    }
    Ok(Value::Object(object))
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = list {
        list.push(value);
    }
}

fn entry(kind: &Type, bytes: &[u8]) -> Result<(String, Value), String> {
    let (mut key, mut value) = (String::new(), Value::from(""));
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Wire::Bytes(bytes) = wire else { continue };
        match (number, kind) {
            (1, _) => key = text(bytes)?,
            (_, BytesMap) => value = STANDARD.encode(bytes).into(),
            (_, QuantityMap) => value = message(&[Field(1, "string", Text)], bytes)?["string"].take(),
            _ => value = text(bytes)?.into(),
        }
    }
    Ok((key, value))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: invalid UTF-8".to_owned())
}

/// The value of a field as it stands in the message.
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    /// Whether it is what Go writes for a field that was not set.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Varint(0) | Self::Bytes([]))
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next field, with its number.
    fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|error| error.to_string())?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or("unexpected EOF")?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok(Some((tag >> 3, wire)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or("unexpected EOF")?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// A length-delimited field of fewer than 128 bytes.
    fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()][..], value].concat()
    }

    fn body(kind: &str, version: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
    }

    #[test]
    fn a_job_reads_as_its_json() {
        let container = [bytes(1, b"c"), bytes(2, b"i"), bytes(3, b"echo"), bytes(3, b"hi")].concat();
        let template = bytes(2, &[bytes(2, &container), bytes(3, b"Never")].concat());
        let spec = [&[1 << 3, 3][..], &bytes(6, &template)].concat();
        let metadata =
            [bytes(1, b"j"), bytes(8, b""), bytes(11, &[bytes(1, b"k"), bytes(2, b"v")].concat())].concat();
        let job = decode(&body("Job", "batch/v1", &[bytes(1, &metadata), bytes(2, &spec)].concat())).unwrap();
        let wanted = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {"k": "v"}},
            "spec": {"parallelism": 3, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["echo", "hi"]}],
            }}},
        });
        assert_eq!(job, wanted);
    }

    #[test]
    fn what_is_not_known_is_refused_and_not_dropped() {
        let unknown_field = body("ConfigMap", "v1", &bytes(9, b"x"));
        let cases = [
            (unknown_field, "field 9 is not supported"),
            (body("Widget", "v1", b""), "kind \"Widget\" is not supported"),
            (b"{}".to_vec(), "does not appear to be a protobuf message"),
            (body("ConfigMap", "v1", &[0x0a, 0x7f]), "unexpected EOF"),
        ];
        for (body, why) in cases {
            let error = decode(&body).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(decode(&body("ConfigMap", "v1", &bytes(9, b""))).is_ok(), "empty is not set");
    }
}
