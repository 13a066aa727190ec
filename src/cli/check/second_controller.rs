//! Whether another Job controller works on the same Jobs: who wrote the probe Job's status and Events, and
//! in replacement mode how kube-controller-manager was started.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

use super::context::Context;
use super::probe::{Probe, Writers};
use super::{CheckId, Finding};

pub(super) const CHECK: CheckId = CheckId { group: "jobs", name: "second-controller" };

/// The field manager of our replicas: the first part of their user agent.
const OURS: &str = "yardmaster";
/// The component of the built-in controller's Events, and of ours in replacement mode.
const BUILT_IN_COMPONENT: &str = "job-controller";
/// Label of the pods of the control plane that run kube-controller-manager, and their namespace.
const MANAGER_PODS: (&str, &str) = ("kube-system", "component=kube-controller-manager");

pub(super) async fn check(cx: &Context, probe: &Probe) -> Finding {
    let replaces = cx.controller.replaces_built_in();
    let started = if replaces && !cx.is_stopped() { started_with_jobs(cx).await } else { None };
    evaluate(&probe.writers, replaces, started)
}

/// Whether a kube-controller-manager was started with its Job controller; `None` if that cannot be seen, as
/// on most hosted control planes.
async fn started_with_jobs(cx: &Context) -> Option<bool> {
    let (namespace, label) = MANAGER_PODS;
    let pods: Api<Pod> = Api::namespaced(cx.client.clone(), namespace);
    let listed = pods.list(&ListParams::default().labels(label)).await.ok()?;
    let started = listed.items.iter().map(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let words: Vec<&str> = containers
            .flat_map(|container| container.command.iter().chain(&container.args).flatten())
            .map(String::as_str)
            .collect();
        runs_jobs(&words)
    });
    started.reduce(|one, other| one || other)
}

/// Whether kube-controller-manager with these arguments runs its Job controller.
fn runs_jobs(arguments: &[&str]) -> bool {
    let listed = arguments.iter().find_map(|argument| argument.strip_prefix("--controllers="));
    let Some(listed) = listed else { return true };
    let mut all = false;
    for name in listed.split(',') {
        match name {
            // `job` is its old name.
            "-job-controller" | "-job" => return false,
            "job-controller" | "job" => return true,
            "*" => all = true,
            _ => {}
        }
    }
    all
}

fn evaluate(writers: &Writers, replaces: bool, started: Option<bool>) -> Finding {
    let mut others: BTreeSet<&str> =
        writers.status.iter().map(String::as_str).filter(|manager| *manager != OURS).collect();
    for (component, manager) in &writers.events {
        // In replacement mode our own Events have this component, too. Without a manager this cannot be told.
        let is_ours = replaces && (manager.is_empty() || manager == OURS);
        if component == BUILT_IN_COMPONENT && !is_ours {
            others.insert(if manager.is_empty() { component } else { manager });
        }
    }
    if !others.is_empty() {
        let others = others.into_iter().collect::<Vec<_>>().join(", ");
        return Finding::failed(format!("another controller works on our Jobs: {others}"), remedy(replaces));
    }
    if started == Some(true) {
        return Finding::failed(
            "kube-controller-manager runs its Job controller, too: both would work on the same Jobs",
            remedy(replaces),
        );
    }
    if writers.status.is_empty() {
        return Finding::skipped("it is not known who wrote the status of the probe Job");
    }
    Finding::ok("no other controller works on our Jobs")
}

fn remedy(replaces: bool) -> &'static str {
    if replaces {
        "Switch the built-in Job controller off (kube-controller-manager \
         --controllers=*,-job-controller), or do without replacement mode: another --controller-name, and \
         spec.managedBy in the Jobs."
    } else {
        "Check that the feature gate JobManagedBy is on in kube-apiserver and kube-controller-manager, \
         and that no other controller has this --controller-name."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::report::Status;

    fn writers(status: &[&str], events: &[(&str, &str)]) -> Writers {
        Writers {
            status: status.iter().map(|name| (*name).to_owned()).collect(),
            events: events.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        }
    }

    #[test]
    fn anybody_else_who_writes_is_a_second_controller() {
        const BUILT_IN: &str = "kube-controller-manager";
        for (status, events, replaces, started, expected) in [
            (&[OURS][..], &[("yardmaster", OURS)][..], false, None, Status::Ok),
            (&[OURS], &[("job-controller", OURS)], true, None, Status::Ok),
            (&[OURS], &[("job-controller", OURS)], true, Some(false), Status::Ok),
            (&[OURS], &[("job-controller", OURS)], true, Some(true), Status::Failed),
            (&[OURS, BUILT_IN], &[], true, Some(false), Status::Failed),
            (&[BUILT_IN], &[], false, None, Status::Failed),
            (&[OURS], &[("job-controller", BUILT_IN)], true, None, Status::Failed),
            (&[OURS], &[("job-controller", OURS)], false, None, Status::Failed),
            (&[OURS], &[("job-controller", "")], true, None, Status::Ok),
            (&[OURS], &[("job-controller", "")], false, None, Status::Failed),
            // Queues write Events, too.
            (&[OURS], &[("kueue", "kueue")], false, None, Status::Ok),
            (&[], &[], false, None, Status::Skipped),
        ] {
            let finding = evaluate(&writers(status, events), replaces, started);
            assert_eq!(finding.status, expected, "{status:?} {events:?} {replaces} {started:?}");
        }
        let finding = evaluate(&writers(&[OURS, BUILT_IN], &[]), true, None);
        assert!(finding.message.ends_with(BUILT_IN), "{}", finding.message);
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("-job-controller")));
    }

    #[test]
    fn the_built_in_controller_runs_unless_it_is_left_out() {
        for (controllers, runs) in [
            (None, true),
            (Some("*"), true),
            (Some("*,bootstrapsigner,tokencleaner"), true),
            (Some("*,-job-controller"), false),
            (Some("-job,*"), false),
            (Some("deployment-controller"), false),
            (Some("job-controller,cronjob-controller"), true),
        ] {
            let flag = controllers.map(|names| format!("--controllers={names}"));
            let mut arguments = vec!["kube-controller-manager", "--leader-elect=true"];
            arguments.extend(flag.as_deref());
            assert_eq!(runs_jobs(&arguments), runs, "{controllers:?}");
        }
    }
}
