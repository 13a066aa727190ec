//! The Workload and the PodGroup of a Job that is scheduled as a gang: found, or created.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::requests::Requests;
use crate::actors::messages::job_input::JobInput;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::reads::ReadError;
use crate::cluster::resource::Resource;
use crate::cluster::wire::{DecodeError, Decoder, PodGroupDecoder, WorkloadDecoder};
use crate::job::gang::{
    Choice, LOOKED_AT, choose_pod_group, choose_workload, names_job, names_workload, workload_made,
};
use crate::job::gang_state::GangAnswer;
use crate::job::plan::{GangRequest, JobEvent};
use crate::job::spec::Job;

/// A list that takes no longer needs no rest.
const SHORT: Duration = Duration::from_millis(50);

/// Why the PodGroup that pods name is not known.
enum GangError {
    /// A later attempt may succeed. The message of the Event, if there is one.
    Transient(Option<String>),
    /// The object is invalid: the API server will never have it.
    Permanent(String),
}

impl From<ReadError> for GangError {
    fn from(error: ReadError) -> Self {
        Self::Transient(Some(error.to_string()))
    }
}

impl From<DecodeError> for GangError {
    fn from(error: DecodeError) -> Self {
        Self::Transient(Some(error.to_string()))
    }
}

impl From<WriteError> for GangError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Fenced | WriteError::NamespaceTerminating(_) => Self::Transient(None),
            WriteError::Invalid(why) => Self::Permanent(why.into()),
            other => Self::Transient(Some(other.to_string())),
        }
    }
}

/// An object of the gang.
enum Found<T> {
    /// The object existed before.
    Existing(T),
    /// The object was created now.
    Made(T),
    /// There is none, and none must be created.
    Nothing,
}

impl Requests {
    /// Finds or creates the gang of a Job. A Job whose Workload or PodGroup is invalid runs without a
    /// gang. Any other refusal is tried again: a webhook may be starting, and one of several API servers
    /// may not serve the API yet.
    ///
    /// A list may wait for its turn for long. The request ends with the right to create pods, as when the Job is gone.
    pub fn ensure_gang(self: &Arc<Self>, job: &Job, request: GangRequest) {
        let (this, job, right) = (self.clone(), job.clone(), self.creations.current());
        self.run(async move {
            let mut events = Vec::new();
            let found = tokio::select! {
                biased;
                () = right.closed() => Err(GangError::Transient(None)),
                found = this.pod_group_of(&job, request, &right, &mut events) => found,
            };
            let answer = match found {
                Ok(group) => GangAnswer::Group(group),
                Err(GangError::Permanent(why)) => {
                    events.push(failure(format!("Pods are created without a gang: {why}")));
                    GangAnswer::Group(None)
                }
                Err(GangError::Transient(why)) => {
                    let event =
                        why.map(|why| failure(format!("Error ensuring Workload and PodGroup: {why}")));
                    events.extend(event);
                    GangAnswer::Refused
                }
            };
            JobInput::Gang { answer, events }
        });
    }

    async fn pod_group_of(
        &self,
        job: &Job,
        request: GangRequest,
        right: &Fence,
        events: &mut Vec<JobEvent>,
    ) -> Result<Option<Arc<str>>, GangError> {
        let choose = |found, request| choose_workload(job, found, request);
        let decoder = WorkloadDecoder;
        let is_candidate = |workload: &_| names_job(workload, job);
        let workload = match self
            .find_or_make(&decoder, Resource::WORKLOADS, request, right, is_candidate, choose)
            .await?
        {
            Found::Existing(workload) => workload,
            Found::Made(workload) => {
                events.push(workload_made(job, &workload));
                workload
            }
            Found::Nothing => return Ok(None),
        };
        let choose = |found, request| choose_pod_group(job, &workload, found, request);
        // A Job that has its Workload gets a new PodGroup if the old one was deleted.
        let request = GangRequest::Ensure;
        let is_candidate = |group: &_| names_workload(group, &workload);
        let decoder = PodGroupDecoder;
        match self.find_or_make(&decoder, Resource::POD_GROUPS, request, right, is_candidate, choose).await? {
            Found::Existing(group) | Found::Made(group) => Ok(Some(group.name)),
            Found::Nothing => Ok(None),
        }
    }

    /// An object of the Job's namespace: the one that `choose` picks among the first candidates, or a new
    /// one. If the name is taken, the list is read once more. After a lost answer it shows the very
    /// object that we wanted. Otherwise the name belongs to something else, and the Job has no such
    /// object.
    async fn find_or_make<D: Decoder>(
        &self,
        decoder: &D,
        resource: Resource,
        request: GangRequest,
        right: &Fence,
        is_candidate: impl Fn(&D::Object) -> bool,
        choose: impl Fn(Vec<D::Object>, GangRequest) -> Choice<D::Object>,
    ) -> Result<Found<D::Object>, GangError> {
        let mut request = request;
        loop {
            let keep = |object: &_, kept| kept < LOOKED_AT && is_candidate(object);
            let list = self.cx.reads.list(decoder, resource, self.job.namespace(), keep);
            let found = self.cx.in_turn(self.job.namespace(), SHORT, list).await.0?;
            let not_served =
                || GangError::Transient(Some(format!("the API server does not serve {}", resource.plural)));
            match choose(found.ok_or_else(not_served)?, request) {
                Choice::Use(object) => return Ok(Found::Existing(object)),
                Choice::Leave => return Ok(Found::Nothing),
                Choice::Make(body) => match self.make(resource, body, right).await {
                    Err(WriteError::AlreadyExists(_)) => request = GangRequest::Find,
                    made => return Ok(Found::Made(decoder.decode(&made?)?)),
                },
            }
        }
    }

    async fn make(&self, resource: Resource, body: Bytes, right: &Fence) -> Result<Bytes, WriteError> {
        let write = Write::Create { resource, namespace: self.job.namespace().clone(), body };
        let order = Order { fence: right.clone(), ..self.order(Priority::Create) };
        match self.cx.gate.submit_traced(order, write, self.trace.calls()).await? {
            Answer::Object(made) => Ok(made),
            _ => Err(WriteError::Unknown("the answer holds no object".into())),
        }
    }
}

fn failure(message: String) -> JobEvent {
    JobEvent {
        warning: true,
        reason: "FailedWorkloadCreate".into(),
        message: message.into(),
        terminal: false,
    }
}
