//! How many objects of a kind there are, and whether more come.

use std::time::Duration;

use anyhow::Result;
use http::Request;
use tokio::time::{Instant, sleep};

/// Time without a new object after which no more are expected ...
const REST: Duration = Duration::from_secs(1);
/// ... time between two looks, and the limit for all of it.
const LOOK: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of objects under this path.
///
/// # Errors
///
/// If the API server refuses.
pub(super) async fn objects(client: &kube::Client, path: &str) -> Result<u64> {
    let first = Request::get(format!("{path}?limit=1")).body(Vec::new())?;
    let list: serde_json::Value = client.request(first).await?;
    let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    Ok(list["items"].as_array().map_or(0, |items| items.len() as u64 + more))
}

/// Waits until the number of objects under this path has not changed for [`REST`], or [`PATIENCE`] is over.
///
/// # Errors
///
/// If the API server refuses.
pub(super) async fn at_rest(client: &kube::Client, path: &str) -> Result<()> {
    let begun = Instant::now();
    let (mut known, mut since) = (objects(client, path).await?, begun);
    while since.elapsed() < REST && begun.elapsed() < PATIENCE {
        sleep(LOOK).await;
        let now = objects(client, path).await?;
        if now != known {
            (known, since) = (now, Instant::now());
        }
    }
    Ok(())
}
