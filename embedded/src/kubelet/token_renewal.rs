//! Tokens in volumes, which are replaced while they are valid.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::{join_all, pending};
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;

use super::pod::Volume;
use super::worker::Worker;

/// The longest time that a token is in use, however long it is valid. Kubernetes has the same.
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time between attempts to replace a token.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Replaces the tokens in the volumes of a pod, as long as it runs. Containers that mount a volume by
/// `subPath` do not see that, as in Kubernetes.
pub(super) async fn renew(worker: &Worker) -> Infallible {
    let tokens: Vec<_> = worker.pod.spec.volumes.iter().flat_map(tokens).collect();
    let renewals = tokens
        .iter()
        .map(|&(volume, source)| keep_fresh(life(source), move || replace(worker, volume, source)));
    join_all(renewals).await;
    pending().await
}

/// The tokens of a volume, each with the volume's name.
fn tokens(volume: &Volume) -> impl Iterator<Item = (&str, &ServiceAccountTokenProjection)> {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    sources.filter_map(|source| Some((volume.name.as_str(), source.service_account_token.as_ref()?)))
}

/// How long a new token is valid. The API server has set the field.
fn life(source: &ServiceAccountTokenProjection) -> Duration {
    Duration::from_secs(source.expiration_seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(3600))
}

/// Renews what is as old as three quarters of its life, so that attempts may fail for a while.
async fn keep_fresh<F>(life: Duration, mut renew: impl FnMut() -> F) -> Infallible
where
    F: Future<Output = Result<(), String>>,
{
    loop {
        tokio::time::sleep((life * 3 / 4).min(LONGEST_USE)).await;
        while let Err(error) = renew().await {
            tracing::warn!(error, "the token of a pod is not renewed");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

async fn replace(
    worker: &Worker,
    volume: &str,
    source: &ServiceAccountTokenProjection,
) -> Result<(), String> {
    let failed = |error: String| format!("pod {}: {error}", worker.key);
    let token = worker.client.token(&worker.pod.spec, source).await;
    let token = token.map_err(|error| failed(error.to_string()))?;
    let (folder, volume, path) = (worker.folder.clone(), volume.to_owned(), source.path.clone());
    let replaced = tokio::task::spawn_blocking(move || {
        folder.volumes()?.enter(&volume)?.replace(&path, token.as_bytes())
    });
    replaced.await.unwrap_or_else(|panic| Err(panic.into())).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::ready;

    use serde_json::json;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// The seconds after which a token of this life was renewed, where these attempts fail.
    async fn renewals(life: u64, failing: std::ops::Range<usize>) -> Vec<u64> {
        let (begun, mut attempts, mut renewed) = (Instant::now(), 0, Vec::new());
        let keeping = keep_fresh(Duration::from_secs(life), || {
            attempts += 1;
            if failing.contains(&attempts) {
                return ready(Err("busy".to_owned()));
            }
            renewed.push(begun.elapsed().as_secs());
            ready(Ok(()))
        });
        assert!(timeout(Duration::from_secs(3 * life - 1), keeping).await.is_err());
        renewed
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_before_four_fifths_of_its_life() {
        assert_eq!(renewals(600, 0..0).await, [450, 900, 1350]);
        assert_eq!(
            renewals(600, 1..4).await,
            [480, 930, 1380],
            "an API server that is busy for half a minute"
        );
        let day = 24 * 60 * 60;
        assert_eq!(renewals(10 * day, 0..0).await.first(), Some(&day));
    }

    #[test]
    fn all_tokens_of_a_volume_are_renewed() {
        let token = |path: &str, seconds: u64| json!({"serviceAccountToken": {"path": path, "expirationSeconds": seconds}});
        let sources = json!([token("a", 600), {"downwardAPI": {}}, token("b/c", 7200)]);
        let volume: Volume =
            serde_json::from_value(json!({"name": "v", "projected": {"sources": sources}})).unwrap();
        let found: Vec<_> =
            tokens(&volume).map(|(volume, source)| (volume, &*source.path, life(source).as_secs())).collect();
        assert_eq!(found, [("v", "a", 600), ("v", "b/c", 7200)]);
        assert_eq!(tokens(&Volume::default()).count(), 0);
    }
}
