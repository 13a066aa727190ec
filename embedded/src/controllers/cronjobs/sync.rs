//! A look at a CronJob, by the rules of Kubernetes' controller.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use yardmaster_manifest::job_of_template;

use super::jobs::{COMPLETE, ControlledJob, DecodedJobs, FAILED, reference};
use super::starts::{Starts, is_too_late};
use super::{CRON_JOBS, JOBS, Memory};
use crate::controllers::MANAGER;
use crate::controllers::events::EventType::{self, Normal, Warning};
use crate::error::ApiError;
use crate::exchange::delete_options::{DeleteOptions, Propagation};
use crate::object::{self, Object, meta};
use crate::resources::{self, Resource};
use crate::rules::Subresource;
use crate::rules::cron_schedule::CronSchedule;
use crate::server::Server;
use crate::verbs::{Writer, create, delete, update};

/// The annotation of a Job with the time for which it was created.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Why a look has to be repeated.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error("the stored object cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("this kind is not served")]
    NotServed,
    #[error("{0}")]
    Refused(String),
}

impl From<ApiError> for LookError {
    fn from(error: ApiError) -> Self {
        Self::Refused(error.message.clone())
    }
}

/// Brings a CronJob up to date: deletes old Jobs, records the state of the others in its status, and starts
/// the Job that is due. Returns the time of the next Job.
pub(super) fn look(server: &Server, key: &str, memory: &mut Memory) -> Result<Option<Timestamp>, LookError> {
    let resource = resources::stored(CRON_JOBS).ok_or(LookError::NotServed)?;
    let Some(stored) = server.table(resource).get(key) else { return Ok(None) };
    let decoded = stored.decode(resource);
    let cron_job: CronJob = serde_json::from_value(decoded.clone())?;
    let about = reference("CronJob", &decoded);
    let spec = cron_job.spec;
    let status = cron_job.status.unwrap_or_default();
    let jobs_kind = resources::stored(JOBS).ok_or(LookError::NotServed)?;
    let template = decoded["spec"]["jobTemplate"].clone();
    let mut look = Look {
        server,
        memory,
        jobs_kind,
        about,
        spec,
        template,
        before: status.clone(),
        status,
        now: server.now(),
    };
    let uid = &stored.header.uid;
    let mut jobs = look.memory.jobs.remove(uid).unwrap_or_default();
    look.find_jobs(uid, &mut jobs)?;
    look.delete_oldest(&jobs);
    look.account(&jobs);
    look.memory.jobs.insert(uid.clone(), jobs);
    let metadata = cron_job.metadata;
    let is_deleting = metadata.deletion_timestamp.is_some();
    let created = metadata.creation_timestamp.map(|Time(time)| time);
    let outcome = if is_deleting { Ok(None) } else { look.start(created) };
    look.write_status(resource, key)?;
    outcome
}

struct Look<'a> {
    server: &'a Server,
    memory: &'a mut Memory,
    jobs_kind: &'static Resource,
    /// The CronJob, as events name it.
    about: ObjectReference,
    spec: CronJobSpec,
    /// `spec.jobTemplate` as it is stored.
    template: Value,
    /// The status as it is stored.
    before: CronJobStatus,
    status: CronJobStatus,
    now: Timestamp,
}

impl Look<'_> {
    fn uid(&self) -> &str {
        self.about.uid.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.about.name.as_deref().unwrap_or_default()
    }

    fn record(&mut self, kind: EventType, reason: &'static str, message: String) {
        self.memory.events.record(self.server, &self.about, kind, reason, message);
    }

    /// Brings the Jobs that this CronJob controls up to date.
    fn find_jobs(&self, uid: &str, jobs: &mut DecodedJobs) -> Result<(), LookError> {
        let prefix = format!("{}/", self.namespace());
        let is_owned = |job: &Object| job.header.owners.iter().any(|owner| *owner.uid == *uid);
        let page = self.server.table(self.jobs_kind).page(&prefix, None, None, None, is_owned);
        let owned = page.map(|page| page.items).unwrap_or_default();
        jobs.update(owned, |job| {
            let job = job.decode(self.jobs_kind);
            if self.controls(&job) { ControlledJob::of(job).map(Some) } else { Ok(None) }
        })?;
        Ok(())
    }

    fn controls(&self, job: &Value) -> bool {
        let mut owners = job["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["controller"] == true && owner["uid"] == self.uid())
    }

    /// Deletes the oldest of the Jobs that have ended, beyond the limits of the history.
    fn delete_oldest(&mut self, jobs: &DecodedJobs) {
        let limits = [
            (COMPLETE, self.spec.successful_jobs_history_limit),
            (FAILED, self.spec.failed_jobs_history_limit),
        ];
        for (end, limit) in limits {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let mut ended: Vec<_> =
                jobs.controlled().filter(|job| !job.is_deleting && job.end == Some(end)).collect();
            ended.sort_by(|one, other| one.age().cmp(&other.age()));
            for job in ended.iter().take(ended.len().saturating_sub(limit)) {
                // If the deletion fails, an event reports it.
                let _ = self.delete(job.reference.clone());
            }
        }
    }

    /// Deletes a Job, with its pods.
    fn delete(&mut self, job: ObjectReference) -> Result<(), LookError> {
        let name = job.name.unwrap_or_default();
        let key = object::key(Some(self.namespace()), &name);
        let options = DeleteOptions {
            propagation: Some(Propagation::Background),
            uid: job.uid.clone(),
            ..DeleteOptions::default()
        };
        match delete::remove(self.server, self.jobs_kind, &key, &options) {
            Ok(_) => {
                self.remove_active(job.uid.as_deref());
                self.record(Normal, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(())
            }
            Err(error) => {
                self.record(Warning, "FailedDelete", format!("Deleted job: {}", error.message));
                Err(error.into())
            }
        }
    }

    /// Records in the status which Jobs are active, and when one has succeeded.
    fn account(&mut self, jobs: &DecodedJobs) {
        for job in jobs.controlled() {
            let is_active = self.active().iter().any(|one| one.uid == job.reference.uid);
            match job.end {
                None if !is_active => {
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {}", job.name());
                    self.record(Warning, "UnexpectedJob", message);
                }
                None => {}
                Some(end) => {
                    if is_active {
                        self.remove_active(job.reference.uid.as_deref());
                        let message = format!("Saw completed job: {}, condition: {end}", job.name());
                        self.record(Normal, "SawCompletedJob", message);
                    }
                    let known = &mut self.status.last_successful_time;
                    if end == COMPLETE && job.completion > *known {
                        known.clone_from(&job.completion);
                    }
                }
            }
        }
        for gone in self.active().to_vec() {
            if !jobs.controlled().any(|job| job.reference.uid == gone.uid) {
                let name = gone.name.as_deref().unwrap_or_default();
                self.record(Normal, "MissingJob", format!("Active job went missing: {name}"));
                self.remove_active(gone.uid.as_deref());
            }
        }
    }

    fn active(&self) -> &[ObjectReference] {
        self.status.active.as_deref().unwrap_or_default()
    }

    fn remove_active(&mut self, uid: Option<&str>) {
        if let Some(active) = &mut self.status.active {
            active.retain(|one| one.uid.as_deref() != uid);
            if active.is_empty() {
                self.status.active = None;
            }
        }
    }

    /// Starts the Job that is due, if there is one. Returns the time of the next.
    fn start(&mut self, created: Option<Timestamp>) -> Result<Option<Timestamp>, LookError> {
        let Some((schedule, zone)) = self.schedule() else { return Ok(None) };
        let last = self.status.last_schedule_time.as_ref().map(|Time(time)| *time).or(created);
        let rescheduled = self.memory.rescheduled.get(self.uid()).copied();
        let Some(since) = last.max(rescheduled) else { return Ok(None) };
        let deadline = self.spec.starting_deadline_seconds;
        let Starts { latest, next, many } = Starts::of(&schedule, &zone, since, self.now, deadline);
        let Some(due) = latest else {
            if next.is_none() {
                let why = "time difference between two schedules is less than 1 second";
                let message = format!("invalid schedule: {} : {why}", self.spec.schedule);
                self.record(Warning, "InvalidSchedule", message);
            }
            return Ok(next);
        };
        if self.may_start(due, many) {
            self.replace_active()?;
            self.create(due, &zone)?;
        }
        Ok(next)
    }

    /// The schedule and its time zone; `None` if there is none to follow now.
    fn schedule(&mut self) -> Option<(CronSchedule, TimeZone)> {
        let zone = match &self.spec.time_zone {
            None => TimeZone::system(),
            Some(name) => match TimeZone::get(name) {
                Ok(zone) => zone,
                Err(_) => {
                    let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
                    self.record(Warning, "UnknownTimeZone", message);
                    return None;
                }
            },
        };
        if self.spec.suspend == Some(true) {
            return None;
        }
        match CronSchedule::parse(&self.spec.schedule) {
            Ok(schedule) => Some((schedule, zone)),
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", self.spec.schedule);
                self.record(Warning, "UnparseableSchedule", message);
                None
            }
        }
    }

    /// Whether a Job may start for this time. If not, events report it once.
    fn may_start(&mut self, due: Timestamp, many: bool) -> bool {
        let uid = self.uid().into();
        let is_new = self.memory.passed_over.insert(uid, due) != Some(due);
        if many && is_new {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.record(Warning, "TooManyMissedTimes", message.to_owned());
        }
        if is_too_late(due, self.now, self.spec.starting_deadline_seconds) {
            if is_new {
                let time = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
                let message = format!("Missed scheduled time to start a job: {time}");
                self.record(Warning, "MissSchedule", message);
            }
            return false;
        }
        let name = self.name_of_job(due);
        if self.active().iter().any(|one| one.name.as_deref() == Some(name.as_str())) {
            return false;
        }
        let waits = self.spec.concurrency_policy.as_deref() == Some("Forbid") && !self.active().is_empty();
        if waits && is_new {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.record(Normal, "JobAlreadyActive", message.to_owned());
        }
        !waits
    }

    /// The name of the Job of a time, which is the same for all times of a minute.
    fn name_of_job(&self, due: Timestamp) -> String {
        format!("{}-{}", self.name(), due.as_second() / 60)
    }

    fn replace_active(&mut self) -> Result<(), LookError> {
        if self.spec.concurrency_policy.as_deref() == Some("Replace") {
            for job in self.active().to_vec() {
                self.delete(job)?;
            }
        }
        Ok(())
    }

    fn create(&mut self, due: Timestamp, zone: &TimeZone) -> Result<(), LookError> {
        let (namespace, name) = (self.namespace().to_owned(), self.name_of_job(due));
        let job = self.job(&name, due, zone);
        let writer = Writer::internal(self.server, MANAGER);
        let created = create::insert(self.server, self.jobs_kind, Some(&namespace), job, writer);
        let created = match created {
            Ok((created, _)) => {
                self.record(Normal, "SuccessfulCreate", format!("Created job {name}"));
                created.decode(self.jobs_kind)
            }
            Err(error) if error.reason == "AlreadyExists" => {
                let key = object::key(Some(&namespace), &name);
                let existing = self.server.table(self.jobs_kind).get(&key);
                match existing.map(|existing| existing.decode(self.jobs_kind)) {
                    // Created before the status could say so.
                    Some(existing) if self.controls(&existing) => existing,
                    // The existing Job has another owner, or is gone already.
                    _ => return Ok(()),
                }
            }
            Err(error) => {
                if !is_about_namespace(&error) {
                    self.record(Warning, "FailedCreate", format!("Error creating job: {}", error.message));
                }
                return Err(error.into());
            }
        };
        self.status.active.get_or_insert_default().push(reference("Job", &created));
        self.status.last_schedule_time = Some(Time(due));
        Ok(())
    }

    /// The Job of a time, as the template has it.
    fn job(&self, name: &str, due: Timestamp, zone: &TimeZone) -> Value {
        let zone = if self.spec.time_zone.is_some() { zone.clone() } else { TimeZone::UTC };
        let time = due.to_zoned(zone);
        let time = if time.offset().is_zero() {
            time.strftime("%Y-%m-%dT%H:%M:%SZ")
        } else {
            time.strftime("%Y-%m-%dT%H:%M:%S%:z")
        };
        let mut job = job_of_template(&self.template, (SCHEDULED, &time.to_string()));
        job["metadata"]["name"] = name.into();
        job["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "CronJob", "name": self.name(), "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        job
    }

    fn write_status(&self, cron_jobs: &'static Resource, key: &str) -> Result<(), LookError> {
        if self.status == self.before {
            return Ok(());
        }
        let status = serde_json::to_value(&self.status)?;
        let writer = Writer::internal(self.server, MANAGER);
        let written =
            update::modify(self.server, cron_jobs, &key.into(), Subresource::Status, writer, |old| {
                let mut new = old.clone();
                // Another CronJob may have its name by now.
                if meta(old, "uid") == self.uid() {
                    new["status"] = status.clone();
                }
                Ok(new)
            });
        written.map(drop).map_err(LookError::from)
    }
}

/// Whether a creation was refused because the namespace is terminating.
fn is_about_namespace(error: &ApiError) -> bool {
    let causes = error.details.as_ref().and_then(|details| details["causes"].as_array());
    causes.into_iter().flatten().any(|cause| cause["reason"] == "NamespaceTerminating")
}
