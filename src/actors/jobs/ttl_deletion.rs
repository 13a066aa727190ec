//! The deletion of a Job whose TTL has expired, if a live read agrees: the watch may be behind.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::actors::context::ReplicaContext;
use crate::cluster::gate::{Answer, Write, WriteError};
use crate::cluster::wire::ObservedJob;
use crate::job::ttl;

/// The outcome.
#[derive(Debug)]
pub enum Expiry {
    /// The Job is deleted, or being deleted.
    Deleted,
    /// The Job as it is now has not outlived its TTL, or is being deleted already.
    NotDue(Arc<ObservedJob>),
    /// There was no such Job any more.
    Gone,
}

/// Deletes a Job with its pods once a live read shows that its TTL has expired. `submit` sends the write.
pub async fn delete_expired(
    cx: &ReplicaContext,
    job: &ObservedJob,
    submit: impl FnOnce(Write) -> BoxFuture<'static, Result<Answer, WriteError>>,
) -> Result<Expiry, WriteError> {
    let read = cx.reads.get_job(&job.namespace, &job.name).await;
    let fresh = read.map_err(|error| WriteError::Unknown(error.to_string().into()))?;
    let Some(fresh) = fresh.filter(|fresh| fresh.uid == job.uid) else { return Ok(Expiry::Gone) };
    let read = fresh.job.as_ref().map_err(|unknown| WriteError::Invalid(unknown.to_string().into()))?;
    let now = cx.clock.now();
    let Some(expired) = ttl::expires_at(read, cx.config.limits()).filter(|at| *at <= now) else {
        return Ok(Expiry::NotDue(fresh));
    };
    submit(Write::DeleteJob {
        namespace: job.namespace.clone(),
        name: job.name.clone(),
        uid: job.uid.clone(),
        version: fresh.version.clone(),
    })
    .await?;
    let late: Duration = cx.clock.now().duration_since(expired).try_into().unwrap_or_default();
    cx.metrics.job_controller.ttl_deletion_duration.observe(late.as_secs_f64());
    Ok(Expiry::Deleted)
}
