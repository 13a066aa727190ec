//! Reports the status of a pod to the API server in as few writes as possible.

use std::time::Duration;

use backon::BackoffBuilder;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use tokio::sync::watch;

use super::client::{PodClient, backoff, is_final};
use super::pod::PodSpec;
use super::status::PodRecord;

/// Time that a change may wait for the next one. A container that ends within this time needs one write, not
/// two.
const DEBOUNCE: Duration = Duration::from_millis(25);

/// Writes every state of the record that lasts, until the final one is written or the server refuses it. New
/// conditions keep the transition times of `conditions` where the status is the same.
pub(super) async fn report(
    client: &PodClient,
    spec: &PodSpec,
    mut conditions: Vec<PodCondition>,
    mut record: watch::Receiver<PodRecord>,
) {
    let mut backoff = backoff().build();
    loop {
        // The final state is written at once; any other state may be superseded by it.
        let end = async { record.wait_for(PodRecord::is_finished).await.map(drop) };
        let _ended = tokio::time::timeout(DEBOUNCE, end).await;
        let snapshot = record.borrow_and_update().clone();
        let status = snapshot.to_status(spec, &conditions, Timestamp::now());
        match client.patch_status(&status).await {
            Ok(()) => {
                conditions = status.conditions.unwrap_or_default();
                backoff = super::client::backoff().build();
                if snapshot.is_finished() || record.changed().await.is_err() {
                    return;
                }
            }
            Err(error) if is_final(&error) => {
                tracing::debug!(%error, "the status of a pod is refused");
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "cannot write the status of a pod");
                tokio::time::sleep(backoff.next().unwrap_or(DEBOUNCE)).await;
            }
        }
    }
}
