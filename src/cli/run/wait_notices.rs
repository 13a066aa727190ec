//! Waits of Jobs that none of their pods shows.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use tokio::time::timeout;

use super::progress::Progress;
use super::tracker::Tracked;
use super::view::JobView;
use crate::cli::readable::Readable;
use crate::cli::untrusted::Untrusted;

/// How long a Job may wait before that is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Jobs whose Events are read at a time.
const BATCH: usize = 10;

/// Says of each Job once what it waits for.
pub(super) struct Waits {
    client: kube::Client,
    progress: Progress,
    /// UIDs of the Jobs of which it was said.
    told: HashSet<String>,
}

impl Waits {
    pub(super) fn new(client: kube::Client, progress: Progress) -> Self {
        Self { client, progress, told: HashSet::new() }
    }

    /// Looks at the Jobs that have no pods, in a batch, and says what they wait for.
    pub(super) async fn explain(&mut self, jobs: &[Tracked]) {
        let waiting =
            jobs.iter().filter(|tracked| tracked.end.is_none() && !self.told.contains(&tracked.uid));
        let idle = waiting
            .map(|tracked| (tracked, JobView::of(&tracked.job)))
            .filter(|(_, view)| view.active() == 0);
        let idle: Vec<_> = idle.take(BATCH).collect();
        for (tracked, view) in idle {
            let reason = match view.hold() {
                Some(hold) => Some(hold.to_string()),
                None if !view.has_begun() => Some(
                    "no controller has begun with it: see `yardmaster status` and `yardmaster check`"
                        .to_owned(),
                ),
                None => self.refusal(tracked).await,
            };
            if let Some(reason) = reason {
                self.progress.note(&format!("{}: {reason}", tracked.key()));
                self.told.insert(tracked.uid.clone());
            }
        }
    }

    /// Why the pods of a Job are refused, according to its newest such Event; none without the right to read it.
    async fn refusal(&self, tracked: &Tracked) -> Option<String> {
        let events: Api<Readable<Event>> = Api::namespaced(self.client.clone(), tracked.namespace());
        let its = format!("involvedObject.uid={},reason=FailedCreate", tracked.uid);
        let params = ListParams::default().fields(&its).limit(10);
        let listed = timeout(PATIENCE, events.list(&params)).await.ok()?.ok()?;
        let listed = listed.items.into_iter().map(|Readable(event)| event);
        let newest = listed.max_by_key(|event| event.metadata.creation_timestamp.clone())?;
        Some(format!("no pod can be created: {}", Untrusted::from(newest.message?)))
    }
}
