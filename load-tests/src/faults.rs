//! Faults of the embedded API server, as loads name them.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use yardmaster_embedded::{Fault, FaultScope, Faults};

/// A fault with its time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TimedFault {
    /// When it begins, from the start of the load.
    #[serde(default)]
    pub(crate) at: SignedDuration,
    /// How long it lasts. Broken watches are a matter of a moment.
    #[serde(default)]
    pub(crate) r#for: SignedDuration,
    /// A part of the User-Agent of the clients that it hits; empty hits all.
    #[serde(default)]
    pub(crate) user_agent: String,
    /// HTTP methods that it hits; none hits all.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// A part of the path; empty hits all.
    #[serde(default)]
    pub(crate) path: String,
    /// Hits every so-manieth request; 0 and 1 hit all.
    #[serde(default)]
    pub(crate) every: usize,
    /// What happens.
    #[serde(flatten)]
    pub(crate) kind: FaultKind,
}

/// What happens to requests.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FaultKind {
    /// Answers come later.
    Delay(SignedDuration),
    /// Requests are refused with this HTTP status.
    Refuse(u16),
    /// Writes are carried out and not answered.
    LoseReplies(bool),
    /// Connections break before anything happens.
    Partition(bool),
    /// Watches end with 410.
    ExpireWatches(bool),
    /// Watches deliver nothing.
    HoldWatches(bool),
    /// Watches end once, without an error.
    BreakWatches(bool),
}

impl TimedFault {
    /// Does it to this server, from now until its end.
    pub(crate) async fn play(self, faults: &Faults) {
        let fault = match self.kind {
            FaultKind::Delay(time) => Fault::Delay(time.unsigned_abs()),
            FaultKind::Refuse(code) => {
                let unavailable = http::StatusCode::SERVICE_UNAVAILABLE;
                Fault::Refuse(http::StatusCode::from_u16(code).unwrap_or(unavailable))
            }
            FaultKind::LoseReplies(_) => Fault::LoseReplies,
            FaultKind::Partition(_) => Fault::Partition,
            FaultKind::ExpireWatches(_) => Fault::ExpireWatches,
            FaultKind::HoldWatches(_) => Fault::HoldWatches,
            FaultKind::BreakWatches(_) => return faults.break_watches(),
        };
        let methods = self.methods.iter().filter_map(|name| name.parse().ok()).collect();
        let scope = FaultScope { user_agent: self.user_agent, methods, path: self.path, every: self.every };
        // A fault of no length hits once.
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
