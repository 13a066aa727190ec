//! Back-off of refused requests about pods. A refusal holds back its own pod only.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::exponential::Exponential;
use super::plan::Plan;
use super::retry::Retry;
use super::tidying::Tidying;
use super::uid::Uid;

/// How many waiting pods a plan looks at before it leaves the others alone: if so many are refused, the trouble is
/// taken for a general one.
const MAX_WAITING: usize = 256;

/// The back-off of pods with refused requests.
#[derive(Clone, Debug, Default)]
pub struct PodRetries {
    refused: BTreeMap<Uid, Retry>,
    tidying: Tidying,
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
        if self.tidying.is_due(self.refused.len()) {
            self.refused.retain(|uid, _| is_known(uid));
            self.tidying.done(self.refused.len());
        }
        self.refused.entry(pod.clone()).or_default().refused(delays, now);
    }

    /// Takes in a success.
    pub fn accepted(&mut self, pod: &Uid) {
        self.refused.remove(pod);
    }

    /// The pods among these that requests may be sent about now, `room` at most. Pods that were never
    /// refused come first: none of them waits for others that are refused again and again. The plan comes
    /// back to those whose last request was refused.
    pub fn ready<'a, P>(
        &self,
        pods: impl Iterator<Item = &'a P>,
        uid: impl Fn(&P) -> &Uid,
        room: usize,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Vec<&'a P> {
        let (mut ready, mut again, mut waiting) = (Vec::new(), Vec::new(), 0);
        for pod in pods {
            if ready.len() >= room || waiting >= MAX_WAITING {
                break;
            }
            match self.refused.get(uid(pod)).map(|retry| retry.waits(now)) {
                Some(Some(at)) => {
                    plan.wake(at);
                    waiting += 1;
                }
                Some(None) if again.len() < room => again.push(pod),
                Some(None) => {}
                None => ready.push(pod),
            }
        }
        ready.extend(again);
        ready.truncate(room);
        ready
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::job::pod::Pod;
    use crate::job::tests::fixture::{at, pod};

    fn numbers(ready: &[&Pod]) -> Vec<usize> {
        ready.iter().map(|pod| pod.uid.to_string().parse().unwrap()).collect()
    }

    #[test]
    fn a_refusal_holds_back_its_own_pod_until_too_many_are_refused() {
        let pods: Vec<Pod> = (0..2 * MAX_WAITING).map(|number| pod(&format!("{number:03}"))).collect();
        let mut retries = PodRetries::default();
        let refuse = |retries: &mut PodRetries, number: usize, second| {
            retries.refused(&pods[number].uid, Exponential::API_REQUEST, at(second), |_| true);
        };
        let ready = |retries: &PodRetries, second| {
            let mut plan = Plan::default();
            (numbers(&retries.ready(pods.iter(), |pod| &pod.uid, 2, at(second), &mut plan)), plan.wake_at)
        };
        assert_eq!(ready(&retries, 0), (vec![0, 1], None));
        for number in 0..MAX_WAITING - 1 {
            refuse(&mut retries, number, 0);
            assert_eq!(ready(&retries, 0), (vec![number + 1, number + 2], Some(at(1))));
        }
        // An acceptance tells nothing about the others.
        retries.accepted(&pods[1].uid);
        assert_eq!(ready(&retries, 0), (vec![1, MAX_WAITING - 1], Some(at(1))));
        for number in [1, MAX_WAITING - 1] {
            refuse(&mut retries, number, 0);
        }
        assert_eq!(ready(&retries, 0), (vec![], Some(at(1))), "now all wait");
        refuse(&mut retries, 0, 1);
        assert_eq!(
            ready(&retries, 1),
            (vec![MAX_WAITING, MAX_WAITING + 1], Some(at(3))),
            "the second refusal of the first pod"
        );
        for number in MAX_WAITING..2 * MAX_WAITING {
            refuse(&mut retries, number, 1);
        }
        assert_eq!(ready(&retries, 2), (vec![1, 2], Some(at(3))), "all were refused");
    }

    #[test]
    fn pods_that_are_refused_for_good_do_not_starve_those_behind_them() {
        const REFUSED: usize = 2 * MAX_WAITING;
        const ROOM: usize = 10;
        let pods: Vec<Pod> = (0..REFUSED + 100).map(|number| pod(&format!("{number:03}"))).collect();
        let (mut retries, mut done) = (PodRetries::default(), std::collections::BTreeSet::new());
        for second in 0..600 {
            let left =
                pods.iter().enumerate().filter(|(number, _)| !done.contains(number)).map(|(_, pod)| pod);
            let ready = numbers(&retries.ready(left, |pod| &pod.uid, ROOM, at(second), &mut Plan::default()));
            for number in ready {
                if number < REFUSED {
                    retries.refused(&pods[number].uid, Exponential::API_REQUEST, at(second), |_| true);
                } else {
                    done.insert(number);
                }
            }
        }
        assert_eq!(done.len(), 100);
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let mut retries = PodRetries::default();
        for number in 0..100 {
            let uid = Uid::from(&*number.to_string());
            retries.refused(&uid, Exponential::API_REQUEST, at(0), |known| *known == uid);
        }
        assert!(retries.refused.len() <= 2, "{}", retries.refused.len());
    }
}
