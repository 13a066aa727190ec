//! The requests of a plan: each runs on the tokio pool, and its answer comes back as an input.
//!
//! Requests are not retried here, except live reads. A request that was refused, or whose
//! answer was lost, is reported as such. The rules decide when to retry, and names, UIDs and versions in the
//! requests make a retry harmless.

mod job;
mod pods;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::task::TaskTracker;

use super::job_trace::Ownership;
use super::releases_in_flight::ReleasesInFlight;
use crate::actors::context::ReplicaContext;
use crate::actors::known_jobs::catch_up::CaughtUp;
use crate::actors::known_jobs::waiting_jobs::WaitingJobs;
use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::JobInput;
#[cfg(feature = "test-hooks")]
use crate::actors::test_hooks::Part;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::supervision::caught;
use crate::job::job_id::JobId;
use crate::job::manifest::Maker;
use crate::job::options::PodFacts;
use crate::job::overlay::Overlay;
use crate::job::pod::NewPod;
use crate::job::selector::Selector;
use crate::job::spec::Job;
use crate::job::template::TemplateError;
use crate::job::uid::Uid;
use crate::sharding::ShardId;
use crate::telemetry::traces::{JobName, JobTrace};

/// The right to create pods of a Job. Waiting creations can be withdrawn without stopping later ones.
#[derive(Debug)]
pub struct CreationRight {
    whole: Fence,
    part: Mutex<Fence>,
}

impl CreationRight {
    /// The right to write while this fence is open.
    pub fn of(fence: &Fence) -> Self {
        Self { whole: fence.clone(), part: Mutex::new(fence.part()) }
    }

    fn lock(&self) -> MutexGuard<'_, Fence> {
        // Poisoning is ignored: a fence is replaced in one step.
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right of a creation that is wanted now.
    pub fn current(&self) -> Fence {
        self.lock().clone()
    }

    /// Withdraws the creations that still wait.
    pub fn withdraw(&self) {
        std::mem::replace(&mut *self.lock(), self.whole.part()).withdraw();
    }
}

/// Sends the requests of one Job. Shared by the requests in flight.
pub struct Requests {
    /// The services of the replica.
    pub cx: ReplicaContext,
    /// The Job's shard.
    pub shard: ShardId,
    /// How often the shard has been claimed.
    pub epoch: u64,
    /// The actor's part of the right to act for the shard.
    pub fence: Fence,
    /// The right to create pods of the Job, which can be withdrawn by itself.
    pub creations: CreationRight,
    /// The shard's requests in flight.
    pub in_flight: TaskTracker,
    /// Where answers go.
    pub inbox: Inbox<JobInput>,
    /// The Job.
    pub job: JobId,
    /// Its selector. It cannot be changed, so requests that last long need no reading of the Job.
    pub selector: Arc<Selector>,
    /// Where the Job records why it waits.
    pub waits: WaitingJobs,
    /// The Job's trace.
    pub trace: JobTrace,
    /// Whether the watch has come as far as the claim on the shard. Then it shows at least all writes of the
    /// Job from before this actor began. Unknown for a Job that is rebuilt.
    pub caught_up: CaughtUp,
    /// When the shard was claimed, if the Job was taken over with it.
    pub taken_over: Option<Timestamp>,
    /// The releases of pods that the selectors of the shard's Jobs no longer select.
    pub releasing: ReleasesInFlight,
}

impl Requests {
    /// The Job's owner, in its trace.
    pub fn ownership(&self) -> Ownership {
        Ownership { shard: self.shard.0, epoch: self.epoch, taken_over: self.taken_over }
    }

    /// Withdraws the waiting requests: the actor is no more, and another one may send the same again.
    pub(super) fn withdraw(&self) {
        self.fence.withdraw();
        self.creations.current().withdraw();
    }

    /// Puts a write into the gate.
    pub(super) fn submit(
        &self,
        priority: Priority,
        write: Write,
    ) -> BoxFuture<'static, Result<Answer, WriteError>> {
        self.cx.gate.submit_traced(self.order(priority), write, self.trace.calls())
    }

    pub(super) fn order(&self, priority: Priority) -> Order {
        Order::new(priority, self.job.uid().clone(), self.fence.clone())
    }

    /// The Job in logs.
    pub(super) fn name(&self) -> JobName<'_, Uid> {
        JobName { namespace: self.job.namespace(), name: self.job.name(), uid: self.job.uid() }
    }

    /// Runs a request on the tokio pool and puts its answer into the inbox.
    pub(super) fn run(&self, request: impl Future<Output = JobInput> + Send + 'static) {
        let answer = self.inbox.promise();
        #[cfg(feature = "test-hooks")]
        let request = {
            let config = self.cx.config.clone();
            request.inspect(move |_| config.test_hooks.pass(Part::Request))
        };
        self.spawn(request.map(|input| answer.keep(input)));
    }

    /// Runs a request on the tokio pool.
    pub(super) fn spawn(&self, request: impl Future<Output = ()> + Send + 'static) {
        self.in_flight.spawn_on(self.guarded(request), &self.cx.runtime);
    }

    /// Runs work that a drain of the shard does not wait for: pauses before another attempt of a request,
    /// and optional reads.
    pub(super) fn run_after(&self, pause: impl Future<Output = ()> + Send + 'static) {
        self.cx.runtime.spawn(self.guarded(pause));
    }

    /// If a request panics, its outcome is unknown: rebuild the Job.
    fn guarded<F: Future<Output = ()> + Send + 'static>(
        &self,
        request: F,
    ) -> impl Future<Output = ()> + Send + use<F> {
        let inbox = self.inbox.clone();
        caught("a request of a Job", request).map(move |done| {
            if done.is_none() {
                inbox.push(JobInput::Failed);
            }
        })
    }

    /// The maker of pods from this reading of the Job.
    ///
    /// # Errors
    /// When no pod can be made from its template.
    pub(super) fn maker(&self, job: &Job, pod_group: Option<Box<str>>) -> Result<Arc<Maker>, TemplateError> {
        Maker::new(job, self.cx.config.finalizer(), self.shard.0, pod_group)
    }

    /// The overlay of a new pod of this reading of the Job.
    pub(super) fn overlay(&self, job: &Job, new: &NewPod) -> Option<Arc<Overlay>> {
        let traceparent = job.options.propagate_trace.then(|| self.trace.traceparent()).flatten();
        job.options.overlay(&PodFacts {
            traceparent: traceparent.as_deref(),
            template: Some(&job.spec.template),
            lineage: new.lineage.as_deref(),
        })
    }
}
