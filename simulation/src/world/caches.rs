//! API servers whose caches are behind.
//!
//! Yardmaster never reads with `resourceVersion=0`, which lets a cache answer with any version that it has.
//! So an answer is never older than its request. Exception: watches resume from a version, and show the
//! changes after it once the cache has them.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};

use super::World;

/// How long kube-apiserver lets a request wait for its caches (`blockTimeout`). Then lists come from etcd, and
/// streaming lists fail.
const FRESH_WITHIN: Duration = Duration::from_secs(3);
/// A version that no cache ever has.
const NEVER: u64 = 1 << 53;

impl World {
    /// How much later than it happens a watch shows a replica what it asks for.
    pub(super) fn lag(&self, replica: usize, uri: &Uri) -> Duration {
        let lag = self.plan.settings.lags.get(replica).copied().unwrap_or_default();
        let usual = match uri.path() {
            path if path.starts_with("/apis/coordination") => Duration::ZERO,
            path if path.starts_with("/apis/batch/v1/") => lag.jobs,
            _ => lag.pods,
        };
        let behind = self.caches_behind(replica);
        usual.max(if is_streaming_list(uri) { behind.min(FRESH_WITHIN) } else { behind })
    }

    /// How long the answer to a request for a list waits for the caches.
    pub(super) fn wait_for_caches(&self, replica: usize) -> Duration {
        self.caches_behind(replica).min(FRESH_WITHIN)
    }

    /// The request that the API server of the world gets. A streaming list that caches cannot serve in time becomes one that
    /// fails for that reason.
    pub(super) fn asked_of_caches(&self, replica: usize, request: Request<Bytes>) -> Request<Bytes> {
        if self.caches_behind(replica) <= FRESH_WITHIN || !is_streaming_list(request.uri()) {
            return request;
        }
        let uri = format!("{}&resourceVersion={NEVER}", request.uri());
        let (mut parts, body) = request.into_parts();
        parts.uri = uri.parse().unwrap_or(parts.uri);
        Request::from_parts(parts, body)
    }

    fn caches_behind(&self, replica: usize) -> Duration {
        self.slots.get(replica).map_or(Duration::ZERO, |slot| slot.link.caches_behind(self.now))
    }
}

fn is_streaming_list(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("sendInitialEvents=true"))
}
