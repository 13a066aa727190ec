//! What an API server shows whose caches are behind.
//!
//! Yardmaster never asks for any version that a cache may have (`resourceVersion=0`). So nothing that it reads is older than its
//! request, but for watches: these go on from a version, and show what comes after it when the cache has it.

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
        let age = self.age_of_caches(replica);
        usual.max(if is_streaming_list(uri) { age.min(FRESH_WITHIN) } else { age })
    }

    /// How long the answer to a request for a list waits for the caches.
    pub(super) fn wait_for_caches(&self, replica: usize) -> Duration {
        self.age_of_caches(replica).min(FRESH_WITHIN)
    }

    /// The request as its API server understands it: of a streaming list that caches cannot serve in time, one that fails for that reason.
    pub(super) fn asked_of_caches(&self, replica: usize, request: Request<Bytes>) -> Request<Bytes> {
        if self.age_of_caches(replica) <= FRESH_WITHIN || !is_streaming_list(request.uri()) {
            return request;
        }
        let uri = format!("{}&resourceVersion={NEVER}", request.uri());
        let (mut parts, body) = request.into_parts();
        parts.uri = uri.parse().unwrap_or(parts.uri);
        Request::from_parts(parts, body)
    }

    fn age_of_caches(&self, replica: usize) -> Duration {
        self.slots.get(replica).map_or(Duration::ZERO, |slot| slot.link.age_of_caches(self.now))
    }
}

fn is_streaming_list(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("sendInitialEvents=true"))
}
