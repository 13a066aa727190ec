//! Loads as readable files: the Jobs and their schedule, the run times of pods, and the faults meanwhile.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::faults::TimedFault;

/// A load.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Load {
    /// Groups of equal Jobs.
    pub(crate) waves: Vec<Wave>,
    /// Faults of the API server. Only the embedded one has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) faults: Vec<TimedFault>,
}

/// A group of equal Jobs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wave {
    /// Prefix of the Jobs' names.
    pub(crate) name: String,
    /// Number of Jobs.
    pub(crate) jobs: u32,
    /// Time of the first creation, from the start of the load.
    #[serde(default)]
    pub(crate) start: SignedDuration,
    /// Jobs created per second. 0: as fast as the API server accepts them.
    #[serde(default)]
    pub(crate) rate: f64,
    /// `spec.completions` of each.
    pub(crate) pods_per_job: u32,
    /// `spec.parallelism` of each.
    pub(crate) parallelism: u32,
    /// Run time of a pod, such as `500ms`. `all`: until the pods of all Jobs of the load run at once, up to
    /// their parallelism.
    pub(crate) run_time: RunTime,
    /// Share of pods that fail, from 0 to below 1.
    #[serde(default)]
    pub(crate) fail_ratio: f64,
    /// The Job, without the fields set above.
    pub(crate) job: Value,
}

/// Run time of a pod.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(untagged)]
pub(crate) enum RunTime {
    /// This duration.
    For(SignedDuration),
    /// Until it is released.
    Hold(Hold),
}

/// The notation for pods that run until they are released.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Hold {
    /// Until all places are taken.
    All,
}

impl RunTime {
    /// The value of the simulator's annotation.
    fn annotation(self) -> String {
        match self {
            Self::For(time) => humantime::format_duration(time.unsigned_abs()).to_string(),
            Self::Hold(Hold::All) => crate::pods::HOLD.to_owned(),
        }
    }
}

impl std::str::FromStr for RunTime {
    type Err = humantime::DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::Hold(Hold::All));
        }
        humantime::parse_duration(text)
            .map(|time| Self::For(SignedDuration::try_from(time).unwrap_or_default()))
    }
}

impl Load {
    /// Reads a load.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let load: Self = serde_saphyr::from_str(text).context("not a load")?;
        for wave in &load.waves {
            ensure!(wave.jobs > 0 && wave.pods_per_job > 0, "wave {}: nothing to do", wave.name);
            ensure!(wave.parallelism > 0, "wave {}: parallelism must be at least 1", wave.name);
            ensure!(
                (0.0..1.0).contains(&wave.fail_ratio),
                "wave {}: failRatio is not from 0 to below 1",
                wave.name
            );
        }
        ensure!(!load.waves.is_empty(), "waves: none");
        Ok(load)
    }

    /// Reads a load from a file.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let name = || file.display().to_string();
        Self::parse(&std::fs::read_to_string(file).with_context(name)?).with_context(name)
    }

    /// Number of Jobs.
    pub(crate) fn jobs(&self) -> u64 {
        self.waves.iter().map(|wave| u64::from(wave.jobs)).sum()
    }

    /// Number of pods that must succeed.
    pub(crate) fn completions(&self) -> u64 {
        self.waves.iter().map(|wave| u64::from(wave.jobs) * u64::from(wave.pods_per_job)).sum()
    }

    /// Maximum number of active pods.
    pub(crate) fn places(&self) -> u64 {
        let places = |wave: &Wave| u64::from(wave.jobs) * u64::from(wave.parallelism.min(wave.pods_per_job));
        self.waves.iter().map(places).sum()
    }
}

impl Wave {
    /// Time of a Job's creation, from the start of the load.
    pub(crate) fn offset(&self, number: u32) -> Duration {
        let paced = if self.rate > 0.0 { f64::from(number) / self.rate } else { 0.0 };
        self.start.unsigned_abs() + Duration::from_secs_f64(paced)
    }

    /// Name of a Job.
    pub(crate) fn job_name(&self, number: u32) -> String {
        format!("{}-{number}", self.name)
    }

    /// The manifest of a Job.
    pub(crate) fn manifest(&self, number: u32, managed_by: Option<&str>) -> Value {
        let mut job = self.job.clone();
        job["apiVersion"] = json!("batch/v1");
        job["kind"] = json!("Job");
        job["metadata"]["name"] = json!(self.job_name(number));
        let spec = &mut job["spec"];
        spec["completions"] = json!(self.pods_per_job);
        spec["parallelism"] = json!(self.parallelism);
        if let Some(manager) = managed_by {
            spec["managedBy"] = json!(manager);
        }
        let annotations = &mut spec["template"]["metadata"]["annotations"];
        annotations[crate::pods::RUN_TIME] = json!(self.run_time.annotation());
        if self.fail_ratio > 0.0 {
            annotations[crate::pods::FAIL_RATIO] = json!(self.fail_ratio.to_string());
        }
        job
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_provided_loads_can_be_read() {
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/loads")).unwrap() {
            let load = Load::read(&entry.unwrap().path()).unwrap();
            assert!(load.places() <= load.completions());
        }
    }

    #[test]
    fn invalid_loads_are_refused_by_reason() {
        for (wrong, part) in [
            ("waves: []", "none"),
            (
                "waves: [{name: a, jobs: 1, podsPerJob: 1, parallelism: 0, runTime: 1s, job: {}}]",
                "parallelism",
            ),
            ("waves: [{name: a, jobs: 1, podsPerJob: 1, parallelism: 1, runTime: ever, job: {}}]", "runTime"),
            ("waves: [{name: a, jobs: 1, podsPerJob: 1, parallelism: 1, runTime: 1s, job: {}, x: 1}]", "x"),
        ] {
            let error = format!("{:#}", Load::parse(wrong).unwrap_err());
            assert!(error.contains(part) || error.contains("not a load"), "{wrong}: {error}");
        }
    }

    #[test]
    fn jobs_are_paced_and_carry_annotations_for_the_simulator() {
        let text = "waves: [{name: a, jobs: 4, start: 1s, rate: 2, podsPerJob: 3, parallelism: 2, runTime: all, \
                    failRatio: 0.2, job: {spec: {backoffLimit: 9}}}]";
        let load = Load::parse(text).unwrap();
        let wave = &load.waves[0];
        assert_eq!((load.jobs(), load.completions(), load.places()), (4, 12, 8));
        assert_eq!(wave.offset(3), Duration::from_millis(2500));
        let job = wave.manifest(1, Some("x.y/z"));
        let annotations = json!({crate::pods::RUN_TIME: "hold", crate::pods::FAIL_RATIO: "0.2"});
        assert_eq!(
            job,
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a-1"},
                "spec": {
                    "backoffLimit": 9, "completions": 3, "parallelism": 2, "managedBy": "x.y/z",
                    "template": {"metadata": {"annotations": annotations}},
                },
            })
        );
    }
}
