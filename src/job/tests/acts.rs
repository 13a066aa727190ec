//! Acts: random events in the world, and random Jobs for them.

use std::time::Duration;

use proptest::prelude::*;

use super::fixture::{job, template, with};
use super::owner::{Fortune, Owner};
use super::world::World;
use crate::job::index_set::IndexSet;
use crate::job::limits::Limits;
use crate::job::pod::{ContainerExit, Outcome, Phase, Pod};
use crate::job::spec::{
    Completion, Job, PerIndexLimit, PodFailureAction, PodFailurePattern, PodFailureRule, SuccessRule,
};
use crate::job::uid::Uid;

/// Exit codes that the rules of [`jobs`] distinguish.
const CODES: [i32; 4] = [1, 42, 43, 44];

/// An event. Numbers select one of the pods, requests or answers that it may apply to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    // Nodes
    Run(usize),
    Ready(usize),
    Restart(usize),
    Succeed(usize),
    Fail(usize, usize),
    FinishDeletion(usize),
    // Users
    Delete(usize),
    StripFinalizer(usize),
    StripIndex(usize),
    Foreign(u32),
    Parallelism(u32),
    Suspend(bool),
    Resize(u32),
    DeleteJob,
    // The controller and its network. The first number selects the owner.
    Plan(usize),
    Execute(usize, usize, Fortune),
    Hear(usize, usize),
    WatchPods(usize, usize),
    WatchJob(usize),
    Crash(usize),
    ArriveLate(usize, usize),
    // The clock
    Pass(i64),
}

/// Acts of nodes, controllers, network and clock.
pub(super) fn act() -> impl Strategy<Value = Act> {
    let n = || 0usize..8;
    let fortune =
        prop_oneof![8 => Just(Fortune::Done), 1 => Just(Fortune::Refused), 1 => Just(Fortune::Lost)];
    prop_oneof![
        6 => n().prop_map(Act::Run),
        2 => n().prop_map(Act::Ready),
        1 => n().prop_map(Act::Restart),
        3 => n().prop_map(Act::Succeed),
        3 => (n(), 0..CODES.len()).prop_map(|(pod, code)| Act::Fail(pod, code)),
        2 => n().prop_map(Act::FinishDeletion),
        12 => n().prop_map(Act::Plan),
        16 => (n(), n(), fortune).prop_map(|(owner, which, fortune)| Act::Execute(owner, which, fortune)),
        16 => (n(), n()).prop_map(|(owner, which)| Act::Hear(owner, which)),
        10 => (n(), n()).prop_map(|(owner, events)| Act::WatchPods(owner, events)),
        6 => n().prop_map(Act::WatchJob),
        1 => n().prop_map(Act::Crash),
        1 => (n(), n()).prop_map(|(owner, which)| Act::ArriveLate(owner, which)),
        6 => prop_oneof![Just(5), Just(120), Just(1100), Just(11_000)].prop_map(Act::Pass),
    ]
}

/// Acts of users.
pub(super) fn user_act() -> impl Strategy<Value = Act> {
    let n = || 0usize..8;
    prop_oneof![
        8 => n().prop_map(Act::Delete),
        2 => n().prop_map(Act::StripFinalizer),
        2 => n().prop_map(Act::StripIndex),
        2 => (0u32..8).prop_map(Act::Foreign),
        4 => (0u32..6).prop_map(Act::Parallelism),
        4 => any::<bool>().prop_map(Act::Suspend),
        4 => (0u32..6).prop_map(Act::Resize),
        1 => Just(Act::DeleteJob),
    ]
}

/// Small Jobs of every kind.
pub(super) fn jobs() -> impl Strategy<Value = Job> {
    let completion = prop_oneof![
        1 => Just(Completion::WorkQueue),
        2 => (0u32..6).prop_map(Completion::Count),
        4 => (0u32..6).prop_map(Completion::Indexed),
    ];
    let backoff_limit = prop_oneof![Just(0), Just(1), Just(3), Just(1000)];
    let per_index = proptest::option::of((0u32..3, proptest::option::of(0u32..3)));
    let success = proptest::option::weighted(0.3, (proptest::option::of(0u32..4), 1u32..4));
    let flags = any::<[bool; 4]>();
    let options = (proptest::option::weighted(0.4, 0u32..3), any::<bool>());
    let deadline = proptest::option::weighted(0.2, 1u64..60);
    (completion, 0u32..5, backoff_limit, per_index, success, flags, deadline, any::<bool>(), options)
        .prop_map(
            |(
                completion,
                parallelism,
                backoff_limit,
                per_index,
                success,
                flags,
                deadline,
                suspend,
                options,
            )| {
                let [policy, only_failed, on_failure, starts_suspended] = flags;
                let mut job = job(completion, parallelism);
                (job.options.failed_pods_limit, job.options.prune_succeeded) = options;
                with(job, |spec| {
                    spec.backoff_limit = backoff_limit;
                    spec.active_deadline = deadline.map(Duration::from_secs);
                    spec.suspend = suspend && starts_suspended;
                    spec.replace_only_failed = policy || only_failed;
                    spec.template = template(if on_failure && !policy { "OnFailure" } else { "Never" });
                    if completion.indexes().is_some() {
                        spec.per_index = per_index.map(|(backoff_limit, max_failed_indexes)| PerIndexLimit {
                            backoff_limit,
                            max_failed_indexes,
                        });
                        spec.success_policy = success.into_iter().map(success_rule).collect();
                    }
                    spec.pod_failure_policy = policy.then(|| failure_rules(spec.per_index.is_some()));
                })
            },
        )
}

/// The same, with pods that are replaced together.
pub(super) fn jobs_that_restart() -> impl Strategy<Value = Job> {
    let restarts = (proptest::option::weighted(0.7, 0u32..4), any::<bool>());
    (jobs(), restarts).prop_map(|(mut job, (most, keeps))| {
        let options = &mut *job.options;
        (options.restart_together, options.max_restarts, options.restart_keep_succeeded) =
            (true, most, keeps);
        job
    })
}

/// Users delete pods.
pub(super) fn deletion() -> impl Strategy<Value = Act> {
    (0usize..8).prop_map(Act::Delete)
}

fn success_rule((listed, count): (Option<u32>, u32)) -> SuccessRule {
    SuccessRule { indexes: listed.map(|last| Some(IndexSet::below(last + 1))), count: Some(count) }
}

fn failure_rules(per_index: bool) -> Vec<PodFailureRule> {
    use PodFailureAction::{FailIndex, FailJob, Ignore};
    let third = if per_index { FailIndex } else { Ignore };
    let rule = |(action, code): (PodFailureAction, i32)| PodFailureRule {
        action,
        on: PodFailurePattern::ExitCodes { container: None, inside: true, values: [code].into() },
    };
    [(FailJob, 42), (Ignore, 43), (third, 44)].into_iter().map(rule).collect()
}

/// Settings with limits small enough to be reached.
pub(super) fn limits() -> impl Strategy<Value = Limits> {
    (prop_oneof![Just(1usize), Just(2), Just(500)], prop_oneof![Just(1usize), Just(3), Just(500)]).prop_map(
        |(max_uncounted_pods, max_pods_per_sync)| Limits {
            max_uncounted_pods,
            max_pods_per_sync,
            ..Limits::default()
        },
    )
}

impl World {
    fn choose(&self, which: usize, eligible: impl Fn(&Pod) -> bool) -> Option<Uid> {
        let pods: Vec<&Pod> = self.pods.values().filter(|pod| eligible(pod)).collect();
        Some(pods.get(which % pods.len().max(1))?.uid.clone())
    }

    /// A pod fails with an exit code.
    pub(super) fn fail_pod(&mut self, uid: &Uid, exit_code: i32) {
        let exit = ContainerExit { name: "main".into(), exit_code, out_of_memory: false };
        let outcome = Box::new(Outcome { containers: vec![exit], ..Outcome::default() });
        let now = self.now;
        self.change_pod(uid, |pod| {
            pod.phase = Phase::Failed;
            pod.ready_since = None;
            pod.finished = now.into();
            pod.outcome = Some(outcome);
        });
    }

    fn change(&mut self, which: usize, eligible: impl Fn(&Pod) -> bool, change: impl FnOnce(&mut Pod)) {
        if let Some(uid) = self.choose(which, eligible) {
            self.change_pod(&uid, change);
        }
    }

    /// Applies an act to the world and to the owners of the Job.
    pub(super) fn act(&mut self, act: Act, owners: &mut [Owner]) {
        let now = self.now;
        let runs = |pod: &Pod| pod.phase == Phase::Running;
        let count = owners.len();
        match act {
            Act::Run(which) => self.change(
                which,
                |pod| pod.phase == Phase::Pending && !pod.deleting,
                |pod| {
                    pod.phase = if pod.scheduled { Phase::Running } else { Phase::Pending };
                    pod.scheduled = true;
                },
            ),
            Act::Ready(which) => self.change(which, runs, |pod| pod.ready_since = Some(now.into())),
            Act::Restart(which) => self.change(which, runs, |pod| {
                pod.restarts += 1;
                pod.max_restarts.containers += 1;
            }),
            Act::Succeed(which) => {
                if let Some(uid) = self.choose(which, runs) {
                    self.end_pod(&uid, Phase::Succeeded);
                }
            }
            Act::Fail(which, code) => {
                if let Some(uid) = self.choose(which, runs) {
                    self.fail_pod(&uid, CODES[code]);
                }
            }
            Act::FinishDeletion(which) => {
                if let Some(uid) = self.choose(which, |pod| pod.deleting) {
                    self.finish_deletion(&uid);
                }
            }
            Act::Delete(which) => {
                if let Some(uid) = self.choose(which, |_| true) {
                    self.delete(&uid);
                }
            }
            Act::StripFinalizer(which) => {
                if let Some(uid) = self.choose(which, |_| true) {
                    self.strip(&uid);
                }
            }
            Act::StripIndex(which) => self.change(which, |_| true, |pod| pod.index = None),
            Act::Foreign(index) => {
                let indexed = self.job.spec.completion.indexes().is_some();
                self.add_foreign_pod(indexed.then_some(index));
            }
            Act::Parallelism(parallelism) => self.change_spec(|spec| spec.parallelism = parallelism),
            Act::Suspend(suspend) => self.change_spec(|spec| spec.suspend = suspend),
            Act::Resize(size) if self.job.spec.completion.indexes().is_some() => self.change_spec(|spec| {
                spec.completion = Completion::Indexed(size);
                spec.parallelism = size;
            }),
            Act::Resize(_) => {}
            Act::DeleteJob => self.delete_job(),
            Act::Plan(owner) => _ = owners[owner % count].plan(self),
            Act::Execute(owner, which, fortune) => owners[owner % count].execute(self, which, fortune),
            Act::Hear(owner, which) => owners[owner % count].hear(self, which),
            Act::WatchPods(owner, events) => owners[owner % count].watch_pods(self, events),
            Act::WatchJob(owner) => owners[owner % count].watch_job(self),
            Act::Crash(owner) => owners[owner % count].crash(self),
            Act::ArriveLate(owner, which) => owners[owner % count].arrive_late(self, which),
            Act::Pass(milliseconds) => self.pass(milliseconds),
        }
    }
}
