//! A part of a plan, as a shrinker leaves it. Steps and Jobs that are cut away never happen; the others keep
//! their numbers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::plan::{Act, Fault, Plan, UserAct};
use crate::time::Time;

/// The part of a plan that is left. By default everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The steps that are left.
    pub keep: Option<List<Kept>>,
    /// The numbers of the Jobs that are left.
    pub jobs: Option<List<usize>>,
    /// The number of replicas.
    pub replicas: Option<usize>,
}

/// A list, as in `0,3/4,7`, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

/// A step that is left, as in `3`, or in `3/4` for a quarter of its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub step: usize,
    /// Its duration is divided by this number, at least 1.
    pub divisor: u32,
}

/// A list that cannot be read: what is wrong in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} does not belong in a list such as 0,3 (of steps also 3/4: a quarter of its duration), or none"
)]
pub struct ListError(String);

impl<T: FromStr> FromStr for List<T> {
    type Err = ListError;

    fn from_str(text: &str) -> Result<Self, ListError> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let part = |part: &str| part.parse().map_err(|_| ListError(part.to_owned()));
        text.split(',').map(part).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Kept {
    type Err = ListError;

    fn from_str(text: &str) -> Result<Self, ListError> {
        let (step, divisor) = text.split_once('/').unwrap_or((text, "1"));
        match (step.parse(), divisor.parse()) {
            (Ok(step), Ok(divisor)) if divisor > 0 => Ok(Self { step, divisor }),
            _ => Err(ListError(text.to_owned())),
        }
    }
}

impl<T: fmt::Display> fmt::Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return f.write_str("none") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|part| write!(f, ",{part}"))
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.divisor {
            1 => write!(f, "{}", self.step),
            divisor => write!(f, "{}/{divisor}", self.step),
        }
    }
}

/// The flags of `simulate` that give this part.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(keep) = &self.keep {
            write!(f, " --keep {keep}")?;
        }
        if let Some(jobs) = &self.jobs {
            write!(f, " --jobs {jobs}")?;
        }
        self.replicas.map_or(Ok(()), |replicas| write!(f, " --replicas {replicas}"))
    }
}

impl Cut {
    /// This part of a plan.
    pub fn of(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        for (number, step) in plan.steps.iter_mut().enumerate() {
            let Some(keep) = &self.keep else { break };
            match keep.0.iter().find(|kept| kept.step == number) {
                Some(kept) => duration_of(&mut step.act).into_iter().for_each(|time| *time /= kept.divisor),
                None => step.at = Time::NEVER,
            }
        }
        for (number, job) in plan.jobs.iter_mut().enumerate() {
            if self.jobs.as_ref().is_some_and(|jobs| !jobs.0.contains(&number)) {
                job.created = Time::NEVER;
                job.past = None;
            }
        }
        plan.settings.replicas = self.replicas.unwrap_or(plan.settings.replicas);
        plan
    }
}

/// How long something lasts.
pub(crate) fn duration_of(act: &mut Act) -> Option<&mut Duration> {
    match act {
        Act::User { act: UserAct::HoldPod { time, .. }, .. } => Some(time),
        Act::Rare(rare) => rare.duration(),
        Act::Tenant(act) => act.duration(),
        Act::Fault(
            Fault::Crash { down: time, .. }
            | Fault::Restart { down: time, .. }
            | Fault::Freeze { time, .. }
            | Fault::Suspend { time, .. }
            | Fault::Partition { time, .. }
            | Fault::Unreachable { time, .. }
            | Fault::LoseReplies { time, .. }
            | Fault::Slow { time, .. }
            | Fault::HoldWatches { time, .. }
            | Fault::RepeatEvents { time, .. }
            | Fault::CachesBehind { time, .. }
            | Fault::Refuse { time, .. }
            | Fault::Down { time }
            | Fault::Webhook { time, .. }
            | Fault::Restore { age: time }
            | Fault::Quota { time, .. }
            | Fault::Undecodable { time, .. }
            | Fault::Leadership { time, .. },
        ) => Some(time),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::generate;

    #[test]
    fn lists_are_written_as_they_are_read() {
        for text in ["none", "0", "0,3/4,7"] {
            assert_eq!(text.parse::<List<Kept>>().unwrap().to_string(), text);
        }
        for text in ["", "x", "3/0", "3/", "1,,2", "-1"] {
            assert!(text.parse::<List<Kept>>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_cut_away_keeps_its_number_and_never_happens() {
        let plan = (0..).map(generate).find(|plan| plan.steps.len() > 3 && plan.jobs.len() > 1).unwrap();
        let cut = Cut { keep: Some("1,2/2".parse().unwrap()), jobs: Some(List(vec![1])), replicas: Some(1) };
        let part = cut.of(&plan);
        assert_eq!((part.steps.len(), part.jobs.len()), (plan.steps.len(), plan.jobs.len()));
        let happening: Vec<usize> =
            (0..part.steps.len()).filter(|number| part.steps[*number].at < Time::NEVER).collect();
        assert_eq!(happening, [1, 2]);
        assert_eq!((part.jobs[0].created, part.jobs[1].created), (Time::NEVER, plan.jobs[1].created));
        assert_eq!(part.settings.replicas, 1);
        let (mut before, mut after) = (plan.steps[2].act.clone(), part.steps[2].act.clone());
        let halved = duration_of(&mut before).map(|time| *time / 2);
        assert_eq!(duration_of(&mut after).copied(), halved);
    }
}
