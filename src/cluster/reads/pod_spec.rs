//! Reads the spec of a Job's pod template in protobuf.

use bytes::Bytes;
use http::{HeaderValue, Request, header};

use super::{ReadError, Reader};
use crate::cluster::resource::Resource;
use crate::cluster::wire::protobuf::{self, Message as _};
use crate::cluster::wire::{DecodeError, WirePodSpec};
use crate::job::job_id::JobId;
use crate::job::uid::Uid;

/// The fields of the spec of a Job's pod template, in protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSpecReading {
    /// `metadata.generation` of the Job: with each change of its template it grows.
    pub generation: i64,
    /// The fields.
    pub spec: Bytes,
}

impl Reader {
    /// The spec of this Job's pod template; `None` if there is no such Job, or if the API server does not show it in protobuf.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn pod_spec(&self, job: &JobId) -> Result<Option<PodSpecReading>, ReadError> {
        let accept = HeaderValue::from_static("application/vnd.kubernetes.protobuf, application/json");
        let path = Resource::JOBS.object_path(&**job.namespace(), job.name());
        let request = Request::get(path).header(header::ACCEPT, accept).body(Bytes::new())?;
        let _turn = self.gate.turn(Some(job.namespace()), self.asker.as_ref()).await;
        let Some(answer) = self.send("get", Resource::JOBS, request, Some(job.namespace())).await? else {
            return Ok(None);
        };
        let Ok(found) = protobuf::object(&answer) else { return Ok(None) };
        let found = WirePodSpec::read(found).map_err(DecodeError::from)?;
        if found.metadata.uid.as_deref().map(Uid::from).as_ref() != Some(job.uid()) {
            return Ok(None);
        }
        let spec = Bytes::copy_from_slice(found.of_template());
        Ok(Some(PodSpecReading { generation: found.metadata.generation.unwrap_or(0), spec }))
    }
}
