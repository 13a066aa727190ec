//! Tokens in volumes, which are replaced while they are valid.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::{join_all, pending};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;

use super::pod::Volume;
use super::worker::Worker;

/// The longest time that a token is in use, however long it is valid. Kubernetes has the same.
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time between attempts to replace a token.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time between two looks at the clock. Timers stand still while the machine sleeps, and tokens expire.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Replaces the tokens in the volumes of a pod, as long as it runs. They were new at `issued`. Containers that mount a volume by
/// `subPath` do not see that, as in Kubernetes.
pub(super) async fn renew(worker: &Worker, issued: Timestamp) -> Infallible {
    let tokens: Vec<_> = worker.pod.spec.volumes.iter().flat_map(tokens).collect();
    let renewals = tokens.iter().map(|&(volume, source)| {
        keep_fresh(Timestamp::now, issued, life(source), move || replace(worker, volume, source))
    });
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

/// Renews a token that is as old as three quarters of its life, so that attempts may fail for a while. The API
/// server judges the age by the time of day, and so does this.
async fn keep_fresh<F>(
    now: impl Fn() -> Timestamp,
    mut issued: Timestamp,
    life: Duration,
    mut renew: impl FnMut() -> F,
) -> Infallible
where
    F: Future<Output = Result<(), String>>,
{
    loop {
        wait_until(&now, issued + (life * 3 / 4).min(LONGEST_USE)).await;
        issued = now();
        while let Err(error) = renew().await {
            tracing::warn!(error, "the token of a pod is not renewed");
            tokio::time::sleep(RETRY_INTERVAL).await;
            issued = now();
        }
    }
}

/// Waits until a time of day, also if the machine sleeps meanwhile.
async fn wait_until(now: impl Fn() -> Timestamp, due: Timestamp) {
    while let Ok(left) = Duration::try_from(due.duration_since(now()))
        && !left.is_zero()
    {
        tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
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

    /// The seconds after which a token of this life and age was renewed, where these attempts fail. After the
    /// first 100 s the machine sleeps for a time.
    async fn renewals(life: u64, age: u64, sleep: u64, failing: std::ops::Range<usize>) -> Vec<u64> {
        let (begun, mut attempts, mut renewed) = (Instant::now(), 0, Vec::new());
        let now = || {
            let awake = begun.elapsed();
            let asleep = if awake.as_secs() < 100 { 0 } else { sleep };
            Timestamp::UNIX_EPOCH + awake + Duration::from_secs(age + asleep)
        };
        let keeping = keep_fresh(now, Timestamp::UNIX_EPOCH, Duration::from_secs(life), || {
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
        assert_eq!(renewals(600, 0, 0, 0..0).await, [450, 900, 1350]);
        assert_eq!(
            renewals(600, 0, 0, 1..4).await,
            [480, 930, 1380],
            "an API server that is busy for half a minute"
        );
        let day = 24 * 60 * 60;
        assert_eq!(renewals(10 * day, 0, 0, 0..0).await.first(), Some(&day));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_has_expired_in_a_sleep_is_renewed_at_once() {
        assert_eq!(renewals(600, 0, 3600, 0..0).await[..2], [100, 550]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_as_old_as_the_wait_for_its_pod() {
        assert_eq!(renewals(600, 300, 0, 0..0).await[..2], [150, 600]);
        assert_eq!(renewals(600, 900, 0, 0..0).await[..2], [0, 450]);
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
