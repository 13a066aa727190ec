//! Jobs whose template is too long to be kept.

use super::*;
use crate::job::template::KEPT_BYTES;

/// The Job `j` with a template of more than [`KEPT_BYTES`], which wants one pod.
fn large() -> Value {
    let mut large = job("j", json!({}));
    large["spec"]["template"]["metadata"]["annotations"] = json!({"big": "x".repeat(KEPT_BYTES)});
    large
}

#[test]
fn pods_of_a_large_template_are_made_of_the_job_as_it_is_now() {
    run(async {
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/j") => Some((200, large())),
            _ => None,
        });
        let _shard = Shard::start(&api, &[large()], vec![]).await;
        sleep(SOON).await;
        assert_eq!(api.count(&["POST /api/v1/namespaces/n/pods", r#""big":"xxx"#]), 1);
    });
}

/// The Job has just been suspended, or the API server does not answer: the plan says when
/// to try again.
#[test]
fn pods_of_a_large_template_wait_until_their_job_can_be_read() {
    for answer in ["suspended", "error"] {
        run(async move {
            let (now_read, is_read) = switch();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/j") => match is_read.load(Ordering::Relaxed) {
                    0 if answer == "error" => refusal(500),
                    0 => {
                        let mut suspended = large();
                        suspended["spec"]["suspend"] = true.into();
                        Some((200, suspended))
                    }
                    _ => Some((200, large())),
                },
                _ => None,
            });
            let _shard = Shard::start(&api, &[large()], vec![]).await;
            sleep(SOON).await;
            assert_eq!(api.count(CREATION), 0);
            now_read.store(1, Ordering::Relaxed);
            sleep(Duration::from_secs(120)).await;
            assert!(api.count(CREATION) >= 1);
        });
    }
}
