//! The context of all checks: the cluster and the controller that they are about.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::actors::ControllerConfig;
use crate::cli::Failure;
use crate::cli::controller::pod_namespace;
use crate::cluster::transport::{Connection, Transport, TransportError, connect};

/// How long to wait for an answer of the API server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the check in its user agent.
const IDENTITY: &str = "check";

/// The cluster and the controller that the checks are about.
pub(super) struct Context {
    pub(super) client: kube::Client,
    transport: Arc<dyn Transport>,
    /// Settings of the replicas, as far as they are given.
    pub(super) controller: ControllerConfig,
    /// Names of the controllers that run, if the one to check has no Leases.
    pub(super) others: Vec<String>,
    /// The account whose rights are checked, if not the own one.
    pub(super) account: Option<ServiceAccount>,
    /// Where the probe Job is created.
    pub(super) probe_namespace: String,
    /// Maximum time for everything that takes time.
    pub(super) wait: Duration,
    stop: CancellationToken,
}

impl Context {
    pub(super) fn connect(
        mut config: kube::Config,
        controller: ControllerConfig,
        account: Option<ServiceAccount>,
        wait: Duration,
    ) -> Result<Self, Failure> {
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        let Connection { client, transport } = connect(config, IDENTITY)?;
        let probe_namespace = pod_namespace().unwrap_or_else(|| controller.lease_namespace.clone());
        let stop = CancellationToken::new();
        let others = Vec::new();
        Ok(Self { client, transport, controller, others, account, probe_namespace, wait, stop })
    }

    /// Sends a request, for the headers of its answer.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let none = |_| Err(TransportError(format!("no answer within {TIMEOUT:?}")));
        timeout(TIMEOUT, self.transport.send(request)).await.unwrap_or_else(none)
    }

    /// Ends all pauses from now on. Requests are not cut off: it would be unknown what they have created.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Pauses, unless the command is to stop.
    pub(super) async fn pause(&self, time: Duration) {
        let _stopped = timeout(time, self.stop.cancelled()).await;
    }

    /// The namespace of the Leases.
    pub(super) fn namespace(&self) -> &str {
        &self.controller.lease_namespace
    }
}

/// A name for an object of the check, which no other object has.
pub(super) fn unique_name() -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("yardmaster-check-{}", random.get(..8).unwrap_or(&random))
}

/// The message of the API server, or why there is none.
pub(super) fn message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Whether the API server refused because of missing rights.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceAccount {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ServiceAccount {
    /// Its name as a user.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that it is a member of.
    pub(super) fn groups(&self) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }
}

impl FromStr for ServiceAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("expected NAMESPACE/NAME".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_a_namespace_and_a_name() {
        for text in ["", "name", "/name", "namespace/", "a/b/c"] {
            assert!(text.parse::<ServiceAccount>().is_err(), "{text:?}");
        }
        let account = "system/yardmaster".parse::<ServiceAccount>();
        assert_eq!(
            account.map(|account| account.user()),
            Ok("system:serviceaccount:system:yardmaster".to_owned())
        );
    }
}
