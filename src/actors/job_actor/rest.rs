//! How long an actor rests after a reading of its Job that takes long to follow.
//!
//! All pods of the Job may mean something else, and all indexes of its status are compared. Whoever may write the Job may do so
//! again at once, and the thread works for other Jobs, too. So the actor rests for several times as long as the work takes. Until
//! then its inputs wait; of the readings of the Job, only the newest does.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::wire::ObservedJob;
use crate::job::state::JobState;

/// Rest for each pod that may mean something else. To look at one takes about 1 µs.
const REST_OF_POD: Duration = Duration::from_micros(5);
/// Rest for each creation that is withdrawn. To make a pod takes about 10 µs.
const REST_OF_CREATION: Duration = Duration::from_micros(100);
/// Rest for each byte of the lists in both statuses, of which an interval takes 11. To compare one takes about 0.05 µs.
const REST_OF_BYTE: Duration = Duration::from_nanos(25);
/// A shorter rest is none: no thread is held up by that.
const LEAST: Duration = Duration::from_millis(10);
/// No rest is longer. A Job of 100,000 pods is followed in half of that.
const MOST: Duration = Duration::from_secs(1);

/// The rest of an actor.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The rest that the inputs taken in so far ask for.
    due: Duration,
    until: Option<Instant>,
}

impl Rest {
    /// The state is about to follow a reading of its Job.
    pub(super) fn follows(&mut self, state: &JobState, before: &ObservedJob, seen: &ObservedJob) {
        let Ok(job) = &seen.job else { return };
        let mean_the_same = before.generation == seen.generation && state.job.options == job.options;
        let pods = if mean_the_same { 0 } else { state.pods.len() };
        let lists = [&state.job.status, &job.status];
        let bytes = match lists[0] == lists[1] {
            true => 0,
            false => lists.iter().map(|status| status.list_bytes()).sum(),
        };
        self.due = self.due.saturating_add(after(pods, bytes)).min(MOST);
    }

    /// So many creations are withdrawn. The pods were made for nothing.
    pub(super) fn withdraws(&mut self, creations: usize) {
        let rest = REST_OF_CREATION.saturating_mul(u32::try_from(creations).unwrap_or(u32::MAX));
        self.due = self.due.saturating_add(rest).min(MOST);
    }

    /// Begins the rest that is due, if one is. Returns how long it lasts.
    pub(super) fn begin(&mut self) -> Option<Duration> {
        let rest = Some(std::mem::take(&mut self.due)).filter(|rest| *rest >= LEAST)?;
        self.until = Some(Instant::now() + rest);
        Some(rest)
    }

    /// Whether it lasts.
    pub(super) fn lasts(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

fn after(pods: usize, bytes: usize) -> Duration {
    let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    REST_OF_POD.saturating_mul(times(pods)).saturating_add(REST_OF_BYTE.saturating_mul(times(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_work_is_followed_by_a_rest_and_a_short_one_is_not() {
        let mut rest = Rest { due: after(1_000, 100_000), ..Rest::default() };
        assert_eq!((rest.begin(), rest.lasts()), (None, false));
        rest.due = after(2_000, 2_400_000);
        assert_eq!((rest.begin(), rest.lasts()), (Some(Duration::from_millis(70)), true));
        assert_eq!(rest.begin(), None, "nothing was followed since");
        tokio::time::advance(Duration::from_millis(70)).await;
        assert!(!rest.lasts());
    }
}
