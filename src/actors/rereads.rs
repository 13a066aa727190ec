//! Reads objects again that exist and could not be read.

use std::time::Duration;

use super::context::ReplicaContext;
use crate::cluster::reads::ReadError;

/// Objects of a replica that are read again at once.
pub const TURNS: usize = 16;
/// How long a read that failed keeps its turn. So a replica sends no more than 16 such reads a second, however many
/// objects cannot be read.
const PACE: Duration = Duration::from_secs(1);

/// Reads an object, with pauses that grow, until that succeeds: nothing tells when it can be read.
pub async fn until_readable<T, F>(cx: &ReplicaContext, read: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, ReadError>>,
{
    let mut backoff = cx.api_backoff();
    loop {
        backoff.pause().await;
        // It is never closed.
        let _turn = cx.rereads.acquire().await;
        if let Ok(found) = read().await {
            return found;
        }
        tokio::time::sleep(PACE).await;
    }
}
