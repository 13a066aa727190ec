//! The scheduler of the one node: which of the waiting pods start, and why the others do not.
//!
//! The code is pure: what the node has, what pods ask for and when they end are told to it.

mod amounts;
mod constraints;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;

pub(super) use self::amounts::Amounts;
use self::constraints::{Mismatch, Neighbour};
pub(super) use self::constraints::{NodeView, unmet};
use super::host_ports;
use super::pod::{Pod, PodKey, PodSpec};

/// The result of preemption for a pod that others could make room for: no pod is evicted here.
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
/// Number of pods that wait for others to end of which one decision takes note.
const LOOKED_AT: usize = 1000;

/// The place of a pod among those that wait: by priority, then by the age of its owner's first pod, then as they came.
type Turn = (Reverse<i32>, (Timestamp, u64), u64);

/// The pods of one owner, such as a Job, that wait or have a place.
#[derive(Debug)]
struct Family {
    /// Creation and arrival of the first.
    age: (Timestamp, u64),
    pods: usize,
}

/// A pod that waits or runs.
#[derive(Debug)]
struct Candidate {
    key: PodKey,
    /// The UID of the object that controls it.
    owner: Option<String>,
    spec: PodSpec,
    asked: Amounts,
    neighbour: Neighbour,
}

/// Why a pod does not start, in the words of Kubernetes' scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unschedulable {
    pub(super) key: PodKey,
    pub(super) message: String,
}

/// The pods that wait and run on the node.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    node: NodeView,
    waiting: BTreeMap<Turn, Candidate>,
    turns: HashMap<String, Turn>,
    /// Pods that have a place, by UID.
    placed: HashMap<String, Candidate>,
    /// The pods among them that exclude others.
    excluding: HashSet<String>,
    used: Amounts,
    /// By the UIDs of owners.
    families: HashMap<String, Family>,
    /// Number of pods that have ever waited.
    arrivals: u64,
}

impl Scheduler {
    /// The offers of the node from now on.
    pub(super) fn node(&mut self, node: NodeView) {
        self.node = node;
    }

    /// A pod that waits for a place. Returns whether it is new.
    pub(super) fn wait(&mut self, key: PodKey, pod: &Pod) -> bool {
        if self.turns.contains_key(&key.uid) || self.placed.contains_key(&key.uid) {
            return false;
        }
        let priority = pod.spec.priority.unwrap_or_default();
        let candidate = Candidate::new(key, pod);
        let turn = (Reverse(priority), self.enter(&candidate, pod), self.arrivals);
        self.turns.insert(candidate.key.uid.clone(), turn);
        self.waiting.insert(turn, candidate);
        true
    }

    /// A pod that has a place, from any scheduler.
    pub(super) fn place(&mut self, key: PodKey, pod: &Pod) {
        self.withdraw(&key.uid);
        if !self.placed.contains_key(&key.uid) {
            let candidate = Candidate::new(key, pod);
            self.enter(&candidate, pod);
            self.take(candidate);
        }
    }

    /// A pod that waits no longer. Returns whether it did.
    pub(super) fn withdraw(&mut self, uid: &str) -> bool {
        let withdrawn = self.turns.remove(uid).and_then(|turn| self.waiting.remove(&turn));
        if let Some(candidate) = &withdrawn {
            self.exit(candidate);
        }
        withdrawn.is_some()
    }

    /// Only these pods still wait, of those that wait.
    pub(super) fn retain(&mut self, uids: &HashSet<String>) {
        let gone: Vec<_> = self.turns.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        for uid in gone {
            self.withdraw(&uid);
        }
    }

    /// The place of a pod is free again.
    pub(super) fn leave(&mut self, uid: &str) {
        self.excluding.remove(uid);
        if let Some(left) = self.placed.remove(uid) {
            self.used.subtract(&left.asked);
            self.exit(&left);
        }
    }

    /// Counts a pod among those of its owner, and returns its age, which is that of the first of them. So a pod in
    /// the place of a failed one does not begin to wait behind pods that came later.
    fn enter(&mut self, candidate: &Candidate, pod: &Pod) -> (Timestamp, u64) {
        let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |created| created.0);
        self.arrivals += 1;
        let age = (created, self.arrivals);
        match &candidate.owner {
            Some(owner) => {
                let family = self.families.entry(owner.clone()).or_insert(Family { age, pods: 0 });
                family.pods += 1;
                family.age = family.age.min(age);
                family.age
            }
            None => age,
        }
    }

    fn exit(&mut self, candidate: &Candidate) {
        let Some(owner) = &candidate.owner else { return };
        if let Some(family) = self.families.get_mut(owner) {
            family.pods -= 1;
            if family.pods == 0 {
                self.families.remove(owner);
            }
        }
    }

    /// Gives places to all pods that may start now. A pod passes one that waits only if it takes nothing that this one waits
    /// for.
    pub(super) fn start(&mut self) -> Vec<PodKey> {
        let mut starting = Vec::new();
        self.walk(|turn, verdict| {
            if verdict.is_ok() {
                starting.push(*turn);
            }
        });
        let mut keys = Vec::new();
        for turn in starting {
            let Some(candidate) = self.waiting.remove(&turn) else { continue };
            // Of pods that exclude each other, the first has a place now.
            if self.mismatch(&candidate).is_err() {
                self.waiting.insert(turn, candidate);
                continue;
            }
            self.turns.remove(&candidate.key.uid);
            keys.push(candidate.key.clone());
            self.take(candidate);
        }
        keys
    }

    /// Why the pods that wait do not start, for those that are looked at.
    pub(super) fn explain(&self) -> Vec<Unschedulable> {
        let mut explained = Vec::new();
        self.walk(|turn, verdict| {
            if let (Err(reasons), Some(candidate)) = (verdict, self.waiting.get(turn)) {
                explained.push(Unschedulable { key: candidate.key.clone(), message: reasons.message() });
            }
        });
        explained
    }

    /// Looks at pods that wait, in their order, as long as there is a place for one more.
    fn walk(&self, mut tell: impl FnMut(&Turn, Result<(), Reasons>)) {
        // The amounts in use, and those that pods will use that wait.
        let mut taken = self.used.clone();
        let mut held_up = 0;
        for (turn, candidate) in &self.waiting {
            if let Err(mismatch) = self.mismatch(candidate) {
                tell(turn, Err(Reasons::Mismatch(mismatch)));
                continue;
            }
            let asked = &candidate.asked;
            let lacking = asked.lacking(&taken, &self.node.total);
            if lacking.is_empty() {
                taken.add(asked);
            } else if asked.lacking(&Amounts::default(), &self.node.total).is_empty() {
                // A lack of the whole node holds up no other pod, and a pod that waits takes no place.
                taken.add(&asked.without(amounts::PODS));
                held_up += 1;
            }
            let is_full = taken.exhausts(&self.node.total, amounts::PODS);
            tell(turn, if lacking.is_empty() { Ok(()) } else { Err(Reasons::Lacking(lacking)) });
            if is_full || held_up == LOOKED_AT {
                return;
            }
        }
    }

    fn mismatch(&self, candidate: &Candidate) -> Result<(), Mismatch> {
        let Candidate { spec, neighbour, .. } = candidate;
        let all = self.placed.values().map(|placed| &placed.neighbour);
        let excluding = self.excluding.iter().filter_map(|uid| self.placed.get(uid));
        let excluding = excluding.map(|placed| (&placed.neighbour, &placed.spec));
        constraints::check(spec, neighbour, &self.node, all, excluding)
    }

    fn take(&mut self, candidate: Candidate) {
        if constraints::excludes_others(&candidate.spec) {
            self.excluding.insert(candidate.key.uid.clone());
        }
        self.used.add(&candidate.asked);
        self.placed.insert(candidate.key.uid.clone(), candidate);
    }
}

impl Candidate {
    fn new(key: PodKey, pod: &Pod) -> Self {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone());
        let neighbour =
            Neighbour { namespace: key.namespace.clone(), labels, host_ports: host_ports::of(&pod.spec) };
        Self { key, owner, asked: Amounts::of_pod(&pod.spec), spec: constraints::kept(&pod.spec), neighbour }
    }
}

/// Why a pod does not start.
enum Reasons {
    /// The node is not as it wants.
    Mismatch(Mismatch),
    /// Resources of which there is not enough.
    Lacking(Vec<String>),
}

impl Reasons {
    fn message(&self) -> String {
        let (reasons, preemption) = match self {
            Self::Mismatch(Mismatch::HostPorts) => (vec![Mismatch::HostPorts.to_string()], NO_VICTIMS),
            Self::Mismatch(mismatch) => {
                (vec![mismatch.to_string()], "Preemption is not helpful for scheduling")
            }
            Self::Lacking(names) => {
                let reason = |name: &String| match name.as_str() {
                    amounts::PODS => "Too many pods".to_owned(),
                    name => format!("Insufficient {name}"),
                };
                let reasons = names.iter().map(reason).collect();
                (reasons, NO_VICTIMS)
            }
        };
        let reasons: Vec<_> = reasons.iter().map(|reason| format!("1 {reason}")).collect();
        format!(
            "0/1 nodes are available: {}. preemption: 0/1 nodes are available: 1 {preemption}.",
            reasons.join(", ")
        )
    }
}

#[cfg(test)]
mod tests;
