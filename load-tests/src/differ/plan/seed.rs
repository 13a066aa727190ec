//! The plan of a seed: scenes of one or more steps each.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::jobs::{CODES, CONDITIONS, job, one};
use super::{Act, Change, End, Pick, Plan, Propagation, Step, Turn, What};

/// Every n-th plan, on average, has a Job with many pods.
const MANY: u64 = 12;
/// Every n-th plan, on average, changes controllers.
const RESTARTS: u64 = 10;
/// Longest time between two acts of a step, in milliseconds.
const GAP: u16 = 12;

/// A scene, with its weight.
const SCENES: [(Scene, u32); 17] = [
    (Scene::Change, 40),
    (Scene::Together, 18),
    (Scene::Linger, 12),
    (Scene::Delete, 9),
    (Scene::Tamper, 8),
    (Scene::Suspend, 7),
    (Scene::Parallelism, 6),
    (Scene::Elastic, 5),
    (Scene::Limits, 4),
    (Scene::PatchAndPods, 6),
    (Scene::Deadline, 2),
    (Scene::Replacement, 2),
    (Scene::Ttl, 1),
    (Scene::DeleteJob, 3),
    (Scene::Refuse, 2),
    (Scene::Quota, 2),
    (Scene::Schedule, 2),
];

#[derive(Clone, Copy)]
enum Scene {
    /// Pods of one class change.
    Change,
    /// Pods of several classes change within milliseconds.
    Together,
    /// Pods are deleted, and end together while they terminate.
    Linger,
    Delete,
    Tamper,
    Suspend,
    Parallelism,
    Elastic,
    Limits,
    /// A Job and pods change within milliseconds.
    PatchAndPods,
    Deadline,
    Replacement,
    Ttl,
    /// A Job is deleted, and perhaps created again.
    DeleteJob,
    Refuse,
    Quota,
    Schedule,
}

struct Writer {
    random: SmallRng,
    jobs: Vec<Value>,
    /// Whether each Job is suspended.
    suspended: Vec<bool>,
    steps: Vec<Step>,
}

/// The plan of a seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = SmallRng::seed_from_u64(seed);
    let many = random.random_range(0..MANY) == 0;
    let count = if many { 1 } else { one(&mut random, &[1, 1, 1, 1, 1, 1, 2, 2, 3]) };
    let jobs: Vec<Value> = (0..count).map(|_| job(&mut random, many)).collect();
    let suspended = jobs.iter().map(|job| job["suspend"] == true).collect();
    let mut writer = Writer { random, jobs, suspended, steps: Vec::new() };
    let late = count > 1 && writer.random.random_bool(0.3);
    let create = |job| Act { after_ms: 0, what: What::Create { job } };
    writer.steps.push(Step((0..count - usize::from(late)).map(create).collect()));
    let restarts = writer.random.random_range(0..RESTARTS) == 0;
    for _ in 0..writer.random.random_range(if many { 4..=7 } else { 6..=12 }) {
        let scene = writer.scene();
        writer.play(scene);
        if restarts && writer.random.random_bool(0.3) {
            let turn = one(&mut writer.random, &[Turn::Kill, Turn::Kill, Turn::Join, Turn::Leave]);
            writer.alone(What::Restart { turn });
        }
    }
    if late {
        let at = writer.random.random_range(1..=writer.steps.len().min(4));
        writer.steps.insert(at, Step(vec![create(count - 1)]));
    }
    Plan { seed, jobs: writer.jobs, steps: writer.steps }
}

impl Writer {
    fn scene(&mut self) -> Scene {
        let all: u32 = SCENES.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.random_range(0..all);
        for (scene, weight) in SCENES {
            if left < weight {
                return scene;
            }
            left -= weight;
        }
        Scene::Change
    }

    fn play(&mut self, scene: Scene) {
        let job = self.random.random_range(0..self.jobs.len());
        match scene {
            Scene::Change => {
                let what = self.live();
                self.alone(what);
            }
            Scene::Together => {
                let acts = self.ends();
                self.together(acts);
            }
            Scene::Linger => self.linger(),
            Scene::Delete => {
                let forced = self.random.random_bool(0.3);
                let what = self.any(Change::Delete { forced });
                self.alone(what);
            }
            Scene::Tamper => self.tamper(),
            Scene::Suspend | Scene::Parallelism | Scene::Elastic | Scene::Limits | Scene::Deadline => {
                let patch = self.patch(scene, job);
                self.alone(patch);
            }
            Scene::PatchAndPods => self.patch_and_pods(job),
            Scene::Replacement => {
                let policy = one(&mut self.random, &["Failed", "TerminatingOrFailed"]);
                self.alone(change(job, json!({"podReplacementPolicy": policy})));
            }
            Scene::Ttl => {
                let after = self.random.random_range(0..=2);
                self.alone(change(job, json!({"ttlSecondsAfterFinished": after})));
            }
            Scene::DeleteJob => self.delete_job(job),
            Scene::Refuse => self.between(What::Refuse { pods: true }, What::Refuse { pods: false }),
            Scene::Quota => {
                let pods = self.random.random_range(0..=6);
                self.between(What::Quota { pods: Some(pods) }, What::Quota { pods: None });
            }
            Scene::Schedule => {
                let what = self.live_with(Change::Schedule);
                self.alone(what);
            }
        }
    }

    fn alone(&mut self, what: What) {
        self.steps.push(Step(vec![Act { after_ms: 0, what }]));
    }

    /// Plays acts within milliseconds.
    fn together(&mut self, acts: Vec<What>) {
        let mut after_ms = 0;
        let close = self.random.random_bool(0.5);
        let step = acts.into_iter().enumerate().map(|(number, what)| {
            after_ms += if number == 0 || close { 0 } else { self.random.random_range(0..=GAP) };
            Act { after_ms, what }
        });
        let step = step.collect();
        self.steps.push(Step(step));
    }

    /// Some acts by which pods end, or start to run.
    fn ends(&mut self) -> Vec<What> {
        (0..self.random.random_range(2..=5)).map(|_| self.live()).collect()
    }

    fn linger(&mut self) {
        let deletions =
            (0..self.random.random_range(1..=3)).map(|_| self.live_with(Change::Delete { forced: false }));
        let deletions = deletions.collect();
        self.together(deletions);
        let ends = self.ends();
        self.together(ends);
    }

    fn tamper(&mut self) {
        let index = one(&mut self.random, &[Some("0"), Some("1"), Some("9"), Some("x"), None]);
        let changes =
            [Change::Release, Change::Disown, Change::Unlabel, Change::Index(index.map(str::to_owned))];
        let change = one(&mut self.random, &changes);
        let what = self.any(change);
        self.alone(what);
    }

    fn patch(&mut self, scene: Scene, job: usize) -> What {
        let spec = &self.jobs[job];
        let (indexed, limited) = (spec["completionMode"] == "Indexed", !spec["maxFailedIndexes"].is_null());
        let random = &mut self.random;
        let patch = match scene {
            Scene::Suspend => {
                self.suspended[job] ^= true;
                json!({"suspend": self.suspended[job]})
            }
            Scene::Elastic if indexed => {
                let size = random.random_range(1..=6);
                json!({"parallelism": size, "completions": size})
            }
            Scene::Limits => {
                let mut patch = json!({"backoffLimit": one(random, &[0, 1, 2, 6])});
                if limited {
                    patch["maxFailedIndexes"] = json!(random.random_range(0..=2));
                }
                patch
            }
            Scene::Deadline => json!({"activeDeadlineSeconds": 1}),
            _ => json!({"parallelism": random.random_range(0..=5)}),
        };
        change(job, patch)
    }

    fn patch_and_pods(&mut self, job: usize) {
        let scene =
            one(&mut self.random, &[Scene::Suspend, Scene::Parallelism, Scene::Elastic, Scene::Limits]);
        let mut acts = vec![self.patch(scene, job)];
        acts.extend((0..self.random.random_range(1..=2)).map(|_| self.live()));
        if self.random.random_bool(0.5) {
            acts.reverse();
        }
        self.together(acts);
    }

    fn delete_job(&mut self, job: usize) {
        let policies = [Propagation::Foreground, Propagation::Background, Propagation::Orphan];
        let propagation = one(&mut self.random, &policies);
        self.alone(What::Delete { job, propagation });
        if self.random.random_bool(0.5) {
            let what = self.live();
            self.alone(what);
        }
        if self.random.random_bool(0.6) {
            self.suspended[job] = self.jobs[job]["suspend"] == true;
            self.alone(What::Create { job });
        }
    }

    /// Plays some pods between two acts.
    fn between(&mut self, before: What, after: What) {
        self.alone(before);
        let acts = self.ends();
        self.together(acts);
        self.alone(after);
    }

    /// Pods that have not ended run, end, or get a condition.
    fn live(&mut self) -> What {
        let change = self.change();
        self.live_with(change)
    }

    fn live_with(&mut self, change: Change) -> What {
        What::Pods { pick: Pick::Live(self.random.random()), count: self.count(), change }
    }

    fn any(&mut self, change: Change) -> What {
        What::Pods { pick: Pick::Any(self.random.random()), count: self.count(), change }
    }

    /// How many pods of a class change, at most.
    fn count(&mut self) -> u32 {
        one(&mut self.random, &[1, 1, 2, 3, 100])
    }

    fn change(&mut self) -> Change {
        let random = &mut self.random;
        match random.random_range(0..100) {
            0..28 => Change::Run { ready: random.random_bool(0.7), restarts: one(random, &[0, 0, 0, 1, 2]) },
            28..62 => Change::Succeed(End::Past),
            62..96 => Change::Fail {
                code: one(random, &CODES),
                init: one(random, &[0, 0, 1, 42]),
                condition: random.random_bool(0.25).then(|| one(random, &CONDITIONS).to_owned()),
                end: one(random, &[End::Past, End::Past, End::Past, End::Past, End::Now, End::Unknown]),
            },
            _ => Change::Condition(one(random, &CONDITIONS).to_owned()),
        }
    }
}

fn change(job: usize, spec: Value) -> What {
    What::Patch { job, patch: json!({ "spec": spec }) }
}
