//! Manifests in the forms in which people have them. `run` reads the same ones as `kubectl create -f`, and
//! names the error of the others in one line.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, missing_docs)]

mod binary;

use assert_cmd::Command;
use serde_json::{Value, json};

/// A cluster that nothing serves: a manifest without faults gets no further.
const KUBECONFIG: &str = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: \
    {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}";

const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: sample
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: none
        command: [\"sh\", \"-c\", \"echo ran\"]
";

/// Reads these bytes as a file would be. Returns the exit code and the lines of standard error.
fn run(bytes: impl Into<Vec<u8>>, flags: &[&str]) -> (i32, Vec<String>) {
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), KUBECONFIG).unwrap();
    let mut command = Command::from_std(binary::yardmaster());
    command.timeout(binary::PATIENCE).args(["run", "-", "--kubeconfig"]).arg(kubeconfig.path()).args(flags);
    let output = command.write_stdin(bytes).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), errors.lines().map(str::to_owned).collect())
}

/// The file has no fault.
fn is_read(bytes: impl Into<Vec<u8>>) {
    let bytes = bytes.into();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let (code, errors) = run(bytes, &[]);
    assert_eq!(code, 3, "{text}\n{errors:?}");
    assert!(errors.len() == 1 && errors[0].contains("cannot reach the cluster"), "{text}\n{errors:?}");
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "command": ["true"]}]}}}})
}

fn untyped(name: &str) -> Value {
    let mut job = job(name);
    job.as_object_mut().unwrap().retain(|field, _| field != "apiVersion" && field != "kind");
    job
}

#[test]
fn jobs_are_read_in_the_forms_in_which_people_have_them() {
    let spec = |fields: &str| JOB.replace("spec:\n  template", &format!("spec:\n  {fields}\n  template"));
    for text in [
        // As Helm writes numbers.
        spec(
            "activeDeadlineSeconds: 1e+06\n  ttlSecondsAfterFinished: 1.2096e+06\n  completions: 2.0\n  parallelism: 08",
        ),
        // Words of YAML 1.1.
        spec("suspend: off")
            .replace("    spec:\n", "    metadata: {labels: {1: one, yes: 'no'}}\n    spec:\n"),
        spec("suspend: !!bool \"no\"\n  parallelism: !!int \"1\""),
        spec("parallelism:\t1\t# one").replace("metadata:\n", "metadata:\t\n"),
        JOB.replace("image: none\n", "image: none\n        securityContext: {runAsUser: 0o17}\n"),
        // Aliases and merge keys.
        JOB.replace(
            "    spec:\n",
            "    metadata: &m\n      labels: &l {a: b}\n      annotations: {<<: *l, c: d}\n    spec:\n",
        ),
        // Elements of lists indented or not, texts that go on at the beginning of a line.
        JOB.replace("[\"sh\", \"-c\", \"echo ran\"]", "[\n\"sh\",\n\"-c\",\n\"echo\nran\"\n]"),
        JOB.replace(
            "      - name: main\n        image: none\n        command",
            "        - name: main\n          image: none\n          command",
        ),
        format!("---\n# the first\n{JOB}...\n---\n---\n"),
        // JSON objects one after the other, or with everything else.
        format!("{}{}\n{}", job("a"), job("b"), serde_json::to_string_pretty(&job("c")).unwrap()),
        format!("{}\n---\n{JOB}---\n{}", job("a"), job("b")),
        json!({"apiVersion": "v1", "kind": "List", "items": [job("a"), job("b")]}).to_string(),
        // As the API server lists Jobs: their type is that of the list.
        json!({"apiVersion": "batch/v1", "kind": "JobList", "items": [untyped("a"), job("b")]}).to_string(),
        format!("apiVersion: v1\nkind: List\nitems:\n---\n{JOB}"),
        JOB.replace("metadata:\n", "metadata:\n  namespace: \"\"\n"),
        // Words of flow style that end with a colon.
        JOB.replace("[\"sh\", \"-c\", \"echo ran\"]", "[echo, ran:]"),
        job("a").to_string().replace("\"true\"", "\"\\ud83d\\ude00 \\/ \\u2028\\u007f\""),
        job("a").to_string().replace("\"spec\":{\"template\"", "\"spec\":{\"backoffLimit\":-0,\"template\""),
        format!("# licence\n\n{}\n# the second\n{}", job("a"), job("b")),
    ] {
        is_read(text.replace('\n', "\r\n"));
        is_read(format!("\u{feff}{text}"));
        is_read(text);
    }
    is_read(format!("\u{feff}{JOB}---\n\u{feff}{}", JOB.replace("sample", "second")));
    is_read(format!("\u{feff}{JOB}").encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    is_read([b"# Gr\xf6\xdfe\n", JOB.as_bytes()].concat());
}

#[test]
fn no_number_of_jobs_is_too_large() {
    let names = || (0..1500).map(|number| format!("sweep-{number}"));
    is_read(names().map(|name| JOB.replace("sample", &name)).collect::<Vec<_>>().join("---\n"));
    let items: Vec<Value> = names().map(|name| job(&name)).collect();
    is_read(json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    // A single mistake among all of them is one line.
    let documents = names().map(|name| JOB.replace("sample", &name)).collect::<Vec<_>>().join("---\n");
    let wrong = documents.replacen("Never", "Always", 1500).replacen("Always", "Never", 1499);
    let (code, errors) = run(wrong, &[]);
    let line = 1499 * 13 + 8;
    assert_eq!((code, errors.len()), (2, 1), "{errors:?}");
    assert!(
        errors[0].starts_with(&format!(
            "standard input: line {line}, column 7: spec.template.spec.restartPolicy: "
        )),
        "{errors:?}"
    );
}

#[test]
fn wrong_values_are_told_where_they_are() {
    let text = JOB
        .replace("    spec:\n", "    metadata:\n      labels: {a: 1}\n    spec:\n      automountServiceAccountToken: 'no'\n")
        .replace("        command", "        env:\n        - name: FEATURE\n          value: on\n        - {name: PORT, value: 8080}\n        command");
    let (code, errors) = run(text, &[]);
    let at = |line: usize, column: usize, text: &str| {
        format!("standard input: line {line}, column {column}: spec.template.{text}")
    };
    let wanted = [
        at(8, 16, "metadata.labels.a: must be a string, but is a number: put it into quotes"),
        at(10, 7, "spec.automountServiceAccountToken: must be true or false, but is a string"),
        at(17, 11, "spec.containers[0].env[0].value: must be a string, but is a bool: put it into quotes"),
        at(18, 24, "spec.containers[0].env[1].value: must be a string, but is a number: put it into quotes"),
    ];
    assert_eq!((code, errors), (2, wanted.to_vec()));
}

/// Unknown fields are reported together with wrong types, so that one round is enough.
#[test]
fn all_mistakes_are_told_at_once() {
    let text = JOB
        .replace("spec:\n  template", "spec:\n  paralelism: 2\n  completions: x\n  template")
        .replace("image: none\n", "imagee: none\n        env: {}\n");
    let (code, mut errors) = run(text, &[]);
    errors.sort();
    let wanted = [
        "line 13, column 9: unknown field \"spec.template.spec.containers[0].imagee\"",
        "line 14, column 9: spec.template.spec.containers[0].env: must be a list, but is a map",
        "line 6, column 3: unknown field \"spec.paralelism\"",
        "line 7, column 3: spec.completions: must be a whole number of 32 bits, but is a string",
    ];
    assert_eq!((code, errors), (2, wanted.map(|line| format!("standard input: {line}")).to_vec()));
}

/// Kubernetes names the map alone, or a path without `metadata`.
#[test]
fn a_problem_of_an_entry_points_at_the_entry() {
    let long = "x".repeat(64);
    let metadata = |fields: &str| JOB.replace("metadata:\n", &format!("metadata:\n  {fields}\n"));
    let template =
        |fields: &str| JOB.replace("    spec:\n", &format!("    metadata:\n      {fields}\n    spec:\n"));
    let pod = |fields: &str| JOB.replace("    spec:\n", &format!("    spec:\n      {fields}\n"));
    let resources = "resources:\n          requests:\n            memory: 1Gi\n            cpu: 2\n          limits: {cpu: 1}";
    let labels = "spec.template.metadata.labels: Invalid value:";
    for (text, wanted) in [
        (
            metadata("labels:\n    ok: a\n    b: c d"),
            "line 6, column 5: metadata.labels: Invalid value: \"c d\"",
        ),
        (
            metadata("labels:\n    ok: a\n    b c: d"),
            "line 6, column 5: metadata.labels: Invalid value: \"b c\"",
        ),
        (metadata("annotations:\n    ok: a\n    b c: d"), "line 6, column 5: metadata.annotations: Invalid"),
        (template("labels:\n        ok: a\n        b: c d"), &format!("line 10, column 9: {labels} \"c d\"")),
        (template("labels:\n        job-name: c d"), &format!("line 9, column 9: {labels} \"c d\"")),
        (
            template("annotations:\n        ok: a\n        b c: d"),
            "line 10, column 9: spec.template.metadata.annotations: Invalid value: \"b c\"",
        ),
        (
            template("annotations:\n        controller.kubernetes.io/pod-deletion-cost: x"),
            "line 9, column 9: spec.template.metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid",
        ),
        (
            pod("nodeSelector:\n        ok: a\n        b: c d"),
            "line 10, column 9: spec.template.spec.nodeSelector: ",
        ),
        (
            JOB.replace(
                "  template",
                "  manualSelector: true\n  selector:\n    matchLabels:\n      a: b c\n  template",
            )
            .replace("    spec:\n", "    metadata: {labels: {a: b}}\n    spec:\n"),
            "line 9, column 7: spec.selector.matchLabels: Invalid value: \"b c\"",
        ),
        (
            JOB.replace("image: none\n", &format!("image: none\n        {resources}\n")),
            "line 15, column 13: spec.template.spec.containers[0].resources.requests: Invalid value: \"2\"",
        ),
        (
            JOB.replace("sample", &long),
            &format!(
                "line 4, column 3: metadata.name: Invalid value: \"{long}\": must be no more than 63 bytes"
            ),
        ),
    ] {
        let (code, errors) = run(text.clone(), &[]);
        assert_eq!(code, 2, "{text}: {errors:?}");
        assert!(errors[0].starts_with(&format!("standard input: {wanted}")), "{wanted}: {errors:?}");
    }
    assert_eq!(run(JOB.replace("sample", &long), &[]).1.len(), 1);
}

/// The request would end before the API server has answered it.
#[test]
fn a_job_that_is_too_large_for_a_request_is_refused() {
    let (code, errors) = run(JOB.replace("echo ran", &"x".repeat(4 << 20)), &[]);
    assert_eq!((code, errors.len()), (2, 1));
    assert!(errors[0].starts_with("standard input: line 1, column 1: the Job has 41945"), "{errors:?}");
    assert!(errors[0].contains("at most 3145728: keep large texts in files"), "{errors:?}");
}

/// The fields that decide where a Job goes are texts, too, and are never replaced by a default.
#[test]
fn types_and_namespaces_are_texts() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems: {items}\n");
    let namespace = |name: &str| JOB.replace("metadata:\n", &format!("metadata:\n  namespace: {name}\n"));
    for (text, wanted) in [
        (JOB.replace("batch/v1", "1"), "line 1, column 1: apiVersion: must be a string"),
        (
            JOB.replace("batch/v1", "'batch/v1 '"),
            "line 1, column 1: apiVersion \"batch/v1 \" is not supported",
        ),
        (json!([job("a"), job("b")]).to_string(), "line 1, column 1: a list of objects: wrap it into"),
        ("[1, 2]".to_owned(), "line 1, column 1: not a manifest"),
        (JOB.replace("Job", "yes"), "line 2, column 1: kind: must be a string"),
        (namespace("5"), "line 4, column 3: metadata.namespace: must be a string, but is a number"),
        (namespace("no"), "line 4, column 3: metadata.namespace: must be a string, but is a bool"),
        (list("{a: 1}"), "line 3, column 1: items: must be a list"),
        (list("[7]"), "line 3, column 9: not a manifest"),
        (list("[]"), "no Job in it"),
        (
            json!({"apiVersion": "v1", "kind": "List", "items": [untyped("a")]}).to_string(),
            "line 1, column 29: kind: Required",
        ),
        (
            json!({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {}}]}).to_string(),
            "line 1, column 29: kind Pod is not",
        ),
    ] {
        let (code, errors) = run(text.clone(), &[]);
        assert_eq!((code, errors.len()), (2, 1), "{text}: {errors:?}");
        assert!(errors[0].starts_with(&format!("standard input: {wanted}")), "{text}: {errors:?}");
    }
}

/// A text of the file neither controls the terminal nor passes for a line of the program.
#[test]
fn a_problem_is_one_line_whatever_the_file_contains() {
    let kind = r#""\e[31mFoo\njob.yaml: fine\u202e""#;
    for text in [JOB.replace("kind: Job", &format!("kind: {kind}")), JOB.replace("sample", kind)] {
        let (code, errors) = run(text, &[]);
        assert_eq!(code, 2);
        for error in errors {
            assert!(error.starts_with("standard input: line "), "{error}");
            assert!(!error.contains(['\u{1b}', '\u{202e}']), "{error}");
        }
    }
}

/// The last one counts, as for kubectl, but that is hardly intended.
#[test]
fn a_field_that_is_there_twice_is_told() {
    let text = JOB.replace(
        "spec:\n  template",
        "spec:\n  parallelism: 1\n  completions: 2\n  parallelism: 2\n  template",
    );
    let (code, errors) = run(text, &[]);
    assert_eq!((code, errors.len()), (3, 2), "{errors:?}");
    let wanted = "standard input: line 8, column 3: spec.parallelism is there twice, first in line 6, column 3: this one counts";
    assert_eq!(errors[0], wanted);
    // It is reported together with the problems that it causes.
    let (code, errors) = run(format!("{JOB}metadata: {{labels: {{a: b}}}}\n"), &[]);
    assert_eq!((code, errors.len()), (2, 2), "{errors:?}");
    assert_eq!(
        errors[0],
        "standard input: line 13, column 1: metadata is there twice, first in line 3, column 1: this one counts"
    );
    assert!(errors[1].contains("metadata.name: Required value"), "{errors:?}");
    let (_, errors) = run(format!("{JOB}kind: CronJob\n"), &[]);
    assert!(errors[0].contains("kind is there twice"), "{errors:?}");
}

/// The output of `kubectl get job -o yaml`, with another spec.
fn exported(selector: bool, labels: bool) -> Value {
    let mut exported = job("again");
    let uid = "6f1f2a77-3c14-4c5f-9d6b-0f3d7a5f3c21";
    exported["metadata"] = json!({"name": "again", "namespace": "default", "uid": uid, "resourceVersion": "812", "generation": 1,
        "creationTimestamp": "2026-01-31T12:00:00Z", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob",
        "name": "nightly", "uid": "3c21", "controller": true}]});
    exported["status"] = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    if selector {
        exported["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        exported["spec"]["manualSelector"] = false.into();
    }
    if labels {
        exported["spec"]["template"]["metadata"] = json!({"creationTimestamp": null, "labels": {"controller-uid": uid, "job-name": "again",
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "again", "app": "sums"}});
    }
    exported
}

#[test]
fn a_job_from_a_cluster_is_refused_with_the_fields_that_are_in_the_way() {
    let hint =
        "must not be set: a cluster has written this Job: remove what it has written, or run with --exported";
    let (version, selector) =
        ("metadata.resourceVersion", "spec.selector (not auto-generated for the new Job)");
    let labels = "spec.template.metadata.labels (the UID of the old Job)";
    for (job, fields) in [
        (exported(true, true), [version, selector, labels].join(", ")),
        (exported(true, false), [version, selector].join(", ")),
        (exported(false, false), version.to_owned()),
    ] {
        for text in [job.to_string(), json!({"apiVersion": "v1", "kind": "List", "items": [job]}).to_string()]
        {
            let (code, errors) = run(text.clone(), &[]);
            assert_eq!((code, errors.len()), (2, 1), "{errors:?}");
            assert!(errors[0].starts_with("standard input: line 1, column "), "{errors:?}");
            assert!(errors[0].ends_with(&format!(": {fields} {hint}")), "{errors:?}");
            let (code, errors) = run(text, &["--exported"]);
            assert_eq!((code, errors.len()), (3, 1), "{errors:?}");
        }
    }
    // Fields that every API server accepts are no problem.
    let mut harmless = exported(false, false);
    harmless["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    is_read(harmless.to_string());
    is_read(JOB.replace("metadata:\n", "metadata:\n  creationTimestamp: null\n") + "status: {}\n");
    // Other errors are reported together with it.
    let (code, errors) = run(exported(true, true).to_string().replace("Never", "Always"), &[]);
    assert_eq!((code, errors.len()), (2, 2), "{errors:?}");
}

/// A selector that the author has chosen stays.
#[test]
fn a_selector_of_its_own_is_no_reason_to_refuse_a_job() {
    let mut job = exported(false, false);
    job["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    job["spec"]["manualSelector"] = true.into();
    job["spec"]["selector"] = json!({"matchLabels": {"app": "sums"}});
    job["spec"]["template"]["metadata"] = json!({"labels": {"app": "sums"}});
    is_read(job.to_string());
    let (code, errors) = run(job.to_string(), &["--exported"]);
    assert_eq!((code, errors.len()), (3, 1), "{errors:?}");
}
