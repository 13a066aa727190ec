//! Requests about the Job itself: its status, live reads, and its deletion after the TTL.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::Requests;
use crate::actors::jobs::ttl_deletion::{Expiry, delete_expired};
use crate::actors::messages::job_input::JobInput;
use crate::actors::supervision::Fatal;
use crate::cluster::gate::{Answer, Priority, Reservation, Turn, Write, WriteError};
use crate::cluster::wire::{ObservedJob, status_patch};
use crate::job::plan::{StatusWrite, Urgency};
use crate::job::status::JobStatus;

impl Requests {
    /// Asks for the turn of a status.
    pub fn reserve_status(&self, urgency: Urgency) -> Reservation {
        self.cx.gate.reserve_status(&self.order(status_priority(urgency)), self.job.namespace().clone())
    }

    /// Puts a turn into the inbox when it comes, unless the handle is dropped before.
    pub fn await_turn(&self, reservation: Reservation) -> AbortOnDropHandle<()> {
        let inbox = self.inbox.clone();
        let waiting = self
            .guarded(async move { inbox.push_urgent(JobInput::StatusTurn(reservation.wait().await.ok())) });
        AbortOnDropHandle::new(self.cx.runtime.spawn(waiting))
    }

    /// Writes the status of the Job in its turn, unless the Job has changed since it was `seen`.
    pub fn write_status(
        self: &Arc<Self>,
        turn: Turn,
        seen: Arc<ObservedJob>,
        old: &JobStatus,
        write: &StatusWrite,
    ) {
        let status = write.status.clone();
        // Its turn has come. If the API server turns it away unread, writes that depend on it must not wait
        // behind others.
        let order = self.order(Priority::Status);
        let body = status_patch(old, &status, &seen.version);
        let write = Write::PatchJobStatus {
            namespace: self.job.namespace().clone(),
            name: self.job.name().clone(),
            body,
        };
        let written = self.cx.gate.submit_in(turn, order, write, self.trace.calls());
        let this = self.clone();
        self.run(async move {
            match written.await {
                // A webhook that undoes the whole change leaves the version as it was.
                Ok(Answer::Version(version)) if version.order() > seen.version.order() => {
                    JobInput::StatusWritten(Some(Arc::new(seen.with_status(version, status))))
                }
                Ok(_) => JobInput::StatusWritten(None),
                Err(WriteError::Conflict(_)) => {
                    let read = this.read_job().await;
                    read.iter().for_each(|read| this.compare(&seen, read));
                    JobInput::StatusConflict { sent: seen.version.order(), read }
                }
                Err(refusal) => {
                    log_job!(warn, this.name(), %refusal, "status not written");
                    JobInput::StatusWritten(None)
                }
            }
        });
    }

    /// Compares the Job, as known before a live read was sent, with the result of that read. The knowledge
    /// of a lost shard says nothing.
    fn compare(&self, known: &ObservedJob, read: &ObservedJob) {
        let is_older = known.uid == read.uid && read.version.order() < known.version.order();
        if is_older && !self.fence.is_closed() {
            log_job!(warn, self.name(), "a live read shows an older version than was known");
            self.cx.downfall.cause(Fatal::VersionsWentBack);
        }
    }

    async fn read_job(&self) -> Option<Arc<ObservedJob>> {
        self.cx.reads.find_job(&self.job).await.ok().flatten()
    }

    /// Reads the Job live. Retries until an answer has its status, or the actor's right has ended.
    pub fn read(self: &Arc<Self>) {
        let this = self.clone();
        self.run(async move {
            let mut backoff = this.cx.api_backoff();
            loop {
                match this.cx.reads.find_job(&this.job).await {
                    Ok(job) if job.as_ref().is_none_or(|job| job.job.is_ok()) => return JobInput::Read(job),
                    _ if this.fence.is_closed() => return JobInput::Unread,
                    // The known Job is in doubt, and this does not settle it.
                    Ok(_) => log_job!(warn, this.name(), "a Job that cannot be served was read"),
                    Err(error) => log_job!(warn, this.name(), %error, "a Job was not read"),
                }
                tokio::select! {
                    () = backoff.pause() => {}
                    () = this.fence.closed() => return JobInput::Unread,
                }
            }
        });
    }

    /// Reads the spec of the Job's pod template in protobuf. It is optional: no task waits for the answer.
    pub fn read_pod_spec(self: &Arc<Self>) {
        let this = self.clone();
        self.run_after(async move {
            let read = this.cx.reads.pod_spec(&this.job).await;
            if let Err(error) = &read {
                log_job!(debug, this.name(), %error, "pods are created in JSON");
            }
            match read {
                Ok(None) => {}
                read => this.inbox.push(JobInput::PodSpec(read.ok().flatten())),
            }
        });
    }

    /// Deletes the Job, last observed as `seen`, with its pods if its TTL has expired.
    pub fn delete_job(self: &Arc<Self>, seen: Arc<ObservedJob>) {
        let (this, answer) = (self.clone(), self.inbox.promise());
        self.spawn(async move {
            match delete_expired(&this.cx, &seen, |write| this.submit(Priority::Delete, write)).await {
                Ok(Expiry::Deleted | Expiry::Gone) => {}
                Ok(Expiry::NotDue(job)) => {
                    this.compare(&seen, &job);
                    answer.keep(JobInput::DeletionNotDue(job));
                }
                Err(refusal) => {
                    log_job!(warn, this.name(), %refusal, "a Job that has outlived its TTL was not deleted");
                    answer.keep(JobInput::DeletionRefused);
                }
            }
        });
    }
}

fn status_priority(urgency: Urgency) -> Priority {
    match urgency {
        Urgency::Progress => Priority::Progress,
        Urgency::Step => Priority::Status,
    }
}
