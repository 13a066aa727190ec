//! The memory of namespaces for statuses, policies and pod templates.
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

/// A Job that takes less memory weighs nothing, and so does a shorter template. Almost all do.
const LIGHT: usize = 1 << 10;

/// Most bytes of all namespaces together. Each may take [`LEAST`] even if these are taken. The owner of
/// a shard needs up to five times as much for statuses. For templates it needs that, too: the text,
/// and what pods share in JSON and in protobuf, each without and with an overlay.
const MOST_IN_ALL: usize = 32 << 20;

/// Most bytes of a namespace.
const MOST: usize = LONGEST_STATUSES;

/// Bytes that each namespace may always take: the status of a Job of 100,000 pods needs 550 KB at most.
const LEAST: usize = 600 << 10;

/// A namespace may take one part in this many of the bytes that other namespaces have left. So some are
/// left for the next one.
const PART: usize = 4;

/// The memory that namespaces take for the statuses, policies, selectors and templates of the Jobs that are served.
#[derive(Debug, Default)]
pub struct MemoryShares {
    statuses: Pool,
    templates: Pool,
    /// The Jobs that are left alone, by weight, of namespaces that have such.
    left_alone: HashMap<Arc<str>, BTreeSet<(usize, Uid)>>,
}

/// Memory that namespaces share.
#[derive(Debug, Default)]
struct Pool {
    in_all: usize,
    by_namespace: HashMap<Arc<str>, usize>,
}

impl Pool {
    /// Whether a namespace may take this many bytes more.
    fn has_room(&self, namespace: &str, bytes: usize) -> bool {
        let own = self.by_namespace.get(namespace).copied().unwrap_or_default();
        let left = MOST_IN_ALL.saturating_sub(self.in_all - own);
        own.saturating_add(bytes) <= (left / PART).clamp(LEAST, MOST)
    }

    /// Takes this many bytes, if there is room. Bytes that were just given back are not refused.
    fn take(&mut self, namespace: &Arc<str>, bytes: usize, given_back: usize) -> bool {
        let may = bytes <= given_back || self.has_room(namespace, bytes);
        if may && bytes > 0 {
            *self.by_namespace.entry(namespace.clone()).or_default() += bytes;
            self.in_all += bytes;
        }
        may
    }

    /// Gives bytes back that were taken.
    fn give_back(&mut self, namespace: &str, bytes: usize) {
        let Some(own) = self.by_namespace.get_mut(namespace) else { return };
        let bytes = bytes.min(*own);
        *own -= bytes;
        self.in_all -= bytes;
        if *own == 0 {
            self.by_namespace.remove(namespace);
        }
    }
}

impl MemoryShares {
    /// Enters a Job of this controller, in place of its entry `before`. If there is no room for it, it
    /// drops its lists, policies and texts, and is left alone. If there is none for its template, it
    /// drops only this. A Job that does not grow keeps its room, however much others take meanwhile.
    pub fn enter(&mut self, job: &mut Arc<ObservedJob>, before: Option<&ObservedJob>) {
        let had = before.map(|before| {
            self.leave(before);
            (before.job.as_ref().map_or(0, weight), template_weight(before))
        });
        let (had, had_template) = had.unwrap_or_default();
        if job.job.as_ref().is_ok_and(|job| weight(job) > 0 && job.status.finished().is_some())
            && let Ok(job) = &mut Arc::make_mut(job).job
        {
            job.drop_policies();
        }
        let bytes = job.job.as_ref().map_or(0, weight);
        if !self.statuses.take(&job.namespace, bytes, had) {
            let left_alone = self.left_alone.entry(job.namespace.clone()).or_default();
            left_alone.insert((bytes, job.uid.clone()));
            *job = Arc::new(job.left_alone(bytes));
            return;
        }
        if !self.templates.take(&job.namespace, template_weight(job), had_template)
            && let Ok(job) = &mut Arc::make_mut(job).job
        {
            job.drop_template();
        }
    }

    /// Takes a Job back as [`enter`](Self::enter) has left it.
    pub fn leave(&mut self, job: &ObservedJob) {
        match &job.job {
            Ok(read) => {
                self.statuses.give_back(&job.namespace, weight(read));
                self.templates.give_back(&job.namespace, template_weight(job));
            }
            Err(Unserved::LongStatus { bytes, .. }) => {
                if let Some(left_alone) = self.left_alone.get_mut(&job.namespace) {
                    left_alone.remove(&(*bytes, job.uid.clone()));
                    if left_alone.is_empty() {
                        self.left_alone.remove(&job.namespace);
                    }
                }
            }
            Err(_) => {}
        }
    }

    /// Jobs that are left alone and for which there is room now, one of each namespace.
    pub fn fitting(&self) -> impl Iterator<Item = &Uid> {
        let lightest =
            self.left_alone.iter().filter_map(|(namespace, jobs)| Some((namespace, jobs.first()?)));
        let fit = lightest.filter(|(namespace, (bytes, _))| self.statuses.has_room(namespace, *bytes));
        fit.map(|(_, (_, job))| job)
    }
}

fn weight(job: &Job) -> usize {
    Some(job.weight()).filter(|bytes| *bytes >= LIGHT).unwrap_or(0)
}

fn template_weight(job: &ObservedJob) -> usize {
    let bytes = job.job.as_ref().map_or(0, |job| job.spec.template.kept_bytes());
    Some(bytes).filter(|bytes| *bytes >= LIGHT).unwrap_or(0)
}
