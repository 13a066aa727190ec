//! The requests that writes become.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{bench, create, one_at_a_time};
use crate::cluster::gate::{Answer, GateConfig, Write, WriteError};
use crate::job::manifest::{Encoding, Maker};
use crate::job::names::EXTERNAL_FINALIZER;
use crate::job::pod::{Behind, NewPod, Place};
use crate::job::spec::Completion;
use crate::job::template::PodTemplate;
use crate::job::tests::fixture::{job, with};

/// The creation of a pod whose template has this many bytes.
fn create_pod(bytes: usize) -> Write {
    let template = json!({"spec": {"x": "x".repeat(bytes)}}).to_string();
    let template = PodTemplate::new(&RawValue::from_string(template).unwrap());
    let job = with(job(Completion::Count(1), 1), |spec| spec.template = template);
    let maker = Maker::new(&job, EXTERNAL_FINALIZER, 0, None).unwrap();
    let place = Place { number: 0, attempt: 0 };
    Write::CreatePod {
        pod: maker.manifest(NewPod {
            place,
            index_failures: None,
            backoff: None,
            lineage: None,
            behind: Behind::default(),
        }),
    }
}

/// The API server reads the pod in the second request only.
#[tokio::test(start_paused = true)]
async fn a_pod_is_composed_for_each_request_that_leaves() {
    let mut bench = bench(one_at_a_time(), [(429, json!({"kind": "Status", "code": 429}))]);
    let write = create_pod(16 << 10);
    let composed = String::from_utf8(write.body().to_vec()).unwrap();
    assert!(composed.len() > 16 << 10 && size_of_val(&write) <= 128, "it waits without its body");
    assert!(matches!(bench.one(write).await, Ok(Answer::Pod(_))));
    assert_eq!(bench.bodies(), [composed.clone(), composed]);
}

#[tokio::test(start_paused = true)]
async fn writes_become_the_requests_that_kubernetes_expects() {
    let mut bench = bench(GateConfig::default(), []);
    let (namespace, body) = (|| Arc::<str>::from("n"), || Bytes::from_static(b"{}"));
    let pod_body = serde_json::from_slice(&create_pod(1).body()).unwrap();
    let cases = [
        (create("{}"), "POST /api/v1/namespaces/n/pods", json!({})),
        (create_pod(1), "POST /api/v1/namespaces/default/pods", pod_body),
        (
            Write::PatchPod { namespace: namespace(), name: "p".into(), body: body() },
            "PATCH /api/v1/namespaces/n/pods/p?fieldValidation=Ignore",
            json!({}),
        ),
        (
            Write::DeletePod {
                namespace: namespace(),
                name: "p".into(),
                uid: "u".into(),
                grace_seconds: None,
            },
            "DELETE /api/v1/namespaces/n/pods/p",
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u"}}),
        ),
        (
            Write::PatchJobStatus { namespace: namespace(), name: "j".into(), body: body() },
            "PATCH /apis/batch/v1/namespaces/n/jobs/j/status",
            json!({}),
        ),
        (
            Write::DeleteJob {
                namespace: namespace(),
                name: "j".into(),
                uid: "u".into(),
                version: "7".into(),
            },
            "DELETE /apis/batch/v1/namespaces/n/jobs/j",
            json!({"kind": "DeleteOptions", "apiVersion": "v1",
                "preconditions": {"uid": "u", "resourceVersion": "7"}, "propagationPolicy": "Foreground"}),
        ),
        (
            Write::CreateEvent { namespace: namespace(), body: body(), encoding: Encoding::Json },
            "POST /api/v1/namespaces/n/events",
            json!({}),
        ),
    ];
    for (write, line, expected) in cases {
        // The answer does not matter here.
        let _ = bench.one(write).await;
        let (seen, body) = bench.seen.try_recv().unwrap();
        assert_eq!((&*seen, serde_json::from_slice::<Value>(&body).unwrap()), (line, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_name_is_too_long_for_a_path_is_refused_and_not_sent() {
    let mut bench = bench(GateConfig::default(), []);
    let write =
        Write::PatchPod { namespace: "n".into(), name: "a".repeat(70_000).into(), body: Bytes::new() };
    assert!(matches!(bench.one(write).await, Err(WriteError::Invalid(_))));
    bench.gate.idle().await;
    assert!(bench.bodies().is_empty());
}
