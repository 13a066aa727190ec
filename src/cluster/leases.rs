//! Reading and writing Leases.
//!
//! Lease writes bypass the write gate: a heartbeat that waits behind a queue of pods costs its replica all
//! shards. They are few, and each carries the version that it replaces.
//!
//! A connection that is dead without a word must not cost the shards either. So a request that is not answered
//! for a third of its time is sent again, beside the first one, and the first answer counts. Both carry the same
//! version, so at most one of them has an effect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Method, Request, StatusCode, header};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::resource::Resource;
use super::transport::{Transport, TransportError};
use super::wire::{DecodeError, Decoder, Refusal, version_number};
use crate::mutants::{Mutant, is};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::ApiCallLabels;

/// Why a Lease was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The Lease has changed since it was read, already exists, or does not exist.
    #[error("the Lease has changed: {0}")]
    Conflict(Box<str>),
    /// The API server refused.
    #[error("the API server refused ({code}): {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The API server's message.
        message: Box<str>,
    },
    /// No answer, or an unreadable one: a write may have been carried out, or may still be.
    #[error("no answer: {0}")]
    Unknown(String),
}

/// A client for the Leases of one namespace.
#[derive(Clone)]
pub struct LeaseClient {
    transport: Arc<dyn Transport>,
    namespace: Arc<str>,
    timeout: Duration,
    metrics: Arc<Metrics>,
}

const JSON: &str = "application/json";
/// How often a request is sent at most, in equal shares of its time.
const ATTEMPTS: u32 = 3;

impl LeaseClient {
    /// A client for the Leases of this namespace. An answer counts as lost after `timeout`.
    pub fn new(
        transport: Arc<dyn Transport>,
        namespace: &str,
        timeout: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { transport, namespace: namespace.into(), timeout, metrics }
    }

    /// Reads a Lease; `None` if there is none of this name.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn get(&self, name: &str) -> Result<Option<Lease>, LeaseError> {
        let path = Resource::LEASES.object_path(&*self.namespace, name);
        match self.send("get", Method::GET, path, Bytes::new()).await {
            Ok(body) => decode(&body).map(Some),
            Err(LeaseError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the version of a Lease that it carries, or creates it if it carries none. Returns the stored
    /// Lease.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn write(&self, lease: &Lease) -> Result<Lease, LeaseError> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let (verb, method, path) = match lease.metadata.resource_version {
            Some(_) => ("update", Method::PUT, Resource::LEASES.object_path(&*self.namespace, name)),
            None => ("create", Method::POST, Resource::LEASES.path(Some(&self.namespace))),
        };
        let of_existing = method == Method::PUT;
        let body = serde_json::to_vec(lease).map_err(|e| LeaseError::Unknown(e.to_string()))?;
        match self.send(verb, method, path, body.into()).await {
            Ok(body) => decode(&body),
            Err(LeaseError::Refused { code: 404, message }) if of_existing => {
                Err(LeaseError::Conflict(message))
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a Lease if it still has this version. A Lease that does not exist is not an error.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn delete(&self, name: &str, version: u64) -> Result<(), LeaseError> {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": {"resourceVersion": version.to_string()},
        });
        let path = Resource::LEASES.object_path(&*self.namespace, name);
        match self.send("delete", Method::DELETE, path, options.to_string().into()).await {
            Ok(_) | Err(LeaseError::Refused { code: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a request, and again each time that a third of the time has passed without an answer.
    async fn send(
        &self,
        verb: &'static str,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<Bytes, LeaseError> {
        let attempt = || self.attempt(verb, method.clone(), path.clone(), body.clone());
        let (mut attempts, next) = (FuturesUnordered::from_iter([attempt()]), self.timeout / ATTEMPTS);
        for _ in 1..if is(Mutant::HeartbeatWaitsForDeadline) { 1 } else { ATTEMPTS } {
            tokio::select! {
                biased;
                Some(answer) = attempts.next() => match answer {
                    // Another one may still be answered.
                    Err(LeaseError::Unknown(_)) if !attempts.is_empty() => {}
                    answer => return answer,
                },
                () = sleep(next) => attempts.push(attempt()),
            }
        }
        loop {
            match attempts.next().await {
                Some(Err(LeaseError::Unknown(_))) if !attempts.is_empty() => {}
                Some(answer) => return answer,
                None => return Err(LeaseError::Unknown("no attempt".into())),
            }
        }
    }

    async fn attempt(
        &self,
        verb: &'static str,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<Bytes, LeaseError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, JSON)
            .header(header::ACCEPT, JSON)
            .body(body)
            .map_err(|e| LeaseError::Refused { code: 0, message: e.to_string().into() })?;
        let started = Instant::now();
        let answer = timeout(self.timeout, self.transport.send(request))
            .await
            .unwrap_or_else(|_| Err(TransportError(format!("none within {:?}", self.timeout))));
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let call = ApiCallLabels { verb, resource: Resource::LEASES.plural };
        self.metrics.count_request(call, code, started.elapsed());
        let answer = answer.map_err(|e| LeaseError::Unknown(e.0))?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let Refusal { message, .. } = Refusal::read(code, answer.body());
        Err(match answer.status() {
            StatusCode::CONFLICT => LeaseError::Conflict(message),
            status if status.is_server_error() => LeaseError::Unknown(message.into()),
            _ => LeaseError::Refused { code, message },
        })
    }
}

fn decode(body: &[u8]) -> Result<Lease, LeaseError> {
    serde_json::from_slice(body).map_err(|e| LeaseError::Unknown(e.to_string()))
}

/// Decodes Leases in full: they are few and small.
#[derive(Clone, Debug)]
pub struct LeaseDecoder;

impl Decoder for LeaseDecoder {
    type Wire<'a> = Lease;
    type Object = Lease;

    fn observe(&self, lease: Lease) -> Result<Lease, DecodeError> {
        Ok(lease)
    }

    fn version(lease: &Lease) -> u64 {
        version_number(lease.metadata.resource_version.as_deref())
    }
}
