//! A pair under way: the acts of a plan on both sides, and the first difference.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::future::try_join;
use serde_json::Value;
use tokio::sync::SemaphorePermit;
use tokio::time::sleep;

use super::class::Class;
use super::picks::{pinned, take};
use super::plan::{Pick, Plan, Step, What, job_name};
use super::rules::{Known, is_of_stripped, waits_longer};
use super::side::Side;
use super::state::{Difference, Differing, Field, Objects, State};
use super::yard::Yard;

/// How long no Job and no pod must change.
const QUIET: Duration = Duration::from_millis(2_300);
/// How long a difference must last, once everything is quiet.
const LASTING: Duration = Duration::from_secs(2);
/// The same where creations may wait for the back-off of requests, or for a controller that has just been started.
const LASTING_LONG: Duration = Duration::from_secs(20);
/// Longest time until both sides must be quiet.
const RESTLESS: Duration = Duration::from_secs(40);
/// How long a difference of pods is looked at for whether it passes.
pub(super) const HEALING: Duration = Duration::from_secs(25);
/// The same where ours is known to be later than the reference. It is longer than the back-off after six failures, the most
/// that a plan allows, and than some searches for pods without labels.
pub(super) const HEALING_LATE: Duration = Duration::from_secs(350);
/// A pause between two acts, so that the reference handles what was before it by itself. It handles a Job once a second.
const PAUSE: Duration = Duration::from_millis(2_500);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Steps that are played once all Jobs have ended.
const AFTER_THE_END: usize = 2;

/// The result of a plan.
#[derive(Clone, Debug)]
pub(super) struct Played {
    /// The plan up to the last step that was played, with picks by class.
    pub(super) plan: Plan,
    /// The state before each step. It was that of both sides.
    pub(super) before: Vec<State>,
    pub(super) outcome: Outcome,
    /// The rule that further plays have shown to explain the difference.
    pub(super) shown: Option<Known>,
}

/// The opponent of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opponent {
    Ours,
    /// Ours, where the reference gets the acts of the last step with pauses, each pod by itself.
    OursWithPauses(Pauses),
    /// The reference once more: a difference is then chance.
    Itself,
}

/// Where the reference gets a pause among the acts of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pauses {
    /// After this many acts.
    After(u32),
    Everywhere,
    /// After the acts on Jobs, or on other objects, which come first. A controller may see close acts in this order,
    /// since it watches Jobs and pods apart.
    AfterJobs(bool),
}

impl Pauses {
    /// A pause at each place between these acts, one at all places, and the orders of two watches.
    pub(super) fn between(acts: usize) -> impl Iterator<Item = Self> {
        let places = u32::try_from(acts.saturating_sub(1)).unwrap_or(u32::MAX);
        let everywhere = (places > 1).then_some(Self::Everywhere);
        let apart = [true, false].into_iter().filter(move |_| places > 0).map(Self::AfterJobs);
        (1..=places).map(Self::After).chain(everywhere).chain(apart)
    }

    /// The acts in the order in which they are played, and after how many of them a single pause comes.
    fn arrange(self, step: Step) -> (Step, Self) {
        let Self::AfterJobs(jobs_first) = self else { return (step, self) };
        let (mut first, then): (Vec<_>, Vec<_>) =
            step.0.into_iter().partition(|act| act.what.is_on_job() == jobs_first);
        let place = u32::try_from(first.len()).unwrap_or(u32::MAX);
        first.extend(then);
        (Step(first), Self::After(place))
    }

    /// The length of all pauses before an act, by its number.
    fn before(self, act: u32) -> Duration {
        match self {
            Self::After(acts) => PAUSE * u32::from(act >= acts),
            Self::Everywhere => PAUSE * act,
            // Arranged acts have the pause at a place.
            Self::AfterJobs(_) => Duration::ZERO,
        }
    }
}

/// The outcome.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Both sides came to this.
    Equal(Box<State>),
    Different(Box<Difference>),
    /// The plan could not be played, or both sides do not come to rest.
    Unfinished(String),
}

/// The two sides: the reference, and ours.
struct Pair<'a> {
    yard: &'a Yard,
    sides: [Side; 2],
    opponent: Opponent,
    lasting: Duration,
    patience: Duration,
    began: Instant,
    /// The right to play, until there are no more acts.
    place: Option<SemaphorePermit<'a>>,
}

impl Played {
    /// A plan that was not played.
    pub(super) fn unfinished(plan: Plan, why: String) -> Self {
        Self { plan, before: Vec::new(), outcome: Outcome::Unfinished(why), shown: None }
    }

    /// Plays a plan in new namespaces. `place` is given back after the last act. `patience`: how long a difference may take
    /// to pass, at most.
    pub(super) async fn of(
        yard: &Yard,
        plan: &Plan,
        opponent: Opponent,
        patience: Duration,
        place: Option<SemaphorePermit<'_>>,
    ) -> Self {
        let mut pair = match Pair::prepare(yard, plan, opponent, patience, place).await {
            Ok(pair) => pair,
            Err(error) => return Self::unfinished(plan.clone(), format!("{error:#}")),
        };
        let empty = Plan { steps: Vec::new(), ..plan.clone() };
        let mut played =
            Self { plan: empty, before: Vec::new(), outcome: Outcome::Equal(Box::default()), shown: None };
        if let Err(error) = pair.play(plan, &mut played).await {
            played.outcome = Outcome::Unfinished(format!("{error:#}"));
        }
        pair.end().await;
        played
    }

    /// The difference, if there is one.
    pub(super) fn difference(&self) -> Option<&Difference> {
        match &self.outcome {
            Outcome::Different(difference) => Some(difference),
            Outcome::Equal(_) | Outcome::Unfinished(_) => None,
        }
    }

    /// The states of the reference after this many steps. Both sides are the reference if `both`.
    pub(super) fn of_reference(&self, steps: usize, both: bool) -> Vec<&State> {
        if self.plan.steps.len() != steps {
            return Vec::new();
        }
        match &self.outcome {
            Outcome::Equal(state) => vec![state],
            Outcome::Different(difference) if both => vec![&difference.reference, &difference.ours],
            Outcome::Different(difference) => vec![&difference.reference],
            Outcome::Unfinished(_) => Vec::new(),
        }
    }

    /// Whether there is a difference that has passed without a further act.
    pub(super) fn has_passed(&self) -> bool {
        self.difference().is_some_and(|difference| difference.healed_after_s.is_some())
    }

    /// Whether this differs as another play does: first of all in the same field of the same Job.
    pub(super) fn differs_as(&self, other: &Self) -> bool {
        fn weightiest(played: &Played) -> Option<(Field, &str)> {
            let first = played.difference()?.fields.first()?;
            Some((first.field, &*first.job))
        }
        self.difference().is_some() && weightiest(self) == weightiest(other)
    }

    /// The state before the last step.
    pub(super) fn last_before(&self) -> Option<&State> {
        self.before.last()
    }
}

impl<'a> Pair<'a> {
    async fn prepare(
        yard: &'a Yard,
        plan: &Plan,
        opponent: Opponent,
        patience: Duration,
        place: Option<SemaphorePermit<'a>>,
    ) -> Result<Self> {
        let (reference, ours) = try_join(yard.side(false), yard.side(opponent != Opponent::Itself)).await?;
        let lasting = if plan.refuses() { LASTING_LONG } else { LASTING };
        Ok(Self { yard, sides: [reference, ours], opponent, lasting, patience, began: Instant::now(), place })
    }

    async fn play(&mut self, plan: &Plan, played: &mut Played) -> Result<()> {
        let mut state = State::default();
        let mut after_the_end = 0;
        for (number, step) in plan.steps.iter().enumerate() {
            let is_last = number + 1 == plan.steps.len();
            let step = pinned(step, state.pods.clone());
            if step.0.is_empty() {
                continue;
            }
            played.before.push(state);
            played.plan.steps.push(step.clone());
            let pauses = match self.opponent {
                Opponent::OursWithPauses(pauses) if is_last => Some(pauses),
                _ => None,
            };
            self.act(plan, &step, pauses).await?;
            match self.settle().await? {
                Ok(equal) => {
                    played.outcome = Outcome::Equal(Box::new(equal.clone()));
                    state = equal;
                }
                Err(difference) => {
                    played.outcome = Outcome::Different(self.watch(difference).await);
                    return Ok(());
                }
            }
            let is_over = |job: String| state.get(Field::Exists, &job).is_none() || state.is_finished(&job);
            let ended = (0..plan.jobs.len()).map(job_name).all(is_over);
            after_the_end += usize::from(ended);
            if after_the_end > AFTER_THE_END {
                break;
            }
        }
        Ok(())
    }

    fn objects(&self, side: usize) -> Objects {
        self.yard.mirror.objects(self.sides[side].namespace())
    }

    /// Plays a step on both sides at the same time, on the reference with pauses if there are any.
    async fn act(&mut self, plan: &Plan, step: &Step, pauses: Option<Pauses>) -> Result<()> {
        // A turn that lasted through pauses would keep other pairs waiting.
        let turn = if pauses.is_some() { None } else { self.yard.turn().await };
        let (singly, pauses) = match pauses {
            Some(pauses) => {
                let (singly, pauses) = pauses.arrange(step.singly());
                (singly, Some(pauses))
            }
            None => (step.clone(), None),
        };
        try_join(self.act_on(0, plan, &singly, pauses), self.act_on(1, plan, step, None)).await?;
        drop(turn);
        for act in &step.0 {
            if let What::Restart { turn } = act.what {
                self.yard.restart(turn).await?;
            }
        }
        Ok(())
    }

    async fn act_on(&self, number: usize, plan: &Plan, step: &Step, pauses: Option<Pauses>) -> Result<()> {
        let side = &self.sides[number];
        let objects = self.objects(number);
        let mut left: Vec<&Arc<Value>> = objects.pods.iter().collect();
        let chosen: Vec<Vec<&Value>> = step
            .0
            .iter()
            .map(|act| match &act.what {
                What::Pods { pick: Pick::Class(class), count, .. } => {
                    take(&mut left, *count, |pod| Class::of(pod, side.names.finalizer) == *class)
                }
                _ => Vec::new(),
            })
            .collect();
        let began = tokio::time::Instant::now();
        // Plays the acts in sequence: the API server must get them in the same order on both sides.
        for ((act, pods), turn) in step.0.iter().zip(chosen).zip(0..) {
            let pause = pauses.map_or(Duration::ZERO, |pauses| pauses.before(turn));
            tokio::time::sleep_until(began + Duration::from_millis(act.after_ms.into()) + pause).await;
            let _turn = if pauses.is_some() { self.yard.turn().await } else { None };
            self.act_one(side, plan, &act.what, &pods).await?;
        }
        Ok(())
    }

    async fn act_one(&self, side: &Side, plan: &Plan, what: &What, pods: &[&Value]) -> Result<()> {
        match what {
            What::Create { job } => match plan.jobs.get(*job) {
                Some(spec) => side.create_job(*job, spec).await,
                None => Ok(0),
            },
            What::Patch { job, patch } => side.patch_job(*job, patch).await,
            What::Delete { job, propagation } => side.delete_job(*job, *propagation).await,
            What::Refuse { pods } => side.label(&self.yard.refusal(*pods)).await,
            What::Quota { pods } => side.quota(*pods).await,
            What::Pods { change, .. } => side.change(pods, change).await,
            // Controllers are not those of a side alone.
            What::Restart { .. } => Ok(0),
        }
        .map(drop)
    }

    /// Waits until both sides are quiet. Returns their common state, or the difference that remains.
    async fn settle(&mut self) -> Result<Result<State, Box<Difference>>> {
        let began = Instant::now();
        let mut too_low = [BTreeMap::new(), BTreeMap::new()];
        loop {
            sleep(LOOK).await;
            let quiet = self.quiet_for(began);
            let is_disturbed = self.yard.is_disturbed();
            let is_late = began.elapsed() >= RESTLESS + LASTING_LONG && !is_disturbed;
            if quiet < QUIET && !is_late {
                continue;
            }
            self.note_too_low(&mut too_low);
            match self.compare(&too_low) {
                Ok(state) if quiet >= QUIET => return Ok(Ok(state)),
                Ok(_) => bail!("both sides do not come to rest"),
                Err(difference) if is_late => return Ok(Err(self.with_rest(difference))),
                Err(difference) if quiet >= QUIET + self.lasting_of(&difference) && !is_disturbed => {
                    return Ok(Err(difference));
                }
                Err(_) => {}
            }
        }
    }

    /// How long a difference must last. Clients may send Events late, since they limit their rate.
    fn lasting_of(&self, difference: &Difference) -> Duration {
        let waits = self.yard.is_catching_up() || difference.is_only(&[Field::Events]);
        if waits { LASTING_LONG } else { self.lasting }
    }

    /// Keeps by how many pods `active` of each Job was too low at most.
    fn note_too_low(&self, too_low: &mut [BTreeMap<String, u32>; 2]) {
        for (side, most) in self.sides.iter().zip(too_low) {
            for (job, pods) in self.yard.mirror.too_low(side.namespace()) {
                let most = most.entry(job).or_insert(0);
                *most = pods.max(*most);
            }
        }
    }

    /// How long both sides have been quiet, at most since then.
    fn quiet_for(&self, began: Instant) -> Duration {
        let changed = self.sides.iter().filter_map(|side| self.yard.mirror.changed(side.namespace()));
        changed.fold(began, Instant::max).elapsed()
    }

    fn compare(&mut self, too_low: &[BTreeMap<String, u32>; 2]) -> Result<State, Box<Difference>> {
        let objects = [self.objects(0), self.objects(1)];
        let [mut reference, mut ours] =
            [0, 1].map(|side| State::of(&objects[side], &mut self.sides[side].names, &too_low[side]));
        if self.yard.killed_since(self.began) {
            ours.restore_events(&reference);
            if self.yard.kills_reference() {
                reference.restore_events(&ours);
            }
        }
        match Difference::between(&reference, &ours) {
            Some(difference) => Err(Box::new(difference)),
            None => Ok(reference),
        }
    }

    /// Adds that one side rests and the other one does not.
    fn with_rest(&self, mut difference: Box<Difference>) -> Box<Difference> {
        let rests = |side: &Side| {
            self.yard.mirror.changed(side.namespace()).is_some_and(|at| at.elapsed() >= QUIET).to_string()
        };
        let [reference, ours] = [&self.sides[0], &self.sides[1]].map(rests);
        if reference != ours {
            let (job, reference, ours) = (String::new(), Some(reference), Some(ours));
            difference.fields.insert(0, Differing { field: Field::Rest, job, reference, ours });
        }
        difference
    }

    /// Looks whether a difference passes without a further act, as one of time does.
    async fn watch(&mut self, mut difference: Box<Difference>) -> Box<Difference> {
        let weightiest = difference.fields.first().map(|first| first.field);
        if weightiest.is_none_or(|field| field < Field::Active) {
            return difference;
        }
        // The pair only waits from now on.
        self.place = None;
        let began = Instant::now();
        let is_late = waits_longer(&difference) || is_of_stripped(&difference);
        let longest = if is_late { HEALING_LATE.min(self.patience) } else { HEALING };
        while began.elapsed() < longest {
            sleep(LOOK).await;
            if self.compare(&Default::default()).is_ok() {
                difference.healed_after_s = Some(began.elapsed().as_secs_f64());
                break;
            }
        }
        difference
    }

    async fn end(self) {
        for side in &self.sides {
            self.yard.end(side).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differ::plan::{Act, Propagation};

    #[test]
    fn the_reference_gets_the_acts_of_two_watches_in_either_order() {
        let act = |what| Act { after_ms: 0, what };
        let quota = |pods| act(What::Quota { pods: Some(pods) });
        let patch = act(What::Patch { job: 0, patch: Value::Null });
        let delete = act(What::Delete { job: 0, propagation: Propagation::Orphan });
        let step = Step(vec![quota(1), patch.clone(), quota(2), delete.clone()]);
        let (jobs_first, pause) = Pauses::AfterJobs(true).arrange(step.clone());
        assert_eq!(jobs_first.0, [patch.clone(), delete.clone(), quota(1), quota(2)]);
        assert_eq!((0..4).map(|act| pause.before(act)).collect::<Vec<_>>(), [0, 0, 1, 1].map(|n| PAUSE * n));
        let (jobs_last, _) = Pauses::AfterJobs(false).arrange(step.clone());
        assert_eq!(jobs_last.0, [quota(1), quota(2), patch, delete]);
        assert_eq!(Pauses::After(1).arrange(step.clone()), (step, Pauses::After(1)));
    }
}
