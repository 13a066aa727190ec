//! Jobs that want counted pods deleted.

use super::*;

/// A failed pod that is counted.
fn counted(name: &str, version: u64) -> Value {
    let mut pod = at(version, "Failed", pod(name, "j"));
    pod["metadata"]["finalizers"] = json!([]);
    pod
}

/// The Job waits for a pod without a shard's label. Those that it was shown meanwhile are still there.
#[test]
fn counted_pods_of_a_job_that_was_held_back_are_not_taken_for_gone() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "PATCH" if uri.contains("/pods/h") => Some((200, labelled(counted("h", 150)))),
            _ => None,
        });
        let failed =
            json!([{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]);
        let mut finished =
            job("j", json!({"failed": 3, "startTime": "1970-01-01T00:00:00Z", "conditions": failed}));
        finished["metadata"]["annotations"] = json!({"yardmaster.dev/failed-pods-limit": "2"});
        let census = CensusTaken { pods: vec![observed_pod(&counted("h", 20))], ..no_census() };
        let pods = vec![labelled(counted("f", 20)), labelled(counted("g", 20))];
        let shard = Shard::start(&api, &[finished], census, pods).await;
        sleep(SOON).await;
        assert_eq!(api.count(&["PATCH", "/pods/h"]), 1);
        shard.watched(vec![applied(&labelled(counted("h", 150)))]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(&["DELETE", "/pods/"]), 1, "{:?}", api.sent());
    });
}
