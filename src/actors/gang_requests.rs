//! The Workload and the PodGroup of a Job that is scheduled as a gang: found, or created.

use std::sync::Arc;

use bytes::Bytes;

use super::job_input::JobInput;
use super::requests::Requests;
use crate::cluster::gate::{Answer, Priority, Write, WriteError};
use crate::cluster::reads::ReadError;
use crate::cluster::resource::Resource;
use crate::cluster::wire::{DecodeError, Decoder, PodGroupDecoder, WorkloadDecoder};
use crate::job::gang::{Choice, choose_pod_group, choose_workload, workload_made};
use crate::job::gang_state::GangAnswer;
use crate::job::plan::{GangRequest, JobEvent};
use crate::job::spec::Job;

/// Why the PodGroup that pods name is not known.
enum GangError {
    /// A later attempt may succeed. The message of the Event, if there is one.
    Transient(Option<String>),
    /// The API server will never have such an object.
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
            WriteError::Invalid(why) | WriteError::BadRequest(why) | WriteError::NotFound(why) => {
                Self::Permanent(why.into())
            }
            other => Self::Transient(Some(other.to_string())),
        }
    }
}

/// An object of the gang.
enum Found<T> {
    /// It existed before.
    Existing(T),
    /// It was created now.
    Made(T),
    /// There is none, and none must be created.
    Nothing,
}

impl Requests {
    /// Finds or creates the gang of a Job. A Job whose Workload or PodGroup the API server refuses for good
    /// runs without a gang.
    pub fn ensure_gang(self: &Arc<Self>, job: &Job, request: GangRequest) {
        let (this, job) = (self.clone(), job.clone());
        self.run(async move {
            let mut events = Vec::new();
            let answer = match this.pod_group_of(&job, request, &mut events).await {
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
        events: &mut Vec<JobEvent>,
    ) -> Result<Option<Arc<str>>, GangError> {
        let choose = |found, request| choose_workload(job, found, request);
        let workload =
            match self.find_or_make(&WorkloadDecoder, Resource::WORKLOADS, request, choose).await?
            {
                Found::Existing(workload) => workload,
                Found::Made(workload) => {
                    events.push(workload_made(job, &workload));
                    workload
                }
                Found::Nothing => return Ok(None),
            };
        let choose = |found, request| choose_pod_group(job, &workload, found, request);
        // A Job that has its Workload gets its PodGroup again if somebody has deleted it.
        let request = GangRequest::Ensure;
        match self.find_or_make(&PodGroupDecoder, Resource::POD_GROUPS, request, choose).await? {
            Found::Existing(group) | Found::Made(group) => Ok(Some(group.name)),
            Found::Nothing => Ok(None),
        }
    }

    /// An object of the Job's namespace: the one that `choose` picks, or a new one. If the name is taken, the
    /// list is read once more: after a lost answer it shows the very object that we wanted; otherwise the
    /// name belongs to something else, and the Job has no such object.
    async fn find_or_make<D: Decoder>(
        &self,
        decoder: &D,
        resource: Resource,
        request: GangRequest,
        choose: impl Fn(Vec<D::Object>, GangRequest) -> Choice<D::Object>,
    ) -> Result<Found<D::Object>, GangError> {
        let mut request = request;
        loop {
            let found = self.cx.reads.list(decoder, resource, self.job.namespace()).await?;
            let not_served =
                || GangError::Permanent(format!("the API server does not serve {}", resource.plural));
            match choose(found.ok_or_else(not_served)?, request) {
                Choice::Use(object) => return Ok(Found::Existing(object)),
                Choice::Leave => return Ok(Found::Nothing),
                Choice::Make(body) => match self.make(resource, body).await {
                    Err(WriteError::AlreadyExists(_)) => request = GangRequest::Find,
                    made => return Ok(Found::Made(decoder.decode(&made?)?)),
                },
            }
        }
    }

    async fn make(&self, resource: Resource, body: Bytes) -> Result<Bytes, WriteError> {
        let write = Write::Create { resource, namespace: self.job.namespace().clone(), body };
        match self.submit(Priority::Create, write).await? {
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
