//! The trace of one Job, as its actor records it: the start, waits, pods, hand-overs and the end.
//!
//! Pods are recorded when they have ended. Times that the API shows in whole seconds are made exact by the time
//! at which the actor saw the change, where it did.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::pod_sample::PodSample;
use crate::cluster::wire::{ObservedPod, PodRun};
use crate::job::plan::Wait;
use crate::job::pod::{Phase, Pod};
use crate::job::short_text::{short, short_word};
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::job::status::ConditionKind;
use crate::job::uid::Uid;
use crate::telemetry::traces::{Attribute, Caller, FinishedSpan, JobTrace, SpanKey, Thinning, names};

/// Waits that are shorter are not shown.
const SHORTEST_WAIT: SignedDuration = SignedDuration::from_millis(1);

/// The owner of the Job.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    /// Number of the shard.
    pub shard: u32,
    /// How often it has been claimed.
    pub epoch: u64,
    /// When the shard was claimed, if the Job was taken over with it.
    pub taken_over: Option<Timestamp>,
}

/// Records the trace of a Job. If the Job is not traced, it does nothing and holds nothing.
#[derive(Debug)]
pub struct JobTracer(Option<Box<Story>>);

#[derive(Debug)]
struct Story {
    trace: JobTrace,
    owner: Ownership,
    begun: bool,
    wait: Option<OpenWait>,
    waits: Thinning,
    pods: PodSample<PodRecord>,
    /// The first pods, until they end.
    watched: Vec<Watched>,
    draining: Option<Timestamp>,
    /// The end of the Job has been recorded.
    ended: bool,
}

#[derive(Debug)]
struct OpenWait {
    wait: Wait,
    since: Timestamp,
    message: Option<Box<str>>,
}

/// When changes of a pod were seen.
#[derive(Debug)]
struct Watched {
    pod: Uid,
    created: Timestamp,
    running: Option<Timestamp>,
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodEnd {
    Succeeded,
    Failed,
    Deleted,
}

/// A pod that has ended.
#[derive(Debug)]
struct PodRecord {
    uid: String,
    name: Box<str>,
    index: Option<u32>,
    attempt: Option<u32>,
    created: Timestamp,
    started: Option<Timestamp>,
    ended: Timestamp,
    end: PodEnd,
    run: PodRun,
}

impl JobTracer {
    /// A tracer for a Job that has just got an actor.
    pub fn new(trace: &JobTrace, job: &Job, owner: Ownership) -> Self {
        let status = &job.status;
        Self(trace.is_on().then(|| {
            Box::new(Story {
                trace: trace.clone(),
                owner,
                begun: false,
                wait: None,
                waits: Thinning::default(),
                pods: PodSample::new(status.succeeded.saturating_add(status.failed)),
                watched: Vec::new(),
                draining: None,
                ended: status.finished().is_some(),
            })
        }))
    }

    /// Records that the Job is about to be planned for.
    pub fn planning(&mut self, state: &JobState, now: Timestamp) {
        if let Some(story) = self.0.as_deref_mut().filter(|story| !story.begun) {
            story.begun = true;
            story.begin(state, now);
        }
    }

    /// Records why no pod is created, if none is. `refusal`: the API server's last refusal of a pod.
    pub fn waits(&mut self, wait: Option<&Wait>, refusal: Option<&str>, now: Timestamp) {
        if let Some(story) = self.0.as_deref_mut().filter(|story| !story.ended) {
            story.wait(wait, refusal, now);
        }
    }

    /// Records a reading of a pod of the Job, before `state` applies it.
    pub fn pod_seen(&mut self, seen: &ObservedPod, state: &JobState, now: Timestamp) {
        let Some(story) = self.0.as_deref_mut() else { return };
        let pod = &seen.pod;
        let end = match pod.phase {
            Phase::Succeeded => PodEnd::Succeeded,
            Phase::Failed => PodEnd::Failed,
            _ => return story.watch(pod, now),
        };
        // A pod that had ended before, and was released, has been recorded.
        let ends_now = state.pods.get(&pod.uid).map_or(pod.tracked, |known| !known.phase.is_final());
        if ends_now {
            story.pod_ended(pod, seen.run.as_deref(), end, now);
        }
    }

    /// Records that a pod was created.
    pub fn pod_created(&mut self, pod: &Pod, now: Timestamp) {
        if let Some(story) = self.0.as_deref_mut() {
            story.watch(pod, now);
        }
    }

    /// Records that a pod is gone, before `state` does.
    pub fn pod_gone(&mut self, uid: &Uid, state: &JobState, now: Timestamp) {
        let Some(story) = self.0.as_deref_mut() else { return };
        if let Some(pod) = state.pods.get(uid).filter(|pod| !pod.phase.is_final()) {
            story.pod_ended(pod, None, PodEnd::Deleted, now);
        }
    }

    /// Records that the Job goes to another owner.
    pub fn draining(&mut self, now: Timestamp) {
        if let Some(story) = self.0.as_deref_mut() {
            story.draining.get_or_insert(now);
        }
    }

    /// Records that this owner does nothing more for the Job.
    pub fn left(&mut self, now: Timestamp) {
        if let Some(story) = self.0.as_deref_mut().filter(|story| !story.ended) {
            story.leave(now);
        }
    }

    /// Records that the Job has ended, once that is written.
    pub fn finished(&mut self, job: &Job, now: Timestamp) {
        if let Some(story) = self.0.as_deref_mut().filter(|story| !story.ended) {
            story.finish(job, now);
        }
    }
}

impl Story {
    fn begin(&self, state: &JobState, now: Timestamp) {
        let job = &state.job;
        let mut attributes = self.ownership();
        let span = if state.is_new() {
            attributes.extend(size(job));
            FinishedSpan { key: Some(SpanKey::Start), ..FinishedSpan::new("job.start", job.created, now) }
        } else if let Some(claimed) = self.owner.taken_over.filter(|_| !self.ended) {
            FinishedSpan::new("handover.takeover", claimed, now)
        } else {
            return;
        };
        self.trace.export(FinishedSpan { attributes, caller: caller(job), ..span });
    }

    fn ownership(&self) -> Vec<Attribute> {
        vec![
            Attribute::new("yardmaster.shard", i64::from(self.owner.shard)),
            Attribute::new("yardmaster.epoch", i64::try_from(self.owner.epoch).unwrap_or(i64::MAX)),
        ]
    }

    fn wait(&mut self, wait: Option<&Wait>, refusal: Option<&str>, now: Timestamp) {
        let reason = |wait: &Wait| wait.reason();
        match (&mut self.wait, wait) {
            (Some(open), Some(wait)) if open.wait.reason() == reason(wait) => open.wait = wait.clone(),
            _ => {
                self.end_wait(now);
                self.wait = wait.map(|wait| OpenWait {
                    wait: wait.clone(),
                    since: now,
                    message: wait
                        .detail()
                        .map(String::into_boxed_str)
                        .or_else(|| refusal.filter(|_| matches!(wait, Wait::Refused(_))).map(Box::from)),
                });
            }
        }
    }

    fn end_wait(&mut self, now: Timestamp) {
        let Some(OpenWait { wait, since, message }) = self.wait.take() else { return };
        if now.duration_since(since) < SHORTEST_WAIT || !self.waits.keeps_next() {
            return;
        }
        let mut attributes = vec![Attribute::new("yardmaster.wait.reason", wait.reason())];
        attributes.extend(wait.until().map(|at| Attribute::new("yardmaster.wait.until", at.to_string())));
        attributes.extend(message.map(|text| Attribute::new("yardmaster.wait.message", text.into_string())));
        let name = format!("wait.{}", wait.reason());
        self.trace.export(FinishedSpan { attributes, ..FinishedSpan::new(name, since, now) });
    }

    /// Records a reading of one of the first pods.
    fn watch(&mut self, pod: &Pod, now: Timestamp) {
        if self.watched.is_empty() && !self.pods.awaits_first() {
            return;
        }
        let known = self.watched.iter().position(|watched| watched.pod == pod.uid);
        let known = match known {
            Some(known) => Some(known),
            None => self.pods.takes_first().then(|| {
                self.watched.push(Watched { pod: pod.uid.clone(), created: now, running: None });
                self.watched.len() - 1
            }),
        };
        if let Some(watched) = known.and_then(|known| self.watched.get_mut(known))
            && pod.phase == Phase::Running
        {
            watched.running.get_or_insert(now);
        }
    }

    fn pod_ended(&mut self, pod: &Pod, run: Option<&PodRun>, end: PodEnd, now: Timestamp) {
        let watched = self.watched.iter().position(|watched| watched.pod == pod.uid);
        let watched = watched.map(|at| self.watched.swap_remove(at));
        let is_first = watched.is_some() || self.pods.takes_first();
        let created = Timestamp::from(pod.created);
        let created = watched.as_ref().map_or(created, |watched| exact(created, watched.created));
        let ended = if end == PodEnd::Deleted { now } else { exact(pod.finished.into(), now) }.max(created);
        let running = watched.and_then(|watched| watched.running);
        let started = run.and_then(|run| run.started).or(pod.ready_since.map(Timestamp::from));
        let started = match (started, running) {
            (Some(reported), Some(seen)) => Some(exact(reported, seen)),
            (reported, seen) => reported.or(seen),
        };
        let record = || PodRecord {
            uid: pod.uid.to_string(),
            name: pod.name.clone(),
            index: pod.index,
            attempt: pod.place.map(|place| place.attempt),
            created,
            started: started.map(|started| started.clamp(created, ended)),
            ended,
            end,
            run: run.cloned().unwrap_or_default(),
        };
        let took = ended.duration_since(created);
        if let Some(record) = self.pods.ended(is_first, end == PodEnd::Failed, took, record) {
            record.export(&self.trace);
        }
    }

    /// Records open waits and pods, as this owner leaves the Job or the Job ends.
    fn close(&mut self, now: Timestamp) -> Attribute {
        self.end_wait(now);
        self.pods.take_slowest().for_each(|record| record.export(&self.trace));
        self.ended = true;
        Attribute::new("yardmaster.pods_left_out", i64::try_from(self.pods.left_out()).unwrap_or(i64::MAX))
    }

    fn leave(&mut self, now: Timestamp) {
        let left_out = self.close(now);
        if let Some(since) = self.draining {
            let mut attributes = self.ownership();
            attributes.push(left_out);
            let span = FinishedSpan::new("handover.drain", since, now);
            self.trace.export(FinishedSpan { attributes, ..span });
        }
    }

    fn finish(&mut self, job: &Job, now: Timestamp) {
        let Some(end) = job.status.finished() else { return };
        let left_out = self.close(now);
        let failed = end.kind == ConditionKind::Failed;
        let at = end.last_transition_time.map_or(now, |at| exact(at, now));
        let mut attributes = self.ownership();
        attributes.extend([
            Attribute::new("shard", i64::from(self.owner.shard)),
            Attribute::new("epoch", i64::try_from(self.owner.epoch).unwrap_or(i64::MAX)),
            Attribute::new("yardmaster.succeeded", i64::from(job.status.succeeded)),
            Attribute::new("yardmaster.failed", i64::from(job.status.failed)),
            Attribute::new("yardmaster.reason", short_word(&end.reason).into_owned()),
            Attribute::new("yardmaster.message", short(&end.message).into_owned()),
            left_out,
        ]);
        attributes.extend(size(job));
        self.trace.export(FinishedSpan {
            key: Some(SpanKey::Root),
            attributes,
            failure: failed.then(|| short_word(&end.reason).into_owned()),
            caller: caller(job),
            ..FinishedSpan::new("job", job.created, at)
        });
    }
}

impl PodRecord {
    fn export(self, trace: &JobTrace) {
        let Self { uid, name, index, attempt, created, started, ended, end, run } = self;
        let mut attributes = vec![
            Attribute::new(names::K8S_POD_NAME, name.into_string()),
            Attribute::new(names::K8S_POD_UID, uid.clone()),
            Attribute::new("yardmaster.pod.outcome", end.as_str()),
        ];
        let number = |key, number: Option<u32>| number.map(|number| Attribute::new(key, i64::from(number)));
        attributes.extend(number("yardmaster.pod.index", index));
        attributes.extend(number("yardmaster.pod.attempt", attempt));
        let text = |key, text: &Option<Arc<str>>| text.clone().map(|text| Attribute::new(key, text));
        attributes.extend(text(names::K8S_NODE_NAME, &run.node));
        attributes.extend(text(names::K8S_CONTAINER_NAME, &run.container));
        attributes.extend(text(names::K8S_POD_STATUS_REASON, &run.reason));
        let code = run.exit_code.map(|code| Attribute::new(names::PROCESS_EXIT_CODE, i64::from(code)));
        attributes.extend(code);
        let failure = (end == PodEnd::Failed).then(|| run.reason.as_deref().unwrap_or("Failed").to_owned());
        let parent = trace.export(FinishedSpan {
            key: Some(SpanKey::Pod(&uid)),
            attributes,
            failure,
            ..FinishedSpan::new("pod", created, ended)
        });
        let part = |name, key, from, to| {
            trace.export(FinishedSpan { key: Some(key), parent, ..FinishedSpan::new(name, from, to) })
        };
        part("pod.pending", SpanKey::PodPending(&uid), created, started.unwrap_or(ended));
        if let Some(started) = started {
            part("pod.running", SpanKey::PodRunning(&uid), started, ended);
        }
    }
}

impl PodEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Deleted => "Deleted",
        }
    }
}

/// When something happened that the API reports in whole seconds, and that was seen at `seen`: then, if that
/// is in the same second.
fn exact(reported: Timestamp, seen: Timestamp) -> Timestamp {
    let later = seen.duration_since(reported);
    if later >= SignedDuration::ZERO && later < SignedDuration::from_secs(1) { seen } else { reported }
}

/// The numbers that the Job asks for.
fn size(job: &Job) -> impl Iterator<Item = Attribute> {
    let spec = &job.spec;
    let mode = if spec.completion.indexes().is_some() { "Indexed" } else { "NonIndexed" };
    let completions = spec.completion.wanted();
    [
        Attribute::new("yardmaster.completion_mode", mode),
        Attribute::new("yardmaster.parallelism", i64::from(spec.parallelism)),
    ]
    .into_iter()
    .chain(completions.map(|wanted| Attribute::new("yardmaster.completions", i64::from(wanted))))
}

fn caller(job: &Job) -> Option<Caller<'_>> {
    let caller = job.options.caller.as_ref()?;
    Some(Caller { traceparent: &caller.traceparent, tracestate: &caller.tracestate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::fixture::at_ms;

    #[test]
    fn a_time_in_whole_seconds_is_made_exact_by_when_it_was_seen() {
        for (reported, seen, expected) in [
            (5_000, 5_000, 5_000),
            (5_000, 5_900, 5_900),
            // Seen too late, or by a clock that is behind.
            (5_000, 6_000, 5_000),
            (5_000, 4_900, 5_000),
        ] {
            assert_eq!(exact(at_ms(reported), at_ms(seen)), at_ms(expected), "{reported} {seen}");
        }
    }
}
