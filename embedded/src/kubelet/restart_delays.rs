//! How long a container waits before it runs again.

use std::time::Duration;

/// Delay before the second restart of a container; doubles up to [`MAX_RESTART_DELAY`].
const RESTART_DELAY: Duration = Duration::from_secs(10);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(300);
/// Running time after which the restart delay of a container is reset to zero.
const STABLE: Duration = Duration::from_secs(600);

/// The delays between restarts of a container: none before the first restart, then 10 s, 20 s, ... up to 5
/// min.
#[derive(Debug, Default)]
pub(super) struct RestartDelays {
    next: Duration,
}

impl RestartDelays {
    /// The delay before the next start, after a run of this length.
    pub(super) fn next(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= STABLE {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.next = (delay * 2).clamp(RESTART_DELAY, MAX_RESTART_DELAY);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delays_grow_until_a_stable_run() {
        let mut delays = RestartDelays::default();
        let seconds = |ran_for| delays.next(Duration::from_secs(ran_for)).as_secs();
        let sequence: Vec<_> = [1; 8].into_iter().chain([700, 1]).map(seconds).collect();
        assert_eq!(sequence, [0, 10, 20, 40, 80, 160, 300, 300, 0, 10]);
    }
}
