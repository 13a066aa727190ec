//! Back-off of refused requests about pods. A refusal holds back its own pod only. If too many pods are refused,
//! the trouble is taken for a general one, and the requests about all further pods wait together.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::exponential::Exponential;
use super::retry::Retry;
use super::uid::Uid;

/// Pods that have a back-off of their own. They are looked through by each plan.
const MAX_SINGLE: usize = 16;

/// The back-off of pods with refused requests.
#[derive(Clone, Debug, Default)]
pub struct PodRetries {
    single: BTreeMap<Uid, Retry>,
    shared: Retry,
}

impl PodRetries {
    /// Takes in a refusal. `is_known` tells which pods still exist: others no longer need their back-off.
    pub fn refused(
        &mut self,
        pod: &Uid,
        delays: Exponential,
        now: Timestamp,
        is_known: impl Fn(&Uid) -> bool,
    ) {
        self.single.retain(|uid, _| is_known(uid));
        if self.single.len() < MAX_SINGLE || self.single.contains_key(pod) {
            self.single.entry(pod.clone()).or_default().refused(delays, now);
        } else {
            self.shared.refused(delays, now);
        }
    }

    /// Takes in a success.
    pub fn accepted(&mut self, pod: &Uid) {
        self.single.remove(pod);
        self.shared.accepted();
    }

    /// The end of the wait for a pod, if there is one and it is not over.
    pub fn waits(&self, pod: &Uid, now: Timestamp) -> Option<Timestamp> {
        match self.single.get(pod) {
            Some(retry) => retry.waits(now),
            None => self.waits_for_all(now),
        }
    }

    /// The end of the wait for pods without a back-off of their own, if there is one and it is not over.
    pub fn waits_for_all(&self, now: Timestamp) -> Option<Timestamp> {
        self.shared.waits(now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pods_wait_alone_until_too_many_are_refused() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let uid = |number: usize| Uid::from(&*format!("{number:02}"));
        let mut retries = PodRetries::default();
        let refuse = |retries: &mut PodRetries, number, second| {
            retries.refused(&uid(number), Exponential::API_REQUEST, at(second), |pod| *pod != uid(3));
        };
        for number in 0..=MAX_SINGLE {
            refuse(&mut retries, number, 0);
            assert_eq!(retries.waits(&uid(number), at(0)), Some(at(1)));
            assert_eq!(retries.waits_for_all(at(0)), None, "{number}: one of them is gone");
        }
        refuse(&mut retries, 0, 1);
        assert_eq!(retries.waits(&uid(0), at(1)), Some(at(3)), "its second refusal");
        refuse(&mut retries, 98, 1);
        assert_eq!(retries.waits(&uid(99), at(1)), Some(at(2)), "now all wait");
        assert_eq!(retries.waits(&uid(1), at(1)), None, "but those with a back-off of their own");
        retries.accepted(&uid(1));
        assert_eq!(retries.waits(&uid(99), at(1)), None);
        assert_eq!(retries.waits(&uid(0), at(1)), Some(at(3)), "still refused");
        refuse(&mut retries, 98, 1);
        assert_eq!(retries.waits_for_all(at(1)), None, "there is room for one of them");
    }
}
