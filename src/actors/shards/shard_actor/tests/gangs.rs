//! The requests for the gang of a Job, which may wait long for their turn.

use super::*;

/// A Job whose pods are scheduled together.
fn gang(name: &str) -> Value {
    let mut gang = job(name, json!({}));
    gang["spec"]["completionMode"] = "Indexed".into();
    gang["spec"]["completions"] = 2.into();
    gang["spec"]["parallelism"] = 2.into();
    gang
}

/// A tenant creates Jobs and deletes them at once, in a namespace whose Workloads take long to list.
#[test]
fn a_job_that_is_gone_waits_for_no_list_and_gets_no_workload() {
    for is_gone in [false, true] {
        run(async move {
            let none = json!({"metadata": {"resourceVersion": "7"}, "items": []});
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/workloads") => Some((200, none.clone())),
                _ => None,
            });
            let cx =
                replica_with(&api.clone().after(Duration::from_secs(2)), BUILT_IN_CONTROLLER, |config| {
                    config.feature_gates.workload_with_job = true;
                });
            let names: Vec<String> = (0..40).map(|number| format!("j{number}")).collect();
            let jobs: Vec<Value> = names.iter().map(|name| gang(name)).collect();
            let shard = Shard::start_fenced(cx, Fence::unlimited(), &jobs, vec![]).await;
            sleep(SOON).await;
            assert!((1..40).contains(&api.count(&["GET", "/workloads"])), "{:?}", api.sent());
            for name in names.iter().filter(|_| is_gone) {
                shard.0.send(JobVanished(name.as_str().into())).await.unwrap();
            }
            let begun = api.count(&["GET", "/workloads"]);
            sleep(Duration::from_secs(600)).await;
            let (lists, made) = (api.count(&["GET", "/workloads"]), api.count(&["POST", "/workloads"]));
            assert_eq!((lists > begun, made > 0), (!is_gone, !is_gone), "{:?}", api.sent());
        });
    }
}
