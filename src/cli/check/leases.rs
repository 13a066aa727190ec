//! Whether the API server keeps Leases as ownership of shards needs it: a write that names an old version
//! must fail.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use tokio::time::Instant;

use super::context::{Context, message, unique_name};
use super::{CheckId, Finding};

pub(super) const CHECK: CheckId = CheckId { group: "leases", name: "lease-round-trip" };

/// The step that failed.
#[derive(Debug)]
enum Problem {
    /// A step was refused, or not answered.
    Step { step: &'static str, code: u16, message: String },
    /// The API server has overwritten a newer version.
    StaleAccepted,
    /// The Lease of the check is still there.
    NotDeleted { name: String, message: String },
}

pub(super) async fn check(cx: &Context) -> Finding {
    let leases: Api<Lease> = Api::namespaced(cx.client.clone(), cx.namespace());
    let name = unique_name();
    let started = Instant::now();
    let written = write(&leases, &name).await;
    let deleted = leases.delete(&name, &DeleteParams::default()).await;
    let result = match (written, deleted) {
        (Err(problem), _) => Err(problem),
        (Ok(()), Err(error)) => Err(Problem::NotDeleted { name, message: message(&error) }),
        (Ok(()), Ok(_)) => Ok(started.elapsed()),
    };
    evaluate(result, cx.namespace())
}

async fn write(leases: &Api<Lease>, name: &str) -> Result<(), Problem> {
    let parameters = PostParams::default();
    let problem = |step, error: &kube::Error| {
        let code = if let kube::Error::Api(status) = error { status.code } else { 0 };
        Problem::Step { step, code, message: message(error) }
    };
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let spec = LeaseSpec { holder_identity: Some("check".to_owned()), ..LeaseSpec::default() };
    let lease = Lease { metadata, spec: Some(spec) };
    let first = leases.create(&parameters, &lease).await.map_err(|error| problem("create", &error))?;
    let mut change = first.clone();
    change.spec.get_or_insert_default().holder_identity = Some("check-2".to_owned());
    leases.replace(name, &parameters, &change).await.map_err(|error| problem("update", &error))?;
    let mut stale = first;
    stale.spec.get_or_insert_default().holder_identity = Some("check-3".to_owned());
    match leases.replace(name, &parameters, &stale).await {
        Ok(_) => Err(Problem::StaleAccepted),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(problem("update", &error)),
    }
}

fn evaluate(result: Result<Duration, Problem>, namespace: &str) -> Finding {
    match result {
        Ok(time) => Finding::ok(format!(
            "a Lease in namespace {namespace} was written and deleted in {:.2} s",
            time.as_secs_f64()
        )),
        Err(Problem::StaleAccepted) => Finding::failed(
            "the API server has overwritten a newer version of a Lease, so two replicas could own one shard",
            "Do not use this API server: check what stands between it and its clients, and its storage.",
        ),
        Err(Problem::NotDeleted { name, message }) => Finding::warning(
            format!("the Lease of this check was not deleted: {message}"),
            format!("kubectl delete lease -n {namespace} {name}"),
        ),
        Err(Problem::Step { step, code, message }) => {
            let remedy = match code {
                403 => "Use an account that may create, update and delete Leases there, as the chart's \
                 Role does."
                    .to_owned(),
                404 => format!(
                    "Create namespace {namespace}, or give the one of the replicas as \
                 --lease-namespace."
                ),
                _ => "Repeat the check; if it fails again, look at the log of the API server.".to_owned(),
            };
            Finding::failed(format!("cannot {step} a Lease in namespace {namespace}: {message}"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::report::Status;

    #[test]
    fn each_problem_has_its_remedy() {
        let step = |code| Problem::Step { step: "create", code, message: "no".into() };
        let left = Problem::NotDeleted { name: "l".into(), message: "no".into() };
        for (result, status, part) in [
            (Ok(Duration::from_millis(30)), Status::Ok, ""),
            (Err(Problem::StaleAccepted), Status::Failed, "Do not use"),
            (Err(left), Status::Warning, "kubectl delete lease -n system l"),
            (Err(step(403)), Status::Failed, "may create"),
            (Err(step(404)), Status::Failed, "Create namespace system"),
            (Err(step(0)), Status::Failed, "Repeat"),
        ] {
            let finding = evaluate(result, "system");
            assert_eq!(finding.status, status, "{}", finding.message);
            assert!(finding.remedy.unwrap_or_default().contains(part), "{}", finding.message);
        }
    }
}
