//! Whether Jobs would be left without a controller.

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams};

use super::context::{Context, message};
use super::{CheckId, Finding};

pub(super) const CHECK: CheckId = CheckId { group: "leaving", name: "unfinished-jobs" };

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Jobs that are named.
const NAMED: usize = 10;

pub(super) async fn check(cx: &Context) -> Finding {
    match unfinished(cx).await {
        Ok(jobs) => evaluate(&jobs, cx.controller.replaces_built_in()),
        Err(error) => Finding::failed(
            format!("cannot list Jobs: {}", message(&error)),
            "Use an account that may list Jobs in all namespaces, and check that the API server answers.",
        ),
    }
}

/// All unfinished Jobs that the controller manages, as `NAMESPACE/NAME`.
async fn unfinished(cx: &Context) -> Result<Vec<String>, kube::Error> {
    let api: Api<Job> = Api::all(cx.client.clone());
    let mut parameters = ListParams::default().limit(PAGE);
    let mut unfinished = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        let managed = page.items.iter().filter(|job| {
            let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
            cx.controller.manages(managed_by) && !is_finished(job)
        });
        unfinished.extend(managed.map(|job| {
            let meta = &job.metadata;
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", text(&meta.namespace), text(&meta.name))
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if !cx.is_stopped() => parameters.continue_token = Some(token),
            _ => return Ok(unfinished),
        }
    }
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| matches!(&*condition.type_, "Complete" | "Failed") && condition.status == "True")
}

fn evaluate(jobs: &[String], replaces_built_in: bool) -> Finding {
    let count = match jobs.len() {
        0 => return Finding::ok("no unfinished Job is managed by this controller"),
        1 => "1 unfinished Job is".to_owned(),
        count => format!("{count} unfinished Jobs are"),
    };
    let first = jobs.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if jobs.len() > NAMED { ", ..." } else { "" };
    let remedy = if replaces_built_in {
        "Let them finish (`yardmaster status`), delete them (`kubectl delete job`), or move them: the \
         built-in Job controller takes them over once it is switched on again."
    } else {
        "Let them finish (`yardmaster status`), delete them (`kubectl delete job`), or move them: create \
         them again without spec.managedBy, which cannot be changed."
    };
    Finding::failed(format!("{count} managed by this controller: {first}{more}"), remedy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::cli::check::report::Status;

    #[test]
    fn the_first_ten_jobs_are_named() {
        let jobs = |count| (1..=count).map(|number| format!("n/job-{number}")).collect::<Vec<_>>();
        assert_eq!(evaluate(&[], false).status, Status::Ok);
        let one = evaluate(&jobs(1), false);
        assert_eq!(
            (one.status, &*one.message),
            (Status::Failed, "1 unfinished Job is managed by this controller: n/job-1")
        );
        assert!(one.remedy.unwrap().contains("without spec.managedBy"));
        let many = evaluate(&jobs(12), true);
        assert!(
            many.message.starts_with("12 unfinished Jobs are") && many.message.ends_with("n/job-10, ...")
        );
        assert!(many.remedy.unwrap().contains("built-in"));
        assert!(!evaluate(&jobs(10), true).message.contains("..."));
    }

    #[test]
    fn only_complete_and_failed_jobs_are_finished() {
        for (type_, status, finished) in [
            ("Complete", "True", true),
            ("Failed", "True", true),
            ("Complete", "False", false),
            ("Suspended", "True", false),
            ("FailureTarget", "True", false),
        ] {
            let conditions = json!([{"type": type_, "status": status}]);
            let job: Job = serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap();
            assert_eq!(is_finished(&job), finished, "{type_} {status}");
        }
    }
}
