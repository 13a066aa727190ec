//! Jobs and pods as a hostile or newer API server could send them, through the rules and back to bytes.

use jiff::Timestamp;
use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};
use yardmaster::cluster::wire::{DecodeError, Decoder, JobDecoder, PodDecoder, status_patch, untrack_patch};
use yardmaster::job::gang_state::GangAnswer;
use yardmaster::job::limits::Limits;
use yardmaster::job::manifest::Maker;
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster::job::pod::Pod;
use yardmaster::job::reconcile::reconcile;
use yardmaster::job::spec::Job;
use yardmaster::job::state::{Changed, Created, JobState};

use crate::driver::{Target, fuzz};
use crate::{mutate, recorded};

/// A Job, its pods in the order of the events about them, and the seconds at which they arrive.
struct Jobs;

/// Looks at a Job after each event.
const LOOKS: usize = 3;

impl Target for Jobs {
    const NAME: &str = "jobs";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        let Ok(mut case) = serde_json::from_slice::<Value>(input) else {
            return mutate::bytes(input, others, random);
        };
        let other = others.choose(random).and_then(|other| serde_json::from_slice::<Value>(other).ok());
        let part = ["job", "pods", "seconds"][[0, 0, 1, 1, 1, 2][random.random_range(0..6)]];
        mutate::json(&mut case[part], other.as_ref().map(|other| &other[part]), random);
        if let Some(pods) = case["pods"].as_array_mut() {
            pods.truncate(40);
        }
        case.to_string().into_bytes()
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let Ok(case) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
        let pods: Vec<String> = case["pods"].as_array().into_iter().flatten().map(Value::to_string).collect();
        let seconds: Vec<i64> =
            case["seconds"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        play(&case["job"].to_string(), &pods, &seconds)
    }
}

/// Shows a Job its pods, one after the other, at these seconds, and carries out what it wants.
///
/// # Errors
/// If a request is malformed, or the Job has a value at which its decoder panics.
pub(crate) fn play(text: &str, pods: &[String], seconds: &[i64]) -> Result<(), String> {
    let seen = match JobDecoder::new().decode(text.as_bytes()) {
        Ok(seen) => seen,
        Err(DecodeError::Fault) => return Err("the decoder panics".into()),
        Err(_) => return Ok(()),
    };
    let Ok(job) = seen.job.clone() else { return Ok(()) };
    let limits = Limits { ttl_controller: true, gang_scheduling: true, ..Limits::default() };
    let mut state = JobState::new(job, limits);
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let pods: Vec<Pod> =
        pods.iter().filter_map(|pod| Some(decoder.decode(pod.as_bytes()).ok()?.pod)).collect();
    let mut seconds = seconds.iter().copied().cycle();
    let mut events = pods.iter();
    loop {
        let event = events.next();
        for _ in 0..LOOKS {
            let now = Timestamp::from_second(seconds.next().unwrap_or(0)).unwrap_or(Timestamp::MAX);
            if let Some(pod) = event {
                state.observe_pod(pod.clone(), now);
            }
            let plan = reconcile(&state, now);
            state.begin(&plan, now);
            if let Some(write) = &plan.status {
                let _: Value =
                    serde_json::from_slice(&status_patch(&state.job.status, &write.status, &seen.version))
                        .map_err(|error| format!("a status patch is no JSON: {error}"))?;
                state.observe_job(Job { status: write.status.clone(), ..state.job.clone() });
                state.status_written(now);
            }
            for new in &plan.creates {
                if let Ok(maker) = Maker::new(&state.job, EXTERNAL_FINALIZER, 1, None) {
                    let _: Value = serde_json::from_slice(&maker.manifest(new.clone()).body())
                        .map_err(|error| format!("a pod manifest is no JSON: {error}"))?;
                }
                let answers = [Created::NameTaken, Created::Refused];
                let answer = answers[new.place.number as usize % answers.len()].clone();
                state.created(new.place, answer, now);
            }
            if plan.gang.is_some() {
                state.gang_answered(GangAnswer::Group(None), now);
            }
            let deleted = plan.deletes.iter().map(|deletion| &deletion.pod);
            for (number, pod) in plan.releases.iter().chain(deleted).enumerate() {
                let _: Value = serde_json::from_slice(&untrack_patch(&pod.uid, EXTERNAL_FINALIZER))
                    .map_err(|error| format!("a patch is no JSON: {error}"))?;
                let answer = [Changed::Released, Changed::Gone, Changed::Refused][number % 3].clone();
                state.changed(&pod.uid, answer, now);
            }
            if plan.delete_job {
                state.deletion_refused(now);
            }
        }
        if event.is_none() {
            return Ok(());
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let jobs = recorded::objects(("batch/v1", "Job"));
    let pods = recorded::objects(("v1", "Pod"));
    let times = json!([1_767_225_600, 1_767_225_610, 1_767_229_200]);
    jobs.into_iter()
        .map(|(job, _)| {
            let uid = &job["metadata"]["uid"];
            let own = pods.iter().filter(|(pod, _)| pod["metadata"]["ownerReferences"][0]["uid"] == *uid);
            let own: Vec<_> = own.map(|(pod, _)| pod).take(6).collect();
            let some: Vec<_> = pods.iter().map(|(pod, _)| pod).take(2).collect();
            let pods = if own.is_empty() { some } else { own };
            json!({"job": job, "pods": pods, "seconds": times}).to_string().into_bytes()
        })
        .collect()
}

#[test]
fn jobs() {
    fuzz(&Jobs, seeds());
}
