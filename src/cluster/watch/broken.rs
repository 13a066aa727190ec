//! Reasons for the end of a list or watch.

use std::time::Duration;

use crate::cluster::byte_queue::TooLong;
use crate::cluster::list::ListError;
use crate::cluster::transport::TransportError;
use crate::cluster::wire::Refusal;

/// The consumer has dropped the stream. Nothing else ends a watch for ever.
pub(super) struct Stopped;

/// Why a list or watch ended.
pub(super) enum Broken {
    /// The consumer has dropped the stream.
    Stopped,
    /// The API server no longer has the version to resume from.
    Expired,
    /// The API server does not serve streaming lists.
    NoStreamingLists,
    /// The caches of the API server are too far behind for a streaming list now.
    CachesBehind,
    /// The API server refused.
    Refused { refusal: Refusal, retry_after: Option<Duration> },
    /// No answer has begun in time.
    Unanswered,
    /// The connection failed, or the answer was not understood.
    Failed(String),
}

impl From<Stopped> for Broken {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<TooLong> for Broken {
    fn from(e: TooLong) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<ListError> for Broken {
    fn from(e: ListError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<TransportError> for Broken {
    fn from(e: TransportError) -> Self {
        Self::Failed(e.0)
    }
}

pub(super) fn broken(refusal: Refusal, retry_after: Option<Duration>) -> Broken {
    match refusal.code {
        410 => Broken::Expired,
        _ => Broken::Refused { refusal, retry_after },
    }
}
