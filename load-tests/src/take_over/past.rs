//! The objects that the built-in controller leaves: Jobs in all states of their counting, and pods without
//! any mark of Yardmaster.

use serde_json::{Value, json};

/// The tracking finalizer of the built-in controller.
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The kinds of Jobs, one after the other.
const KINDS: [Kind; 7] = [
    Kind::NonIndexed,
    Kind::Indexed,
    Kind::PerIndex,
    Kind::ReplaceFailed,
    Kind::WorkQueue,
    Kind::OwnSelector,
    Kind::FailurePolicy,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NonIndexed,
    Indexed,
    /// Indexed, with `backoffLimitPerIndex`.
    PerIndex,
    /// `podReplacementPolicy: Failed`.
    ReplaceFailed,
    /// Without completions.
    WorkQueue,
    /// `manualSelector`: the pods do not carry the UID of their Job.
    OwnSelector,
    /// Indexed, with a `podFailurePolicy`.
    FailurePolicy,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Counted, and without finalizer.
    Counted,
    /// Succeeded; the status records that, but does not count it yet.
    Recorded,
    /// Succeeded, and not yet seen by a controller.
    Ended,
    /// Running.
    Running,
}

/// A Job and its pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    number: u32,
    pub(crate) running: u32,
    finished: u32,
    uncounted: u32,
}

impl Past {
    /// The Jobs that share these numbers of pods.
    pub(crate) fn of(jobs: u32, [running, finished, uncounted]: [u32; 3]) -> Vec<Self> {
        let share = |all: u32, number: u32| all / jobs + u32::from(number < all % jobs);
        let job = |number| Self {
            number,
            running: share(running, number),
            finished: share(finished, number),
            uncounted: share(uncounted, number),
        };
        (0..jobs).map(job).collect()
    }

    fn kind(&self) -> Kind {
        KINDS[self.number as usize % KINDS.len()]
    }

    fn is_indexed(&self) -> bool {
        matches!(self.kind(), Kind::Indexed | Kind::PerIndex | Kind::FailurePolicy)
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        format!("past-{}", self.number)
    }

    /// Number of its pods: all that it wants.
    pub(crate) fn pods(&self) -> u32 {
        self.running + self.finished + self.uncounted
    }

    /// How many of them have succeeded.
    pub(crate) fn succeeded(&self) -> u32 {
        self.finished + self.uncounted
    }

    /// How far the pod of this number is.
    pub(crate) fn stage(&self, pod: u32) -> Stage {
        match pod {
            pod if pod < self.finished => Stage::Counted,
            pod if pod < self.finished + self.uncounted / 2 => Stage::Recorded,
            pod if pod < self.succeeded() => Stage::Ended,
            _ => Stage::Running,
        }
    }

    /// The Job.
    pub(crate) fn job(&self) -> Value {
        let name = self.name();
        let mut spec = json!({
            "parallelism": self.running, "completions": self.pods(), "backoffLimit": 1000,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
            },
        });
        if self.is_indexed() {
            spec["completionMode"] = "Indexed".into();
        }
        match self.kind() {
            Kind::NonIndexed | Kind::Indexed => {}
            Kind::PerIndex => {
                spec.as_object_mut().map(|spec| spec.remove("backoffLimit"));
                spec["backoffLimitPerIndex"] = 1.into();
            }
            Kind::ReplaceFailed => spec["podReplacementPolicy"] = "Failed".into(),
            Kind::WorkQueue => _ = spec.as_object_mut().map(|spec| spec.remove("completions")),
            Kind::OwnSelector => {
                spec["manualSelector"] = true.into();
                spec["selector"] = json!({"matchLabels": {"app": name}});
            }
            Kind::FailurePolicy => {
                spec["podFailurePolicy"] = json!({"rules": [
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                ]});
            }
        }
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    }

    /// The pod of this number, as the built-in controller makes it.
    pub(crate) fn pod(&self, number: u32, job: &str) -> Value {
        let name = self.name();
        let mut labels = json!({"app": name});
        if self.kind() != Kind::OwnSelector {
            for (key, value) in [("controller-uid", job), ("job-name", &*name)] {
                labels[key] = value.into();
                labels[format!("batch.kubernetes.io/{key}")] = value.into();
            }
        }
        let mut annotations = json!({});
        let mut pod = format!("{name}-{number:05}");
        if self.is_indexed() {
            let index = "batch.kubernetes.io/job-completion-index";
            (labels[index], annotations[index]) = (number.to_string().into(), number.to_string().into());
            pod = format!("{name}-{number}-aaaaa");
        }
        let finalizers = if self.stage(number) == Stage::Counted { json!([]) } else { json!([FINALIZER]) };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": pod, "labels": labels, "annotations": annotations, "finalizers": finalizers,
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
        })
    }

    /// The status that the built-in controller has written last. `recorded`: UIDs of the pods in
    /// [`Stage::Recorded`].
    pub(crate) fn status(&self, recorded: &[String]) -> Value {
        let unnoticed = self.uncounted - self.uncounted / 2;
        let mut status = json!({
            "startTime": jiff::Timestamp::now().to_string(), "active": self.running + unnoticed, "ready": 0,
            "terminating": 0, "succeeded": self.finished, "uncountedTerminatedPods": {},
        });
        if self.is_indexed() {
            let known = self.finished + self.uncounted / 2;
            status["succeeded"] = known.into();
            status["completedIndexes"] = match known {
                0 => "".into(),
                1 => "0".into(),
                known => format!("0-{}", known - 1).into(),
            };
        } else {
            status["uncountedTerminatedPods"] = json!({"succeeded": recorded});
        }
        json!({"status": status})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_all_pods_and_each_pod_is_in_one_stage() {
        let jobs = Past::of(50, [10_000, 2_003, 1_001]);
        assert_eq!(jobs.iter().map(Past::pods).sum::<u32>(), 13_004);
        let mut stages = [0; 4];
        for job in &jobs {
            (0..job.pods()).for_each(|pod| stages[job.stage(pod) as usize] += 1);
        }
        assert_eq!((stages[0], stages[1] + stages[2], stages[3]), (2_003, 1_001, 10_000));
        assert!(
            jobs[1].status(&[])["status"]["completedIndexes"].as_str().is_some_and(|i| i.starts_with("0-"))
        );
    }
}
