//! Faults of the embedded API server in the notation of loads.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use yardmaster_embedded::{Fault, FaultScope, Faults};

/// A fault with its time and scope.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TimedFault {
    /// Begin, from the start of the load.
    #[serde(default)]
    pub(crate) at: SignedDuration,
    /// Duration. 0: affects one request. Ignored for broken watches, which are momentary.
    #[serde(default)]
    pub(crate) r#for: SignedDuration,
    /// Part of the User-Agent of the affected clients. Empty: all clients.
    #[serde(default)]
    pub(crate) user_agent: String,
    /// Affected HTTP methods. Empty: all methods.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// Part of the affected paths. Empty: all paths.
    #[serde(default)]
    pub(crate) path: String,
    /// Affects only every n-th request. 0 and 1: all requests.
    #[serde(default)]
    pub(crate) every: usize,
    /// The kind of fault.
    #[serde(flatten)]
    pub(crate) kind: FaultKind,
}

/// Kinds of faults.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FaultKind {
    /// Answers are delayed.
    Delay(SignedDuration),
    /// Requests are refused with this HTTP status.
    Refuse(u16),
    /// Requests are refused after this long, as when a webhook gives no answer.
    FailWebhook(SignedDuration),
    /// Requests are refused by a webhook with a message of this many bytes.
    DenyByWebhook(usize),
    /// Writes are carried out but not answered.
    LoseReplies(bool),
    /// Connections break before the request is handled.
    Partition(bool),
    /// Watches end with 410.
    ExpireWatches(bool),
    /// Watches deliver nothing.
    HoldWatches(bool),
    /// Watches end once, without an error.
    BreakWatches(bool),
}

impl TimedFault {
    /// A webhook for the pods that are created in this namespace, from now on for this long.
    pub(crate) fn of_webhook(namespace: &str, kind: FaultKind, lasting: Duration) -> Self {
        Self {
            at: SignedDuration::ZERO,
            r#for: SignedDuration::try_from(lasting).unwrap_or(SignedDuration::MAX),
            user_agent: String::new(),
            methods: vec!["POST".into()],
            path: format!("/namespaces/{namespace}/pods"),
            every: 0,
            kind,
        }
    }

    /// Injects the fault into this server now, and removes it after its duration.
    pub(crate) async fn play(self, faults: &Faults) {
        let fault = match self.kind {
            FaultKind::Delay(time) => Fault::Delay(time.unsigned_abs()),
            FaultKind::Refuse(code) => {
                let unavailable = http::StatusCode::SERVICE_UNAVAILABLE;
                Fault::Refuse(http::StatusCode::from_u16(code).unwrap_or(unavailable))
            }
            FaultKind::FailWebhook(after) => Fault::FailWebhook(after.unsigned_abs()),
            FaultKind::DenyByWebhook(bytes) => Fault::DenyByWebhook(bytes),
            FaultKind::LoseReplies(_) => Fault::LoseReplies,
            FaultKind::Partition(_) => Fault::Partition,
            FaultKind::ExpireWatches(_) => Fault::ExpireWatches,
            FaultKind::HoldWatches(_) => Fault::HoldWatches,
            FaultKind::BreakWatches(_) => return faults.break_watches(),
        };
        let methods = self.methods.iter().filter_map(|name| name.parse().ok()).collect();
        let scope = FaultScope { user_agent: self.user_agent, methods, path: self.path, every: self.every };
        // A fault without duration affects one request.
        let lasting: Duration = self.r#for.unsigned_abs();
        if lasting.is_zero() {
            faults.inject(fault, scope, Some(1));
            return;
        }
        let on = faults.inject(fault, scope, None);
        tokio::time::sleep(lasting).await;
        faults.remove(on);
    }
}
