//! Reads objects again that exist and could not be read.

use std::sync::Arc;
use std::time::Duration;

use super::api_backoff::ApiBackoff;
use crate::cluster::fair_semaphore::FairSemaphore;
use crate::cluster::reads::ReadError;

/// Objects that are read again at once.
const TURNS: usize = 16;
/// Objects of one namespace that may be read again at once.
const SHARE: usize = 8;
/// How long a read keeps its turn. So a replica sends no more than 16 such reads a second, however many objects there are to be
/// read again.
const PACE: Duration = Duration::from_secs(1);

/// The turns of the reads of one replica. Clones share them.
#[derive(Clone)]
pub struct ReadRetries(FairSemaphore);

impl Default for ReadRetries {
    fn default() -> Self {
        Self(FairSemaphore::new(TURNS, SHARE))
    }
}

impl ReadRetries {
    /// Reads an object of a namespace, with pauses that grow, until that succeeds: no
    /// event shows when it can be read.
    pub async fn until_readable<T, F>(
        &self,
        namespace: &Arc<str>,
        mut pauses: ApiBackoff,
        read: impl Fn() -> F,
    ) -> T
    where
        F: Future<Output = Result<T, ReadError>>,
    {
        loop {
            pauses.pause().await;
            let turn = self.0.acquire(Some(namespace), None).await;
            let found = read().await;
            tokio::spawn(async move {
                tokio::time::sleep(PACE).await;
                drop(turn);
            });
            if let Ok(found) = found {
                return found;
            }
        }
    }
}
