//! Every metric moves when it should, and no further.

use super::load::{LOAD, SHARDS};

/// Pods of the Jobs that end by themselves, and of `expires` and `suspended`.
const SUCCEEDED_NON_INDEXED: f64 = 3.0 + 1.0 + 1.0;

#[test]
fn the_counters_of_the_built_in_controller_show_what_happened() {
    let ignored =
        LOAD.both.value("job_controller_pod_failures_handled_by_failure_policy_total{action=Ignore}");
    assert!(ignored >= 2.0);
    for (series, value) in [
        ("jobs_finished_total{completion_mode=Indexed,reason=CompletionsReached,result=succeeded}", 1.0),
        ("jobs_finished_total{completion_mode=NonIndexed,reason=CompletionsReached,result=succeeded}", 3.0),
        ("jobs_finished_total{completion_mode=NonIndexed,reason=BackoffLimitExceeded,result=failed}", 2.0),
        ("jobs_finished_total{completion_mode=NonIndexed,reason=PodFailurePolicy,result=failed}", 1.0),
        ("jobs_finished_total{completion_mode=Indexed,reason=FailedIndexes,result=failed}", 1.0),
        ("job_pods_finished_total{completion_mode=Indexed,result=succeeded}", 4.0),
        ("job_pods_finished_total{completion_mode=Indexed,result=failed}", 2.0),
        ("job_pods_finished_total{completion_mode=NonIndexed,result=succeeded}", SUCCEEDED_NON_INDEXED),
        ("job_pods_finished_total{completion_mode=NonIndexed,result=failed}", 4.0),
        ("job_finished_indexes_total{status=succeeded,backoffLimit=global}", 4.0),
        ("job_finished_indexes_total{status=failed,backoffLimit=perIndex}", 2.0),
        ("pod_failures_handled_by_failure_policy_total{action=FailJob}", 1.0),
        ("pod_failures_handled_by_failure_policy_total{action=FailIndex}", 2.0),
        ("pod_failures_handled_by_failure_policy_total{action=Count}", 1.0),
        ("jobs_by_external_controller_total{controller_name=example.com/one}", 2.0),
        ("job_pods_creation_total{reason=recreate_terminating_or_failed,status=succeeded}", 1.0),
    ] {
        let of = format!("job_controller_{series}");
        // The other replica may have seen the Jobs of other controllers, too, when it took over their shards.
        let exact = !series.starts_with("jobs_by_external_controller");
        let found = LOAD.both.value(&of);
        assert!(if exact { found == value } else { found >= value }, "{series}: {found}, not {value}");
    }
    // `indexed`, `plain`, `fails`, `fail-job`, `count`, `fail-index`, `expires`, `suspended`: all that are no
    // replacements of failed pods. Pods of `ignored` are new as long as no failure counts.
    let new = LOAD.both.value("job_controller_job_pods_creation_total{reason=new,status=succeeded}");
    assert!(new >= 4.0 + 3.0 + 1.0 + 1.0 + 1.0 + 2.0 + 1.0 + 1.0 + ignored, "{new}");
}

#[test]
fn ended_pods_get_and_lose_their_finalizers() {
    let of = |event: &str| {
        LOAD.both.value(&format!("job_controller_terminated_pods_tracking_finalizer_total{{event={event}}}"))
    };
    let counted = LOAD.both.sum("job_controller_job_pods_finished_total");
    assert!(of("add") >= counted + 2.0, "with ignored ones: {}", of("add"));
    assert_eq!(of("add"), of("delete"));
    assert_eq!(LOAD.both.value("yardmaster_unreleased_pods"), 0.0);
    assert_eq!(LOAD.both.value("yardmaster_release_stall_seconds"), 0.0);
}

#[test]
fn looks_at_jobs_are_syncs_and_items_of_the_work_queue() {
    let both = &LOAD.both;
    let syncs = both.sum("job_controller_job_syncs_total");
    assert_eq!(syncs, both.sum("job_controller_job_sync_duration_seconds_count"));
    for action in ["pods_created", "tracking"] {
        let series = format!(
            "job_controller_job_syncs_total{{completion_mode=Indexed,result=success,action={action}}}"
        );
        assert!(both.value(&series) >= 1.0, "{series}");
    }
    let queue = |name: &str| both.value(&format!("workqueue_{name}{{name=job}}"));
    assert!(queue("adds_total") > 0.0);
    assert!(queue("queue_duration_seconds_count") <= queue("adds_total"));
    assert!(queue("work_duration_seconds_count") >= queue("queue_duration_seconds_count"));
    assert_eq!([queue("depth"), queue("longest_running_processor_seconds")], [0.0, 0.0]);
}

#[test]
fn latencies_are_those_of_the_jobs_that_had_them() {
    let count = |name: &str| LOAD.both.value(&format!("yardmaster_{name}_seconds_count"));
    // Eight Jobs and `ignored` had a first pod, but `suspended` had to wait for its user.
    assert_eq!(count("job_first_pod"), 8.0);
    // `indexed`, `plain`, `expires`, `suspended`.
    assert_eq!(count("job_completion"), 4.0);
    // `fails` once, and `ignored` for each failure whose successor was created before the Job was deleted.
    let ignored =
        LOAD.both.value("job_controller_pod_failures_handled_by_failure_policy_total{action=Ignore}");
    assert!((1.0..=1.0 + ignored).contains(&count("pod_replacement")), "{}", count("pod_replacement"));
    assert!(count("event_reaction") >= 10.0);
    assert_eq!(LOAD.both.value("ttl_after_finished_controller_job_deletion_duration_seconds_count"), 1.0);
}

#[test]
fn shards_and_waiting_jobs_count_right_through_a_hand_over() {
    assert_eq!(LOAD.waiting, [1.0, 1.0]);
    let both = &LOAD.both;
    let shards = f64::from(SHARDS);
    // Each of the two replicas says how many there are.
    assert_eq!(both.value("yardmaster_shards"), 2.0 * shards);
    assert_eq!(both.value("yardmaster_owned_shards"), shards);
    assert_eq!(both.value("yardmaster_handovers_total{direction=acquired}"), shards * 1.5);
    assert_eq!(both.value("yardmaster_handovers_total{direction=released}"), shards / 2.0);
    assert_eq!(both.value("yardmaster_handovers_total{direction=lost}"), 0.0);
    assert_eq!(both.value("yardmaster_handover_duration_seconds_count"), shards * 1.5);
    assert_eq!(both.value("yardmaster_orphan_controller_leader"), 1.0);
}

#[test]
fn every_request_is_counted_by_whoever_sends_it() {
    let both = &LOAD.both;
    let ours = both.sum("yardmaster_api_requests_total");
    let all = both.sum("rest_client_requests_total");
    assert!(all > ours, "with watches and the election: {all}, {ours}");
    let code = |code: &str, method: &str| {
        both.value(&format!("rest_client_requests_total{{code={code},method={method},host={}}}", LOAD.host))
    };
    let pods = both.sum("job_controller_job_pods_creation_total");
    assert!(code("201", "POST") >= pods && code("200", "PATCH") >= pods && code("200", "GET") >= 4.0);
    // Heartbeats and watches go on while the text is written.
    let timed = both.sum("rest_client_request_duration_seconds_count");
    assert!((all..=all + 4.0).contains(&timed), "{all}, {timed}");
}
