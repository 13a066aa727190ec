//! Each reason for which a Job waits is a span of its trace.

use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use yardmaster_embedded::{Fault, FaultScope};

use super::{Received, named, only, replica, stop};
use crate::binary::Background;
use crate::cluster::{Cluster, has};
use crate::collector::Collector;

/// How long the API server takes to create a Workload.
const GANG: Duration = Duration::from_millis(700);

/// Lets this many more pods into the namespace, as a quota and its controller would.
async fn allow(cluster: &Cluster, pods: usize) {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.pods.clone().into_client());
    let hard = json!({"pods": pods.to_string()});
    if quotas.get_opt("few").await.unwrap().is_none() {
        let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": hard}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    }
    let status = json!({"spec": {"hard": hard}, "status": {"hard": hard, "used": {"pods": "0"}}});
    quotas.patch("few", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    quotas.patch_status("few", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

/// Changes whether the Job is suspended.
async fn suspend(cluster: &Cluster, suspended: bool) {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspended}}));
    cluster.jobs.patch("waits", &PatchParams::default(), &patch).await.unwrap();
}

fn now() -> f64 {
    Timestamp::now().as_nanosecond() as f64 / 1e9
}

/// The spans of waits for one reason, in the order of time. Each is below the root, and names the reason.
fn waits<'a>(spans: &'a [Received], reason: &str) -> Vec<&'a Received> {
    let root = only(spans, "job");
    let mut waits = named(spans, &format!("wait.{reason}"));
    waits.sort_by(|one, other| one.seconds().0.total_cmp(&other.seconds().0));
    assert!(!waits.is_empty(), "no wait for {reason}");
    for wait in &waits {
        assert_eq!(wait.span.trace_id, root.span.trace_id);
        assert_eq!(wait.span.parent_span_id, root.id());
        assert_eq!(wait.text("yardmaster.wait.reason").as_deref(), Some(reason));
        assert_eq!(wait.text("k8s.job.name").as_deref(), Some("waits"));
    }
    waits
}

/// The Job waits for its gang, then for the quota, then it is suspended.
#[tokio::test(flavor = "multi_thread")]
async fn waits_for_gang_quota_and_suspension_are_spans_with_their_reason() {
    let (cluster, collector) = (Cluster::start().await, Collector::start().await);
    let directory = tempfile::tempdir().unwrap();
    let scope =
        FaultScope { methods: vec![Method::POST], path: "/workloads".to_owned(), ..FaultScope::default() };
    cluster.server.faults().inject(Fault::Delay(GANG), scope, None);
    allow(&cluster, 1).await;
    let mut command = replica(&cluster, &directory, "one", &collector.url());
    let running = Background::start(command.args(["--feature-gates", "WorkloadWithJob=true"]));
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"});
    cluster.create("waits", spec, "300ms").await;
    collector.until("wait.GangScheduling").await;
    // The end of a wait for the quota is the next attempt.
    collector.until("wait.Refused").await;
    suspend(&cluster, true).await;
    cluster.until("waits", "suspended", |job| has(job, "Suspended")).await;
    let suspended = now();
    allow(&cluster, 10).await;
    let resumed = now();
    suspend(&cluster, false).await;
    let job = cluster.completes("waits").await;
    collector.until("job").await;
    stop(running);

    let spans = collector.spans();
    let mut creates = named(&spans, "api.create_pod");
    creates.sort_by(|one, other| one.seconds().0.total_cmp(&other.seconds().0));
    let gang = waits(&spans, "GangScheduling")[0];
    assert!(gang.lasted() >= GANG.as_secs_f64(), "{gang:?}");
    assert!(gang.seconds().1 <= creates[0].seconds().0, "no pod comes before the gang");

    let forbidden = Some(i64::from(StatusCode::FORBIDDEN.as_u16()));
    let refused = creates.iter().filter(|call| call.number("http.response.status_code") == forbidden);
    let first =
        refused.map(|call| call.seconds().1).reduce(f64::min).expect("requests that the quota refuses");
    // After the suspension, the Job waits for the rest of the last back-off.
    let short = waits(&spans, "Refused");
    assert!(short[0].seconds().1 <= suspended, "{short:?}");
    for wait in short {
        assert!(wait.seconds().0 >= first, "{first}: {wait:?}");
        assert!(wait.text("yardmaster.wait.until").is_some());
        let message = wait.text("yardmaster.wait.message").expect("what the API server said");
        assert!(message.contains("exceeded quota: few, requested: pods=1, used: pods=1"), "{message}");
    }

    let [suspension] = waits(&spans, "Suspended")[..] else { panic!("{:?}", waits(&spans, "Suspended")) };
    let (from, to) = suspension.seconds();
    assert!(from <= suspended && resumed <= to, "{suspended} {resumed}: {suspension:?}");
    assert_eq!(suspension.text("yardmaster.wait.until"), None, "nobody knows");
    let idle = |call: &&&Received| (from..to).contains(&call.seconds().0);
    assert_eq!(creates.iter().filter(idle).count(), 0, "a suspended Job creates no pod");
    let started = job.status.unwrap().start_time.unwrap().0.as_second() as f64;
    assert!(to < started + 1.0 + 1e-3, "it starts anew when it is resumed: {started} {to}");
    cluster.end().await;
}
