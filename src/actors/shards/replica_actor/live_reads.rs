//! Jobs of which a list or a watch says that they are gone, or shows something that cannot be read or kept. Nothing is
//! released for a Job before a live read has shown that it does not exist.

use std::sync::Arc;
use std::time::Instant;

use actix::{AsyncContext, Context, Handler, Message};
use tokio_util::task::AbortOnDropHandle;

use super::ReplicaActor;
use crate::cluster::events::{Event, EventType};
use crate::cluster::reads::ReadError;
use crate::cluster::wire::{ObservedJob, Unreadable};
use crate::job::job_id::JobId;
use crate::job::uid::{Uid, UidMap, UidSet};

/// The Jobs that are being read live.
#[derive(Default)]
pub(super) struct LiveJobReads {
    /// Jobs that seem to be gone.
    missing: UidSet,
    /// Jobs that could not be read, or were left alone and may be served now.
    unreadable: UidMap<AbortOnDropHandle<()>>,
}

impl LiveJobReads {
    /// The Job was shown in a form that can be read, or is gone: a reading in flight may be older than that.
    pub(super) fn end_reading(&mut self, job: &Uid) {
        self.unreadable.remove(job);
    }
}

/// A Job that could not be read, as it is now; `None` if it does not exist any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct JobReadable {
    job: JobId,
    found: Option<Arc<ObservedJob>>,
}

/// Whether a Job exists that seemed to be gone.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct JobSought {
    job: JobId,
    exists: bool,
}

impl ReplicaActor {
    /// Records a Job that exists and cannot be read: it stays as it was.
    pub(super) fn job_unreadable(&mut self, job: &Unreadable, ctx: &Context<Self>) {
        self.job_cache.mark(&job.uid);
        if !self.live_reads.unreadable.contains_key(&job.uid) {
            self.read_again(job.as_job(), ctx);
        }
        let manages = |job: &Arc<ObservedJob>| self.cx.config.manages(job.managed_by.as_deref());
        let ours = self.job_cache.get(&job.uid).map_or(self.cx.config.replaces_built_in(), manages);
        let shard = self.shards.get_mut(&self.cx.config.shards.shard_of(&job.uid.to_string()));
        if ours && shard.is_some_and(|shard| shard.skipped.insert(job.uid.clone())) {
            self.cx.recorder.record(Event {
                about: job.as_job(),
                kind: EventType::Warning,
                reason: "UnreadableJob".into(),
                message: format!("The Job cannot be read, and stays as it was last seen: {}", job.error)
                    .into(),
                at: self.cx.clock.now(),
                must: false,
            });
        }
    }

    /// Reads Jobs again that were left alone, if there is room for their statuses, which were not kept.
    pub(super) fn look_at_left_alone(&mut self, ctx: &Context<Self>) {
        let is_new = |job: &JobId| !self.live_reads.unreadable.contains_key(job.uid());
        let fitting: Vec<JobId> = self.job_cache.fitting().filter(is_new).collect();
        fitting.into_iter().for_each(|job| self.read_again(job, ctx));
    }

    fn read_again(&mut self, job: JobId, ctx: &Context<Self>) {
        let (cx, this, uid) = (self.cx.clone(), ctx.address(), job.uid().clone());
        let task = self.unit.spawn("a reading of a Job", async move {
            let read = || cx.reads.find_job(&job);
            let found = cx.read_retries.until_readable(job.namespace(), cx.api_backoff(), read).await;
            this.do_send(JobReadable { job, found });
        });
        self.live_reads.unreadable.insert(uid, AbortOnDropHandle::new(task));
    }

    /// A watch or a list says that a Job does not exist any more. If pods may be released because of that, it
    /// is read live first.
    pub(super) fn job_missing(&mut self, job: JobId, ctx: &Context<Self>) {
        let Some(known) = self.job_cache.get(job.uid()) else { return self.job_gone(job, ctx) };
        let shard = self.cx.config.shards.shard_of(&job.uid().to_string());
        let unfinished = known.may_have_pods().is_some_and(|job| job.status.finished().is_none());
        let matters = unfinished
            && self.shards.contains_key(&shard)
            && self.cx.config.manages(known.managed_by.as_deref());
        if !matters {
            return self.job_gone(job, ctx);
        }
        if !self.live_reads.missing.insert(job.uid().clone()) {
            return;
        }
        let (cx, this) = (self.cx.clone(), ctx.address());
        self.unit.spawn("a search for a missing Job", async move {
            let mut backoff = cx.api_backoff();
            let exists = loop {
                match cx.reads.find_job(&job).await {
                    Ok(found) => break found.is_some(),
                    Err(ReadError::Unreadable(_)) => break true,
                    Err(error) => tracing::warn!(job = %job.uid(), %error, "cannot read a missing Job"),
                }
                backoff.pause().await;
            };
            this.do_send(JobSought { job, exists });
        });
    }
}

impl Handler<JobReadable> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, JobReadable { job, found }: JobReadable, ctx: &mut Self::Context) {
        if self.live_reads.unreadable.remove(job.uid()).is_none() {
            return;
        }
        match found {
            Some(found) => self.job_seen(found, Instant::now(), ctx),
            None => self.job_missing(job, ctx),
        }
    }
}

impl Handler<JobSought> for ReplicaActor {
    type Result = ();

    fn handle(&mut self, JobSought { job, exists }: JobSought, ctx: &mut Self::Context) {
        if self.live_reads.missing.remove(job.uid()) && !exists {
            self.job_gone(job, ctx);
        }
    }
}
