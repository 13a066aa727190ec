//! The share of a namespace in the memory for statuses.
//!
//! A status names indexes and UIDs, as many as fit into an object. A large Job needs that, so the bound is not one of a Job:
//! the unfinished Jobs of a namespace share one. A Job that exceeds it is left alone, and keeps none of its lists.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::cluster::wire::{LONGEST_STATUSES, ObservedJob, Unserved};
use crate::job::status::JobStatus;
use crate::job::uid::Uid;

/// The lists of a status that takes less memory weigh nothing. Almost all do.
const LIGHT: usize = 16 << 10;

/// What the statuses of each namespace take.
#[derive(Debug, Default)]
pub struct StatusShares(HashMap<Arc<str>, Share>);

#[derive(Debug, Default)]
struct Share {
    /// The weight of the Jobs that are served.
    taken: usize,
    /// The Jobs that are left alone, by weight.
    left_alone: BTreeSet<(usize, Uid)>,
}

impl StatusShares {
    /// Enters a Job of this controller. If its lists exceed the share of its namespace, it drops them, and is left alone.
    pub fn enter(&mut self, job: &mut Arc<ObservedJob>) {
        let weight = job.job.as_ref().map_or(0, |job| weight(&job.status));
        if weight == 0 {
            return;
        }
        let share = self.0.entry(job.namespace.clone()).or_default();
        if share.taken.saturating_add(weight) <= LONGEST_STATUSES {
            share.taken += weight;
        } else {
            share.left_alone.insert((weight, job.uid.clone()));
            *job = Arc::new(job.left_alone(weight));
        }
    }

    /// Takes a Job back as it was entered.
    pub fn leave(&mut self, job: &ObservedJob) {
        let Some(share) = self.0.get_mut(&job.namespace) else { return };
        match &job.job {
            Ok(job) => share.taken = share.taken.saturating_sub(weight(&job.status)),
            Err(Unserved::LongStatus { bytes, .. }) => {
                _ = share.left_alone.remove(&(*bytes, job.uid.clone()))
            }
            Err(_) => {}
        }
        if share.taken == 0 && share.left_alone.is_empty() {
            self.0.remove(&job.namespace);
        }
    }

    /// A Job of this namespace that is left alone and for which there is room now.
    pub fn fitting(&self, namespace: &str) -> Option<&Uid> {
        let share = self.0.get(namespace)?;
        let (lightest, job) = share.left_alone.first()?;
        (share.taken.saturating_add(*lightest) <= LONGEST_STATUSES).then_some(job)
    }
}

fn weight(status: &JobStatus) -> usize {
    Some(status.list_bytes()).filter(|bytes| *bytes >= LIGHT).unwrap_or(0)
}
