//! Creates the Jobs of a load on schedule, and watches them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Request;
use serde_json::Value;

use crate::ledger::Ledger;
use crate::load::{Load, Wave};
use crate::views::Job;
use crate::watch::{Collection, Event};

/// Limit of concurrent creations.
const AT_ONCE: usize = 16;
/// Time before a failed creation is retried.
const AGAIN: Duration = Duration::from_millis(200);

/// Creates all Jobs under this path, each at its offset from `start`.
pub(crate) async fn create(
    client: &kube::Client,
    path: &str,
    load: &Load,
    managed_by: Option<&str>,
    ledger: &Ledger,
    start: Instant,
) -> Result<()> {
    let mut due: Vec<(Duration, usize, &Wave, u32)> = Vec::new();
    for (number, wave) in load.waves.iter().enumerate() {
        due.extend((0..wave.jobs).map(|job| (wave.offset(job), number, wave, job)));
    }
    due.sort_by_key(|(offset, ..)| *offset);
    let mut flying = FuturesUnordered::new();
    for (offset, number, wave, job) in due {
        let mut due = std::pin::pin!(tokio::time::sleep_until((start + offset).into()));
        loop {
            // Creations under way go on meanwhile.
            tokio::select! {
                biased;
                Some(done) = flying.next() => done?,
                () = &mut due, if flying.len() < AT_ONCE => break,
            }
        }
        let name = wave.job_name(job);
        let manifest = wave.manifest(job, managed_by);
        ledger.job_created(&name, number, wave.pods_per_job, wave.parallelism, Instant::now());
        flying.push(async move { create_one(client, path, &manifest).await.with_context(|| name.clone()) });
    }
    while let Some(done) = flying.next().await {
        done?;
    }
    Ok(())
}

async fn create_one(client: &kube::Client, path: &str, manifest: &Value) -> Result<()> {
    loop {
        let request = Request::post(path).body(manifest.to_string().into_bytes())?;
        match client.request::<Value>(request).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                return Err(kube::Error::Api(status)).context("the API server refuses the Job");
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Records the states of Jobs under this path in the ledger, until dropped.
pub(crate) async fn observe(client: kube::Client, path: String, ledger: Ledger) {
    let mut events = Collection::new(path).follow::<Job>(client);
    while let Some(event) = events.recv().await {
        let now = Instant::now();
        match event {
            Event::Listed(jobs) => jobs.iter().for_each(|job| ledger.job_seen(job, now)),
            Event::Applied(job) | Event::Deleted(job) => ledger.job_seen(&job, now),
        }
    }
}
