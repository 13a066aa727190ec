//! The answers of the API server, and the writes that are sent again.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{bench, create, one_at_a_time, order};
use crate::cluster::gate::{Answer, Fence, GateConfig, Order, Priority, Write, WriteError};
use crate::cluster::wire::untrack_patch;
use crate::job::manifest::Encoding;
use crate::telemetry::metrics::labels::ApiRequestLabels;

/// A write rejected with 429 has had no effect. It is sent again, but not before `Retry-After`, and not if
/// the shard is no longer ours by then.
#[tokio::test(start_paused = true)]
async fn a_write_that_a_busy_server_rejects_is_sent_again_after_the_pause() {
    let busy = || (429, json!({"kind": "Status", "code": 429}));
    let mut bench = bench(one_at_a_time(), [busy(), busy()]);
    let started = Instant::now();
    let first = bench.gate.submit(order(Priority::Create, "j"), create("first"));
    let second = bench.gate.submit(order(Priority::Create, "j"), create("second"));
    let ours = Fence::unlimited();
    let lost = Order { fence: ours.clone(), ..order(Priority::Create, "lost") };
    let lost = bench.gate.submit(lost, create("lost"));
    ours.close();
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(lost.await.unwrap_err(), WriteError::Fenced);
    assert_eq!(bench.bodies(), ["first", "second", "first", "second"]);
    assert!(started.elapsed() >= Duration::from_secs(14), "twice Retry-After: {:?}", started.elapsed());
    assert_eq!(bench.metrics.write_window.get(), 1);
}

/// Only the recorder knows whether an Event is still worth writing.
#[tokio::test(start_paused = true)]
async fn events_are_not_kept_for_a_busy_server() {
    let bench = bench(one_at_a_time(), [(429, json!({"kind": "Status", "code": 429}))]);
    let event = Write::CreateEvent {
        namespace: "n".into(),
        body: Bytes::from_static(b"{}"),
        encoding: Encoding::Json,
    };
    let result = bench.gate.submit(order(Priority::Event, "j"), event).await;
    assert_eq!(result.unwrap_err(), WriteError::Busy { retry_after: Some(Duration::from_secs(7)) });
}

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_once_whatever_the_answer() {
    let status = |code: u16, reason: &str, message: &str| {
        (code, json!({"kind": "Status", "code": code, "reason": reason, "message": message}))
    };
    let invalid = |message: &str, field: &str| {
        let (code, mut refusal) = status(422, "Invalid", message);
        refusal["details"] =
            json!({"causes": [{"reason": "FieldValueInvalid", "message": message, "field": field}]});
        (code, refusal)
    };
    let terminating = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "m",
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}});
    let denial = "admission webhook \"w\" denied the request: m";
    for (answer, expected) in [
        (status(403, "Forbidden", "m"), WriteError::Forbidden("m".into())),
        ((403, terminating), WriteError::NamespaceTerminating("m".into())),
        (status(404, "NotFound", "m"), WriteError::NotFound("m".into())),
        (status(409, "AlreadyExists", "m"), WriteError::AlreadyExists("m".into())),
        (status(409, "Conflict", "m"), WriteError::Conflict("m".into())),
        (invalid("m", "spec.templates[0].name"), WriteError::Invalid("m".into())),
        (invalid(denial, "spec.templates[0].name"), WriteError::Forbidden(denial.into())),
        (invalid("of a policy", ""), WriteError::Forbidden("of a policy".into())),
        (status(400, "BadRequest", "m"), WriteError::BadRequest("m".into())),
        (status(415, "UnsupportedMediaType", "m"), WriteError::BadRequest("m".into())),
        ((422, json!("no Status")), WriteError::BadRequest("\"no Status\"".into())),
        (status(400, "BadRequest", denial), WriteError::Forbidden(denial.into())),
        (status(422, "Invalid", denial), WriteError::Forbidden(denial.into())),
        (status(404, "NotFound", denial), WriteError::Forbidden(denial.into())),
        (status(409, "AlreadyExists", denial), WriteError::Forbidden(denial.into())),
        (status(503, "", "m"), WriteError::Server { code: 503, message: "m".into() }),
        ((502, json!("no Status")), WriteError::Server { code: 502, message: "\"no Status\"".into() }),
        ((0, Value::Null), WriteError::Unknown("connection reset".into())),
    ] {
        let mut bench = bench(GateConfig::default(), [answer]);
        assert_eq!(bench.one(create("x")).await.unwrap_err(), expected);
        bench.gate.idle().await;
        assert_eq!(bench.bodies().len(), 1, "{expected:?}");
    }
}

/// The webhook misses another object.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_answers_not_found_leaves_the_pod_there() {
    let denial = "admission webhook \"w\" denied the request: configmaps \"c\" not found";
    for (message, is_there) in [(denial, true), ("pods \"p\" not found", false)] {
        let answer = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": message});
        let bench = bench(GateConfig::default(), [(404, answer)]);
        let result = bench
            .one(Write::PatchPod {
                namespace: "n".into(),
                name: "p".into(),
                body: untrack_patch(&"u".into(), "f"),
            })
            .await;
        assert_eq!(matches!(result, Ok(Answer::Gone)), !is_there, "{result:?}");
        assert_eq!(matches!(result, Err(WriteError::Forbidden(_))), is_there, "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_in_time_is_unknown() {
    let bench = bench(GateConfig { timeout: Duration::from_millis(5), ..GateConfig::default() }, []);
    assert!(matches!(bench.one(create("x")).await, Err(WriteError::Unknown(_))));
    let lost = ApiRequestLabels { verb: "create", resource: "pods", code: 0 };
    assert_eq!(bench.metrics.api_requests.get_or_create(&lost).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_object_that_does_not_exist_is_answered_gone() {
    let absent = || (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "m"}));
    let other_uid = (
        422,
        json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "m",
        "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}}),
    );
    let precondition = (
        409,
        json!({"kind": "Status", "code": 409, "reason": "Conflict",
        "message": "the UID in the precondition (a) does not match the UID in record (b)"}),
    );
    let deleted_at_once = (200, json!({"kind": "Status", "status": "Success"}));
    let patch =
        || Write::PatchPod { namespace: "n".into(), name: "p".into(), body: untrack_patch(&"u".into(), "f") };
    let delete =
        || Write::DeletePod { namespace: "n".into(), name: "p".into(), uid: "u".into(), grace_seconds: None };
    for (answer, write) in [
        (absent(), patch()),
        (absent(), delete()),
        (other_uid, patch()),
        (precondition, delete()),
        (deleted_at_once, delete()),
    ] {
        let bench = bench(GateConfig::default(), [answer.clone()]);
        assert!(matches!(bench.one(write).await, Ok(Answer::Gone)), "{answer:?}");
    }
    // A proxy knows no way to the API server: nothing is known of the pod.
    let bench = bench(GateConfig::default(), [(404, json!("no route"))]);
    assert!(matches!(bench.one(patch()).await, Err(WriteError::NotFound(_))));
}
