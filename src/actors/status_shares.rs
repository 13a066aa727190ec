//! The share of a namespace in the memory for statuses, policies and pod templates.
//!
//! A status names indexes and UIDs, as many as fit into an object. A large Job needs that, so the bound is not one of a Job:
//! the unfinished Jobs of a namespace share one. A Job that exceeds it is left alone, and keeps none of its lists.
//!
//! Policies and conditions have bounds for each Job, too. They share the same bound, since there may be very many Jobs.
//!
//! Templates share a bound of their own. A Job that exceeds it is served: it is read again when its pods are made.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::cluster::wire::{LONGEST_STATUSES, ObservedJob, Unserved};
use crate::job::spec::Job;
use crate::job::uid::Uid;

/// A Job that takes less memory weighs nothing. Almost all do.
const LIGHT: usize = 1 << 10;

/// Most bytes of the texts of the templates of a namespace's Jobs. Once pods are made, each takes as much again for what all its
/// pods share, and in protobuf once more.
const LONGEST_TEMPLATES: usize = 8 << 20;

/// A shorter template weighs nothing.
const LIGHT_TEMPLATE: usize = 1 << 10;

/// The memory that each namespace takes for the statuses, policies, selectors and templates of its Jobs.
#[derive(Debug, Default)]
pub struct StatusShares(HashMap<Arc<str>, Share>);

#[derive(Debug, Default)]
struct Share {
    /// The weight of the Jobs that are served.
    taken: usize,
    /// The weight of the templates that are kept.
    templates: usize,
    /// The Jobs that are left alone, by weight.
    left_alone: BTreeSet<(usize, Uid)>,
}

impl StatusShares {
    /// Enters a Job of this controller. If it exceeds the share of its namespace, it drops its lists, policies and texts, and is
    /// left alone. If its template exceeds that of templates, it drops only this.
    pub fn enter(&mut self, job: &mut Arc<ObservedJob>) {
        if job.job.as_ref().is_ok_and(|job| weight(job) > 0 && job.status.finished().is_some())
            && let Ok(job) = &mut Arc::make_mut(job).job
        {
            job.drop_policies();
        }
        let template = template_weight(job);
        let weight = job.job.as_ref().map_or(0, weight);
        if weight + template == 0 {
            return;
        }
        let share = self.0.entry(job.namespace.clone()).or_default();
        if share.taken.saturating_add(weight) <= LONGEST_STATUSES {
            share.taken += weight;
        } else {
            share.left_alone.insert((weight, job.uid.clone()));
            *job = Arc::new(job.left_alone(weight));
            return;
        }
        if share.templates + template <= LONGEST_TEMPLATES {
            share.templates += template;
        } else if let Ok(job) = &mut Arc::make_mut(job).job {
            job.drop_template();
        }
    }

    /// Takes a Job back as it was entered.
    pub fn leave(&mut self, job: &ObservedJob) {
        let Some(share) = self.0.get_mut(&job.namespace) else { return };
        share.templates = share.templates.saturating_sub(template_weight(job));
        match &job.job {
            Ok(job) => share.taken = share.taken.saturating_sub(weight(job)),
            Err(Unserved::LongStatus { bytes, .. }) => {
                _ = share.left_alone.remove(&(*bytes, job.uid.clone()))
            }
            Err(_) => {}
        }
        if share.taken + share.templates == 0 && share.left_alone.is_empty() {
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

fn weight(job: &Job) -> usize {
    Some(job.weight()).filter(|bytes| *bytes >= LIGHT).unwrap_or(0)
}

fn template_weight(job: &ObservedJob) -> usize {
    let bytes = job.job.as_ref().map_or(0, |job| job.spec.template.kept_bytes());
    Some(bytes).filter(|bytes| *bytes >= LIGHT_TEMPLATE).unwrap_or(0)
}
