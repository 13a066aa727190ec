//! CronJobs in virtual time: the test's runtime skips all waiting.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicI64, Ordering};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::controllers::event_expiry;
use crate::controllers::tests::POISON;
use crate::exchange::delete_options::{DeleteOptions, Propagation};
use crate::rules::Subresource;
use crate::store::{Expect, HistoryLimits, NewVersion, Store};
use crate::time::Clock;
use crate::time::format_time;
use crate::verbs::{self, Writer, create, delete, update};

/// The minutes from 1970 to the beginning of each test.
const FIRST_MINUTE: i64 = 29_453_760;

/// A clock that goes with the runtime's, from 2026-01-01T00:00:00Z on, and can be set forward.
struct VirtualClock {
    start: Instant,
    /// The seconds that it was set forward.
    ahead: AtomicI64,
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::SeqCst);
        Timestamp::from_second(FIRST_MINUTE * 60 + ahead).unwrap() + self.start.elapsed()
    }
}

struct World {
    server: Arc<Server>,
    clock: Arc<VirtualClock>,
}

impl World {
    fn start() -> Self {
        let clock = Arc::new(VirtualClock { start: Instant::now(), ahead: AtomicI64::new(0) });
        let store = Store::new(&resources::plurals(), HistoryLimits::default());
        let server = Server::new(store, Arc::clone(&clock) as Arc<dyn Clock>, SmallRng::seed_from_u64(1));
        verbs::bootstrap(&server).unwrap();
        let world = Self { server: Arc::new(server), clock };
        tokio::spawn(run(Arc::clone(&world.server)));
        tokio::spawn(event_expiry::run(Arc::clone(&world.server)));
        world
    }

    /// Waits until this much time has passed since the beginning, such as `3m20s`.
    async fn at(&self, time: &str) {
        let until = self.clock.start + humantime::parse_duration(time).unwrap();
        // Half a second later, everything that was due has happened.
        tokio::time::sleep_until(until + Duration::from_millis(500)).await;
    }

    fn insert(&self, plural: &str, object: Value) {
        let resource = resources::stored(plural).unwrap();
        let writer = Writer::internal(&self.server, "test");
        create::insert(&self.server, resource, Some("default"), object, writer).unwrap();
    }

    /// Stores a CronJob that would be refused, as another version may have stored it.
    fn store_unchecked(&self, mut cron_job: Value) {
        let resource = resources::stored(CRON_JOBS).unwrap();
        resource.strategy.default_object(&mut cron_job);
        let key = object::key(Some("default"), object::meta(&cron_job, "name"));
        let (header, tail) = Object::encode(resource, cron_job);
        let stored = self.server.table(resource).put(&key, Expect::Absent, NewVersion { header, tail });
        assert!(stored.is_ok());
    }

    /// A CronJob with this schedule and other fields of the spec.
    fn cron_job(&self, name: &str, schedule: &str, more: Value) {
        self.insert(CRON_JOBS, cron_job(name, schedule, more));
    }

    fn get(&self, plural: &str, name: &str) -> Value {
        let resource = resources::stored(plural).unwrap();
        let found = self.server.table(resource).get(&object::key(Some("default"), name));
        found.map(|found| found.decode(resource)).unwrap_or_default()
    }

    fn status(&self, name: &str) -> Value {
        self.get(CRON_JOBS, name)["status"].clone()
    }

    fn all(&self, plural: &str) -> Vec<Value> {
        let resource = resources::stored(plural).unwrap();
        let page = self.server.table(resource).page("", None, None, None, |_| true).unwrap();
        page.items.iter().map(|object| object.decode(resource)).collect()
    }

    /// The Jobs by their minutes since the beginning.
    fn jobs(&self) -> Vec<i64> {
        let minute = |job: &Value| {
            let name = object::meta(job, "name");
            name.rsplit_once('-').and_then(|(_, minute)| minute.parse::<i64>().ok()).unwrap() - FIRST_MINUTE
        };
        self.all(JOBS).iter().map(minute).collect()
    }

    /// The minutes of the Jobs that are active by the status.
    fn active(&self, name: &str) -> Vec<i64> {
        let status = self.status(name);
        let names = status["active"].as_array().into_iter().flatten();
        let minute =
            |one: &Value| one["name"].as_str().unwrap().rsplit_once('-').unwrap().1.parse::<i64>().unwrap();
        names.map(|one| minute(one) - FIRST_MINUTE).collect()
    }

    /// Reasons, messages and counts of all events.
    fn events(&self) -> Vec<(String, String, i64)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let events = self.all("events");
        let of = |event: &Value| {
            (text(&event["reason"]), text(&event["message"]), event["count"].as_i64().unwrap())
        };
        let mut events: Vec<_> = events.iter().map(of).collect();
        events.sort();
        events
    }

    /// The messages of the events with this reason, each as often as it was counted.
    fn told(&self, reason: &str) -> Vec<(String, i64)> {
        let with_reason = self.events().into_iter().filter(|(one, ..)| one == reason);
        with_reason.map(|(_, message, count)| (message, count)).collect()
    }

    fn change(&self, plural: &str, name: &str, subresource: Subresource, change: impl Fn(&mut Value)) {
        let resource = resources::stored(plural).unwrap();
        let (key, writer) = (object::key(Some("default"), name), Writer::internal(&self.server, "test"));
        update::modify(&self.server, resource, &key, subresource, writer, |old| {
            let mut new = old.clone();
            change(&mut new);
            Ok(new)
        })
        .unwrap();
    }

    fn set(&self, name: &str, field: &str, value: &Value) {
        self.change(CRON_JOBS, name, Subresource::Main, |object| object["spec"][field] = value.clone());
    }

    /// Ends the Job of a minute as its controller would.
    fn end(&self, name: &str, minute: i64, succeeds: bool) {
        let now = format_time(self.server.now());
        let conditions =
            if succeeds { ["SuccessCriteriaMet", "Complete"] } else { ["FailureTarget", "Failed"] };
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let job = format!("{name}-{}", FIRST_MINUTE + minute);
        self.change(JOBS, &job, Subresource::Status, |job| {
            job["status"] = json!({
                "startTime": job["metadata"]["creationTimestamp"], "conditions": conditions.map(condition),
            });
            if succeeds {
                job["status"]["completionTime"] = now.clone().into();
            }
        });
    }

    fn delete(&self, plural: &str, name: &str) {
        let resource = resources::stored(plural).unwrap();
        let key = object::key(Some("default"), name);
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        delete::remove(&self.server, resource, &key, &options).unwrap();
    }
}

fn cron_job(name: &str, schedule: &str, more: Value) -> Value {
    let mut spec = json!({
        "schedule": schedule,
        "jobTemplate": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.f/g"]},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }}},
        },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_job_each_minute_and_few_of_those_that_have_ended() {
    let world = World::start();
    world.cron_job("tick", "* * * * *", json!({}));
    for minute in 1..=12 {
        world.at(&format!("{minute}m")).await;
        assert_eq!(world.active("tick"), [minute]);
        world.at(&format!("{minute}m20s")).await;
        world.end("tick", minute, minute % 4 != 0);
    }
    world.at("12m30s").await;
    // Three that have succeeded, and one that has failed.
    assert_eq!(world.jobs(), [9, 10, 11, 12]);
    assert_eq!(
        world.status("tick"),
        json!({"lastScheduleTime": "2026-01-01T00:12:00Z", "lastSuccessfulTime": "2026-01-01T00:11:20Z"})
    );
    let counts =
        ["SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"].map(|reason| world.told(reason).len());
    assert_eq!((world.events().len(), counts), (32, [12, 12, 8]));
    let last = FIRST_MINUTE + 12;
    assert!(
        world
            .told("SawCompletedJob")
            .contains(&(format!("Saw completed job: tick-{last}, condition: Failed"), 1))
    );
    world.delete(CRON_JOBS, "tick");
    world.at("20m").await;
    assert_eq!(world.jobs(), [9, 10, 11, 12]);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_as_its_template_and_belongs_to_its_cron_job() {
    let world = World::start();
    // 1 o'clock in Berlin is midnight in UTC.
    world.cron_job("daily", "2 1 * * *", json!({"timeZone": "Europe/Berlin"}));
    world.at("1m59s").await;
    assert_eq!(world.jobs(), [0; 0]);
    world.at("2m").await;
    let name = format!("daily-{}", FIRST_MINUTE + 2);
    let (job, cron_job) = (world.get(JOBS, &name), world.get(CRON_JOBS, "daily"));
    let metadata = &job["metadata"];
    assert_eq!(metadata["labels"], json!({"a": "b"}));
    let scheduled = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    assert_eq!(metadata["annotations"], json!({"c": "d", scheduled: "2026-01-01T01:02:00+01:00"}));
    assert_eq!(metadata["finalizers"], Value::Null);
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "daily", "uid": cron_job["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    });
    assert_eq!(metadata["ownerReferences"], json!([owner]));
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "i");
    let active = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": name, "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }]);
    assert_eq!(cron_job["status"], json!({"active": active, "lastScheduleTime": "2026-01-01T00:02:00Z"}));
    let event = &world.all("events")[0];
    assert_eq!((&event["reason"], &event["type"]), (&json!("SuccessfulCreate"), &json!("Normal")));
    assert_eq!(event["source"], json!({"component": "cronjob-controller"}));
    assert_eq!(event["involvedObject"]["uid"], cron_job["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_still_run_are_joined_or_waited_for_or_replaced() {
    for (policy, active, created) in
        [("Allow", vec![1, 2, 3], 3), ("Forbid", vec![1], 1), ("Replace", vec![3], 3)]
    {
        let world = World::start();
        world.cron_job("slow", "* * * * *", json!({"concurrencyPolicy": policy}));
        world.at("3m30s").await;
        assert_eq!((world.active("slow"), world.jobs()), (active.clone(), active), "{policy}");
        assert_eq!(world.told("SuccessfulCreate").len(), created, "{policy}");
        let already = world.told("JobAlreadyActive");
        assert_eq!(
            already.iter().map(|(_, count)| count).sum::<i64>(),
            if policy == "Forbid" { 2 } else { 0 }
        );
        assert_eq!(world.told("SuccessfulDelete").len(), if policy == "Replace" { 2 } else { 0 });
        if policy == "Forbid" {
            // The last one that was due starts now.
            world.end("slow", 1, true);
            world.at("3m40s").await;
            assert_eq!(world.active("slow"), [3]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_after_a_suspension_starts_unless_it_is_too_late() {
    // Deadline; the Jobs at once, and a minute later; misses that events report.
    let cases = [
        (Value::Null, vec![10], vec![10, 11], 0),
        (json!(20), vec![10], vec![10, 11], 0),
        (json!(19), vec![], vec![11], 1),
    ];
    for (deadline, at_once, later, missed) in cases {
        let world = World::start();
        world.cron_job("off", "* * * * *", json!({"suspend": true, "startingDeadlineSeconds": deadline}));
        // A fraction of a second counts, too.
        world.at("10m19s").await;
        assert_eq!(world.jobs(), [0; 0]);
        world.set("off", "suspend", &json!(false));
        world.at("10m30s").await;
        assert_eq!(world.jobs(), at_once, "{deadline}");
        world.at("11m").await;
        assert_eq!(world.jobs(), later, "{deadline}");
        let message = "Missed scheduled time to start a job: Thu, 01 Jan 2026 00:10:00 +0000";
        assert_eq!(world.told("MissSchedule"), vec![(message.to_owned(), 1); missed], "{deadline}");
        assert!(world.told("TooManyMissedTimes").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_makes_a_job_due() {
    let world = World::start();
    world.cron_job("later", "50 * * * *", json!({}));
    world.at("1m").await;
    // After a night in which the machine slept, no timer has noticed the time.
    world.clock.ahead.store(49 * 60, Ordering::SeqCst);
    world.at("1m11s").await;
    assert_eq!(world.jobs(), [50]);
}

#[tokio::test(start_paused = true)]
async fn too_many_misses_are_told() {
    let world = World::start();
    world.cron_job("off", "* * * * *", json!({"suspend": true}));
    world.at("101m").await;
    world.set("off", "suspend", &json!(false));
    world.at("101m1s").await;
    assert_eq!((world.jobs(), world.told("TooManyMissedTimes").len()), (vec![101], 1));
    world.at("103m").await;
    assert_eq!(world.told("TooManyMissedTimes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_they_were_last_counted() {
    let world = World::start();
    // The Job of minute 10 runs on, which each hour's Event says once more.
    world.cron_job("hourly", "10 * * * *", json!({"concurrencyPolicy": "Forbid"}));
    world.at("1h9m").await;
    assert_eq!((world.told("SuccessfulCreate").len(), world.events().len()), (1, 1));
    world.at("1h12m").await;
    assert_eq!((world.told("SuccessfulCreate").len(), world.told("JobAlreadyActive").len()), (0, 1));
    world.at("2h15m").await;
    let told = world.told("JobAlreadyActive");
    assert_eq!((told.len(), told[0].1), (1, 2), "{told:?}");
    world.set("hourly", "suspend", &json!(true));
    world.at("3h12m").await;
    assert!(world.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_schedule_begins_with_its_next_time() {
    let world = World::start();
    world.cron_job("rare", "0 0 1 1 *", json!({}));
    world.at("30m30s").await;
    world.set("rare", "schedule", &json!("*/20 * * * *"));
    world.at("39m").await;
    assert_eq!(world.jobs(), [0; 0]);
    world.at("40m").await;
    assert_eq!(world.jobs(), [40]);
}

#[tokio::test(start_paused = true)]
async fn periods_shorter_than_a_minute_share_the_job_of_a_minute() {
    let world = World::start();
    world.cron_job("quick", "@every 25s", json!({}));
    world.at("1m40s").await;
    assert_eq!((world.jobs(), world.active("quick")), (vec![0, 1], vec![0, 1]));
    assert_eq!(world.told("SuccessfulCreate").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_created_before_is_taken_for_the_one_that_is_due() {
    let world = World::start();
    world.cron_job("twice", "* * * * *", json!({}));
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "twice", "controller": true,
        "uid": world.get(CRON_JOBS, "twice")["metadata"]["uid"],
    });
    let job = |minute: i64, owners: Value| {
        let spec = &cron_job("", "", Value::Null)["spec"]["jobTemplate"]["spec"];
        let name = format!("twice-{}", FIRST_MINUTE + minute);
        json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec})
    };
    world.insert(JOBS, job(1, json!([owner])));
    world.insert(JOBS, job(2, json!([])));
    world.at("1m").await;
    assert_eq!(world.active("twice"), [1]);
    assert_eq!(world.told("UnexpectedJob").len(), 1);
    // The Job of another owner is left alone.
    world.at("2m").await;
    assert_eq!(world.active("twice"), [1]);
    world.at("3m").await;
    assert_eq!(world.active("twice"), [1, 3]);
    // A Job that a user deletes is no longer active.
    world.delete(JOBS, &format!("twice-{}", FIRST_MINUTE + 3));
    world.at("3m10s").await;
    assert_eq!(world.active("twice"), [1]);
    assert_eq!(
        world.told("MissingJob"),
        [(format!("Active job went missing: twice-{}", FIRST_MINUTE + 3), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_job_is_tried_again_ever_less_often() {
    let world = World::start();
    let mut refused = cron_job("bad", "* * * * *", json!({}));
    refused["spec"]["jobTemplate"]["spec"]["parallelism"] = json!(-1);
    refused["metadata"] = json!({
        "name": "bad", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    world.store_unchecked(refused);
    world.at("1m59s").await;
    // At once, then after 1 s, 2 s, 4 s and so on.
    let told = world.told("FailedCreate");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].1, 6);
    assert!(
        told[0].0.starts_with("Error creating job: Job.batch \"bad-29453761\" is invalid: spec.parallelism")
    );
    world.change(CRON_JOBS, "bad", Subresource::Main, |bad| {
        bad["spec"]["jobTemplate"]["spec"]["parallelism"] = json!(1);
    });
    world.at("2m1s").await;
    assert_eq!(world.jobs(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_never_comes_and_a_lost_time_zone_are_told() {
    let world = World::start();
    world.cron_job("never", "0 0 31 2 *", json!({}));
    let mut lost = cron_job("lost", "* * * * *", json!({"timeZone": "Europe/Atlantis"}));
    lost["metadata"] = json!({"name": "lost", "namespace": "default", "uid": "u"});
    world.store_unchecked(lost);
    world.at("5m").await;
    assert_eq!(world.jobs(), [0; 0]);
    let invalid =
        "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second";
    assert_eq!(world.told("InvalidSchedule"), [(invalid.to_owned(), 1)]);
    let unknown = "invalid timeZone: \"Europe/Atlantis\": unknown time zone Europe/Atlantis";
    assert_eq!(world.told("UnknownTimeZone"), [(unknown.to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_that_makes_the_controller_panic_stops_no_other() {
    let world = World::start();
    world.cron_job(POISON, "* * * * *", json!({}));
    world.cron_job("tick", "* * * * *", json!({}));
    world.at("2m").await;
    assert_eq!(world.jobs(), [1, 2]);
}
