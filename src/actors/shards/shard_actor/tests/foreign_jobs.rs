//! Jobs of other controllers that have outlived their TTL.

use super::*;

/// The Job `f`, which has finished, at this version and with this TTL in seconds.
pub(super) fn finished(version: u64, ttl: Option<u64>) -> Value {
    let at = "1970-01-01T00:00:00Z";
    let complete = json!({"type": "Complete", "status": "True", "lastTransitionTime": at});
    let mut foreign = job("f", json!({"conditions": [complete], "completionTime": at, "startTime": at}));
    foreign["metadata"]["resourceVersion"] = version.to_string().into();
    foreign["spec"]["ttlSecondsAfterFinished"] = ttl.into();
    foreign
}

#[test]
fn a_job_of_another_controller_is_deleted_once_a_fence_that_has_lapsed_is_extended() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/jobs/f") => Some((200, finished(20, Some(0)))),
            "DELETE" => Some((200, json!({}))),
            _ => None,
        });
        let (fence, extend) = lapsed();
        let shard = Shard::start_fenced(with_ttl(&api), fence, &[], vec![]).await;
        shard.foreign(&finished(20, Some(0))).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(&["DELETE"]), 0);
        extend();
        sleep(60 * SOON).await;
        assert_eq!(api.count(&["DELETE", "/jobs/f"]), 1);
    });
}

/// The answer takes long. Meanwhile the watch shows the Job again.
#[test]
fn the_deletion_of_a_job_of_another_controller_is_not_sent_again_before_it_is_answered() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/jobs/f") => Some((200, finished(20, Some(0)))),
            _ => None,
        });
        let shard = Shard::start_fenced(with_ttl(&api), Fence::unlimited(), &[], vec![]).await;
        for version in [10, 20, 20] {
            shard.foreign(&finished(version, Some(0))).await;
            sleep(4 * SOON).await;
        }
        assert_eq!(api.count(&["DELETE", "/jobs/f"]), 1, "{:?}", api.sent());
    });
}

/// A live read shows that it is not due. When that is answered, the watch has shown a later version.
#[test]
fn the_latest_version_decides_whether_a_job_of_another_controller_is_deleted() {
    for (read, seen, deleted) in
        [(None, Some(0), true), (Some(10_000_000_000), Some(0), true), (None, None, false)]
    {
        run(async move {
            let (answered, now) = switch();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/f") => match now.load(Ordering::Relaxed) {
                    0 => None,
                    1 => Some((200, finished(15, read))),
                    _ => Some((200, finished(20, seen))),
                },
                "DELETE" => Some((200, json!({}))),
                _ => None,
            });
            let shard = Shard::start_fenced(with_ttl(&api), Fence::unlimited(), &[], vec![]).await;
            shard.foreign(&finished(20, seen)).await;
            sleep(SOON).await;
            answered.store(1, Ordering::Relaxed);
            sleep(200 * SOON).await;
            answered.store(2, Ordering::Relaxed);
            sleep(600 * SOON).await;
            let deletions = api.count(&["DELETE", "/jobs/f"]);
            assert_eq!(deletions > 0, deleted, "{read:?}, {seen:?}: {:?}", api.sent());
        });
    }
}

/// A replica that stands in for Kubernetes' TTL controller.
pub(super) fn with_ttl(api: &TestApi) -> ReplicaContext {
    replica_with(api, BUILT_IN_CONTROLLER, |config| config.ttl_controller = true)
}

impl Shard {
    pub(super) async fn foreign(&self, job: &Value) {
        self.0.send(ForeignJobSeen(observed_job(job))).await.unwrap();
    }
}
