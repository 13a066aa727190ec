#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use http::{Method, StatusCode};
use opentelemetry::trace::TraceId;

use super::labels::{
    ApiRequestLabels, BackoffScope, CompletionMode, FinalizerEvent, FinishedIndexLabels, Outcome, SyncAction,
    SyncLabels, SyncResult,
};
use super::*;

fn sync() -> SyncLabels {
    SyncLabels {
        completion_mode: CompletionMode::Indexed,
        result: SyncResult::Success,
        action: SyncAction::PodsCreated,
    }
}

/// Asserts that the text format shows these lines.
fn assert_lines(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.render(Format::Text);
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line}\n{text}");
    }
}

#[test]
fn metrics_have_the_names_labels_and_buckets_of_the_built_in_controller() {
    let metrics = Metrics::new();
    metrics.job_controller.count_sync(&sync(), Duration::from_millis(5));
    metrics.job_controller.count_terminated(FinalizerEvent::Delete, 2);
    let index = FinishedIndexLabels { status: Outcome::Succeeded, backoff_limit: BackoffScope::PerIndex };
    metrics.job_controller.finished_indexes.get_or_create(&index).inc_by(3);
    assert_lines(
        &metrics,
        &[
            "# TYPE job_controller_job_syncs_total counter",
            r#"job_controller_job_syncs_total{completion_mode="Indexed",result="success",action="pods_created"} 1"#,
            r#"job_controller_job_finished_indexes_total{status="succeeded",backoffLimit="perIndex"} 3"#,
            r#"job_controller_terminated_pods_tracking_finalizer_total{event="delete"} 2"#,
            r#"job_controller_terminated_pods_tracking_finalizer_total{event="add"} 0"#,
            "# TYPE job_controller_job_sync_duration_seconds histogram",
        ],
    );
    let text = metrics.render(Format::Text);
    let bounds: Vec<f64> = text
        .lines()
        .filter(|l| l.starts_with("job_controller_job_sync_duration_seconds_bucket"))
        .map(|l| l.split("le=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap_or(f64::INFINITY))
        .collect();
    assert_eq!(bounds.len(), 16, "15 bounds and +Inf");
    assert!((bounds[0] - 0.004).abs() < 1e-9 && (bounds[14] - 65.536).abs() < 1e-9, "{bounds:?}");
}

#[test]
fn each_label_set_of_a_hot_family_has_a_series_of_its_own() {
    let metrics = Metrics::new();
    let all = CompletionMode::ALL.iter().flat_map(|mode| {
        let results = SyncResult::ALL.iter();
        results.flat_map(move |result| SyncAction::ALL.iter().map(move |action| (*mode, *result, *action)))
    });
    let mut lines = Vec::new();
    for (number, (completion_mode, result, action)) in all.enumerate() {
        let labels = SyncLabels { completion_mode, result, action };
        for _ in 0..=number {
            metrics.job_controller.count_sync(&labels, Duration::ZERO);
        }
        lines.push(format!(
            "job_controller_job_syncs_total{{completion_mode=\"{}\",result=\"{}\",action=\"{}\"}} {}",
            completion_mode.as_str(),
            result.as_str(),
            action.as_str(),
            number + 1
        ));
    }
    assert_eq!(lines.len(), 16);
    assert_lines(&metrics, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn users_cannot_make_series_without_bound() {
    let metrics = Metrics::new();
    for number in 0..1_000 {
        metrics.job_controller.count_external(&format!("example.com/{number}"));
    }
    metrics.job_controller.count_external("example.com/7");
    let text = metrics.render(Format::Text);
    let series = text.lines().filter(|line| line.starts_with("job_controller_jobs_by_external_controller"));
    assert_eq!(series.count(), 33);
    assert_lines(
        &metrics,
        &[
            r#"job_controller_jobs_by_external_controller_total{controller_name="example.com/7"} 2"#,
            r#"job_controller_jobs_by_external_controller_total{controller_name="other"} 968"#,
        ],
    );
}

#[test]
fn requests_count_by_code_and_method_and_given_up_ones_as_errors() {
    let metrics = Metrics::new();
    let host = metrics.rest_client.of_host("10.0.0.1:443");
    for (method, code) in [
        (Method::GET, Some(StatusCode::OK)),
        (Method::GET, Some(StatusCode::OK)),
        (Method::POST, Some(StatusCode::CREATED)),
        (Method::PATCH, Some(StatusCode::UNPROCESSABLE_ENTITY)),
        (Method::DELETE, None),
    ] {
        host.send(&method).answered(code);
    }
    drop(host.send(&Method::PUT));
    let count = |code: &str, method: &str, n: u32| {
        format!(r#"rest_client_requests_total{{code="{code}",method="{method}",host="10.0.0.1:443"}} {n}"#)
    };
    let lines = [
        count("200", "GET", 2),
        count("201", "POST", 1),
        count("422", "PATCH", 1),
        count("<error>", "DELETE", 1),
        count("<error>", "PUT", 1),
        r#"rest_client_request_duration_seconds_count{verb="GET",host="10.0.0.1:443"} 2"#.to_owned(),
    ];
    assert_lines(&metrics, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn codes_that_only_a_webhook_knows_have_no_series_of_their_own() {
    let metrics = Metrics::new();
    for code in (400..=999).chain([0, 200]) {
        let call = ApiCallLabels { verb: "create", resource: "pods" };
        metrics.count_request(call, code, Duration::ZERO);
        let status = StatusCode::from_u16(code).ok();
        metrics.rest_client.of_host("h:443").send(&Method::POST).answered(status);
    }
    let text = metrics.render(Format::Text);
    for family in ["yardmaster_api_requests_total{", "rest_client_requests_total{"] {
        let series = text.lines().filter(|line| line.starts_with(family)).count();
        assert!((30..60).contains(&series), "{family}: {series}");
    }
    assert!(text.contains(r#"resource="pods",code="0"} 1"#) && text.contains(r#"code="404""#), "{text}");
}

#[test]
fn the_queue_shows_jobs_that_wait_and_the_work_in_progress() {
    let metrics = Metrics::new();
    let queue = &metrics.workqueue;
    queue.added();
    queue.added();
    queue.taken(Duration::from_micros(50));
    let first = queue.begin(0);
    std::thread::sleep(Duration::from_millis(20));
    let second = queue.begin(1);
    std::thread::sleep(Duration::from_millis(10));
    let value = |name: &str| -> f64 {
        let text = metrics.render(Format::Text);
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_lines(&metrics, &[r#"workqueue_depth{name="job"} 1"#, r#"workqueue_adds_total{name="job"} 2"#]);
    assert!(value("workqueue_longest_running_processor_seconds") >= 0.03);
    assert!(value("workqueue_unfinished_work_seconds") >= 0.04);
    drop((first, second));
    assert_eq!(value("workqueue_unfinished_work_seconds"), 0.0);
    assert_eq!(value("workqueue_work_duration_seconds_count"), 2.0);
    queue.dropped();
    assert_eq!(value("workqueue_depth"), 0.0);
}

#[test]
fn only_open_metrics_shows_exemplars() {
    let metrics = Metrics::new();
    metrics.latencies.first_pod.observe(Duration::from_millis(3), Some(TraceId::from(0xabc)));
    metrics.latencies.first_pod.observe(Duration::from_secs(3), None);
    let open_metrics = metrics.render(Format::OpenMetrics);
    let exemplar = r#"yardmaster_job_first_pod_seconds_bucket{le="0.004"} 1 # {trace_id="00000000000000000000000000000abc"} 0.003 "#;
    let traced: Vec<_> = open_metrics.lines().filter(|line| line.contains(" # ")).collect();
    assert!(traced.len() == 1 && traced[0].starts_with(exemplar), "{traced:?}");
    assert!(open_metrics.ends_with("# EOF\n"));
    assert_lines(
        &metrics,
        &[
            r#"yardmaster_job_first_pod_seconds_bucket{le="0.004"} 1"#,
            "yardmaster_job_first_pod_seconds_count 2",
        ],
    );
}

#[test]
fn the_format_is_what_the_reader_prefers() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    for (accept, format) in [
        (None, Format::Text),
        (Some(""), Format::Text),
        (Some("*/*"), Format::Text),
        (Some("text/html, */*;q=0.8"), Format::Text),
        (Some("text/plain;version=0.0.4"), Format::Text),
        (Some(prometheus), Format::OpenMetrics),
        (Some("application/openmetrics-text"), Format::OpenMetrics),
        (Some("application/openmetrics-text; version=\"1.0.0\"; charset=utf-8"), Format::OpenMetrics),
        (Some("application/openmetrics-text;version=2.0.0"), Format::Text),
        (Some("application/openmetrics-text;q=0"), Format::Text),
        (Some("application/openmetrics-text;q=0.3, text/plain;q=0.5"), Format::Text),
    ] {
        assert_eq!(Format::negotiate(accept), format, "{accept:?}");
    }
}

/// Prometheus' text format has three requirements. Each family has its type before its samples, each sample
/// belongs to the family above it, and no family occurs twice.
#[test]
fn the_text_is_well_formed() {
    let metrics = Metrics::new();
    metrics.job_controller.count_sync(&sync(), Duration::from_secs(1));
    let request = ApiRequestLabels { verb: "create", resource: "pods", code: 201 };
    metrics.api_requests.get_or_create(&request).inc();
    metrics.heartbeat_age.set(0.5);
    let text = metrics.render(Format::Text);
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "{name} twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = name;
        } else if let Some(family) = line.strip_prefix("# HELP ") {
            assert!(family.split_once(' ').is_some_and(|(_, help)| !help.is_empty()), "{line}");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = match types[current] {
                "histogram" => {
                    ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name)
                }
                _ => name,
            };
            assert_eq!(family, current, "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.ends_with('\n') && !text.contains("_total_total") && !text.contains("# EOF"));
    for (name, kind) in [
        ("yardmaster_fenced_writes_total", "counter"),
        ("yardmaster_owned_shards", "gauge"),
        ("yardmaster_build_info", "gauge"),
        ("process_cpu_seconds_total", "counter"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_open_fds", "gauge"),
        ("process_max_fds", "gauge"),
        ("process_start_time_seconds", "gauge"),
        ("process_virtual_memory_bytes", "gauge"),
    ] {
        assert_eq!(types.get(name), Some(&kind), "{name}");
    }
}
