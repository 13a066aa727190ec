//! The rules by which an attack counts as held, and the outcome of an attack.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::attacks::Attack;
use super::user::Scale;
use super::victim::Latencies;
use crate::report::round;

/// Memory that the allocator may keep.
const ALLOCATOR_NOISE: u64 = 16 << 20;
/// Least limit for the answer of a health page.
const PAGE: Duration = Duration::from_secs(5);
const NOISES_OF_A_PAGE: u32 = 10;
/// Requests of the replicas that a write of the tenant may cause.
const REQUESTS_OF_A_WRITE: f64 = 10.0;

/// Answers of the API server that the victim waits for, one after the other, in each of its latencies.
const ANSWERS_OF_A_STEP: f64 = 10.0;

/// The limits of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rules {
    #[serde(serialize_with = "debug")]
    pub(super) scale: Scale,
    /// Jobs of the victim in each phase.
    pub(super) jobs: usize,
    pub(super) patience: Duration,
    pub(super) recovery: Duration,
    pub(super) noise: Duration,
    pub(super) memory_mib: u64,
    pub(super) requests_per_s: u64,
}

fn debug<S: Serializer>(scale: &Scale, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{scale:?}").to_lowercase())
}

/// The 99th percentiles of one phase, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Phase {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) deletion: f64,
    /// Of the API server's answers to a small write.
    pub(super) answer: f64,
    /// Of the time after which the API server shows a new Job to a watch.
    pub(super) shown: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hand_over: Option<f64>,
}

impl Phase {
    pub(super) fn of(latencies: &Latencies) -> Self {
        Self {
            start: p99(&latencies.starts),
            end: p99(&latencies.ends),
            deletion: p99(&latencies.deletions),
            answer: p99(&latencies.answers),
            shown: p99(&latencies.shown),
            hand_over: None,
        }
    }

    /// The part of a latency that is the API server's own, as one sees it who only writes and watches.
    fn api_server(&self) -> f64 {
        ANSWERS_OF_A_STEP * self.answer + self.shown
    }

    fn figures(&self) -> [(&'static str, f64); 4] {
        let hand_over = self.hand_over.unwrap_or_default();
        [("start", self.start), ("end", self.end), ("deletion", self.deletion), ("hand-over", hand_over)]
    }
}

/// The 99th percentile in milliseconds; of fewer than 100, the longest.
fn p99(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(index).map_or(0.0, |time| round(time.as_secs_f64() * 1000.0))
}

/// The figures of one attack, and the rules that it broke.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Outcome {
    pub(super) attack: &'static str,
    pub(super) about: String,
    /// The reason why it was not played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
    /// Every rule that was broken, with the figures.
    pub(super) broken: Vec<String>,
    pub(super) baseline: Phase,
    pub(super) during: Phase,
    pub(super) after: Phase,
    /// Resident bytes of the largest replica.
    pub(super) rss_before: u64,
    pub(super) rss_peak: u64,
    pub(super) rss_after: u64,
    /// Requests of all replicas in a second while only the tenant was active.
    pub(super) requests_per_s: f64,
    /// Accepted writes of the tenant in a second, meanwhile.
    pub(super) tenant_writes_per_s: f64,
    /// Accepted writes of the tenant.
    pub(super) tenant_writes: u64,
    /// Writes that the API server refused, by reason.
    pub(super) refused: BTreeMap<String, u64>,
    /// Seconds from the deletion of the tenant's objects until everything was as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recovered_after_s: Option<f64>,
    /// Seconds that all of it took.
    pub(super) wall_s: f64,
    /// Seconds since the begin, and resident bytes of the largest replica.
    pub(super) memory: Vec<(f64, f64)>,
}

impl Rules {
    /// Time within which a health page has to answer: five seconds, or more on a noisy machine.
    pub(super) fn page_limit(&self) -> Duration {
        PAGE.max(self.noise * NOISES_OF_A_PAGE)
    }

    /// Checks latencies during the attack: at most twice the baseline, or the baseline plus noise or the API
    /// server's own time.
    pub(super) fn slower(&self, baseline: &Phase, during: &Phase) -> Vec<String> {
        self.compare(baseline, during, 2.0, "during the attack")
    }

    /// Latencies after the attack: at most a tenth longer than before it, or more by noise.
    pub(super) fn still_slower(&self, baseline: &Phase, after: &Phase) -> Vec<String> {
        self.compare(baseline, &Phase { answer: 0.0, shown: 0.0, ..after.clone() }, 1.1, "after the attack")
    }

    fn compare(&self, baseline: &Phase, now: &Phase, times: f64, when: &str) -> Vec<String> {
        // A step of a Job waits for several answers, and for a watch to show them. If the tenant keeps the API server
        // busy, that is not the fault of the controllers, whose requests have a limit of their own.
        let noise = (self.noise.as_secs_f64() * 1000.0).max(now.api_server());
        let slower = |((what, before), (_, now)): ((&str, f64), (&str, f64))| {
            let limit = (before * times).max(before + noise);
            (now > limit).then(|| format!("{what} {now:.0} ms {when}, {before:.0} ms before"))
        };
        baseline.figures().into_iter().zip(now.figures()).filter_map(slower).collect()
    }

    /// Memory at its peak: at most the limit.
    pub(super) fn too_much_memory(&self, peak: u64) -> Option<String> {
        let limit = self.memory_mib << 20;
        (peak > limit).then(|| format!("{} MiB of memory, limit {}", peak >> 20, self.memory_mib))
    }

    /// Memory after the attack: at most a tenth more than before it, and what the allocator keeps.
    pub(super) fn kept_memory(before: u64, after: u64) -> Option<String> {
        let limit = before + before / 10 + ALLOCATOR_NOISE;
        (after > limit)
            .then(|| format!("{} MiB of memory after the attack, {} before", after >> 20, before >> 20))
    }

    /// Checks the rate of requests: the limit is a base, the requests that are due, and ten for each write of
    /// the tenant.
    pub(super) fn too_many_requests(
        &self,
        requests_per_s: f64,
        writes_per_s: f64,
        due_per_s: u32,
    ) -> Option<String> {
        let limit = self.requests_per_s as f64 + f64::from(due_per_s) + REQUESTS_OF_A_WRITE * writes_per_s;
        (requests_per_s > limit).then(|| format!("{requests_per_s:.0} requests/s, limit {limit:.0}"))
    }
}

impl Outcome {
    pub(super) fn of(attack: Attack) -> Self {
        Self { attack: attack.name(), about: attack.about(), ..Self::default() }
    }

    /// An attack that could not be played to its end.
    pub(super) fn unfinished(attack: Attack, error: &anyhow::Error) -> Self {
        Self { broken: vec![format!("not played to its end: {error:#}")], ..Self::of(attack) }
    }

    /// A line for the terminal.
    pub(super) fn line(&self) -> String {
        let verdict = match (&self.skipped, self.broken.is_empty()) {
            (Some(why), _) => return format!("attack {:<15} ... skipped: {why}", self.attack),
            (None, true) => "held".to_owned(),
            (None, false) => format!("BROKEN: {}", self.broken.join("; ")),
        };
        let figures = self.during.figures().into_iter().zip(self.baseline.figures());
        // Without a hand-over there is no figure.
        let figures = figures.filter(|((_, now), _)| *now > 0.0);
        let figures: Vec<String> =
            figures.map(|((what, now), (_, before))| format!("{what} {now:.0} ({before:.0})")).collect();
        format!(
            "attack {:<15} ... {} ms, {} MiB ({}), {:.0} requests/s, {:.0} s, {verdict}",
            self.attack,
            figures.join(", "),
            self.rss_peak >> 20,
            self.rss_before >> 20,
            self.requests_per_s,
            self.wall_s,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules {
            scale: Scale::Small,
            jobs: 3,
            patience: Duration::from_secs(10),
            recovery: Duration::from_secs(60),
            noise: Duration::from_millis(100),
            memory_mib: 512,
            requests_per_s: 30,
        }
    }

    fn phase(start: f64) -> Phase {
        Phase { start, ..Phase::default() }
    }

    #[test]
    fn latencies_may_double_or_differ_by_noise() {
        for (before, now, during, after) in
            [(10.0, 109.0, 0, 0), (10.0, 111.0, 1, 1), (1000.0, 1500.0, 0, 1), (1000.0, 2001.0, 1, 1)]
        {
            assert_eq!(rules().slower(&phase(before), &phase(now)).len(), during, "{before} {now}");
            assert_eq!(rules().still_slower(&phase(before), &phase(now)).len(), after, "{before} {now}");
        }
    }

    #[test]
    fn an_api_server_that_the_tenant_keeps_busy_is_not_the_fault_of_the_controllers() {
        for (answer, shown, broken) in [(99.0, 0.0, 0), (98.0, 0.0, 1), (0.0, 990.0, 0), (90.0, 80.0, 1)] {
            let during = Phase { answer, shown, ..phase(1000.0) };
            assert_eq!(rules().slower(&phase(10.0), &during).len(), broken, "{answer} {shown}");
        }
    }

    #[test]
    fn memory_and_requests_are_bounded() {
        assert!(rules().too_much_memory(512 << 20).is_none() && rules().too_much_memory(513 << 20).is_some());
        assert!(Rules::kept_memory(30 << 20, 48 << 20).is_none());
        assert!(Rules::kept_memory(30 << 20, 50 << 20).is_some());
        assert!(rules().too_many_requests(130.0, 10.0, 0).is_none());
        assert!(rules().too_many_requests(131.0, 10.0, 0).is_some());
    }

    #[test]
    fn few_latencies_are_judged_by_the_longest() {
        let times = [3, 1, 2].map(Duration::from_millis);
        assert_eq!((p99(&times), p99(&[])), (3.0, 0.0));
    }

    #[test]
    fn a_line_says_what_is_broken() {
        let held = Outcome { attack: "places", ..Outcome::default() };
        assert!(held.line().ends_with("held"), "{}", held.line());
        let broken = Outcome { broken: vec!["a".into(), "b".into()], ..held.clone() };
        assert!(broken.line().ends_with("BROKEN: a; b"), "{}", broken.line());
        let skipped = Outcome { skipped: Some("none".into()), ..held };
        assert_eq!(skipped.line(), "attack places          ... skipped: none");
    }
}
