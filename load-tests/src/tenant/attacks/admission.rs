//! An admission webhook for the tenant's pods that never answers, or refuses them at length.

use std::time::Duration;

use anyhow::Result;
use jiff::SignedDuration;
use serde_json::json;

use crate::faults::{FaultKind, TimedFault};
use crate::ground::Ground;
use crate::tenant::user::Tenant;
use crate::tenant::yard::Yard;
use crate::webhooks::Kind;
use crate::webhooks::server::Webhooks;

/// The API of admission webhooks.
pub(super) const API: &str = "/apis/admissionregistration.k8s.io/v1";
/// Time after which the API server gives the webhook up.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The message of a refusal by the embedded API server, which shares the machine: many times what a replica reads of it.
const EMBEDDED_REFUSAL: usize = 1 << 20;
/// How long the embedded API server plays it.
const LASTING: Duration = Duration::from_secs(60);

/// The webhook, set up by an administrator. The embedded API server plays it itself for [`LASTING`].
pub(in crate::tenant) struct Aid(Option<Webhooks>);

impl Aid {
    pub(super) async fn prepare(kind: Kind, ground: &mut Ground, yard: &Yard) -> Result<Self> {
        let tenant = yard.tenant();
        if ground.is_embedded() {
            let kind = match kind {
                Kind::Refusing => FaultKind::DenyByWebhook(EMBEDDED_REFUSAL),
                Kind::Failing | Kind::Slow => FaultKind::FailWebhook(SignedDuration::try_from(TIMEOUT)?),
            };
            ground.inject(&TimedFault::of_webhook(&tenant, kind, LASTING)).await?;
            return Ok(Self(None));
        }
        let webhooks = Webhooks::start(&yard.admin, &tenant, Duration::ZERO, TIMEOUT).await?;
        webhooks.admit(&yard.admin, &tenant, kind).await?;
        Ok(Self(Some(webhooks)))
    }

    pub(super) async fn end(self, admin: &kube::Client) -> Result<()> {
        match self.0 {
            Some(webhooks) => webhooks.end(admin).await,
            None => Ok(()),
        }
    }
}

/// Jobs that want many pods at once.
pub(super) async fn begin(tenant: &Tenant) {
    let jobs = (0..tenant.scale.of(10, 50)).map(|number| {
        let mut job = tenant.job(&format!("job-{number}"));
        (job["spec"]["completions"], job["spec"]["parallelism"]) = (json!(100), json!(100));
        job
    });
    tenant.create_all("jobs", jobs).await;
}
