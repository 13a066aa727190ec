//! The state that a shard keeps of pods whose end its watch does not show, and of Jobs that are gone.
//! A tenant can make any number of them.

use actix::MessageResult;

use super::foreign_jobs::finished;
use super::*;

#[derive(Message)]
#[rtype(result = "HeldPods")]
struct Held;

/// The numbers of pods in the tables of the shard.
#[derive(Debug, PartialEq, Eq)]
struct HeldPods {
    waiting: usize,
    releasing: usize,
    hidden: usize,
}

const NONE: HeldPods = HeldPods { waiting: 0, releasing: 0, hidden: 0 };

impl Handler<Held> for ShardActor {
    type Result = MessageResult<Held>;

    fn handle(&mut self, _: Held, _: &mut Self::Context) -> Self::Result {
        let [waiting, releasing] = self.orphan_pods.held();
        MessageResult(HeldPods { waiting, releasing, hidden: self.hidden.held() })
    }
}

#[derive(Message)]
#[rtype(result = "HeldJobs")]
struct HeldOfJobs;

/// The numbers of Jobs in the tables of the shard.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldJobs {
    known: usize,
    /// Waits on the board.
    waiting: usize,
    /// Jobs that need their pods shown again.
    to_show: usize,
}

impl Handler<HeldOfJobs> for ShardActor {
    type Result = MessageResult<HeldOfJobs>;

    fn handle(&mut self, _: HeldOfJobs, _: &mut Self::Context) -> Self::Result {
        let (known, (waiting, _)) = (self.jobs.len(), self.owned.waits.read());
        MessageResult(HeldJobs { known, waiting, to_show: self.live_lists.to_show() })
    }
}

impl Shard {
    async fn held_jobs(&self) -> HeldJobs {
        self.0.send(HeldOfJobs).await.unwrap()
    }

    async fn vanished(&self, job: &str) {
        self.0.send(JobVanished(job.into())).await.unwrap();
    }
}

fn ended(mut pod: Value) -> Value {
    pod["metadata"]["finalizers"] = json!([]);
    at(120, "Failed", pod)
}

/// They left the watch while they were not being deleted, so only their labels may have changed.
#[test]
fn pods_that_are_gone_though_they_were_not_being_deleted_are_not_kept() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/pods/p") => refusal(404),
            _ => None,
        });
        let api = api.after(2 * SOON);
        let shard = Shard::start(&api, &[job("j", up_to_date(0))], vec![]).await;
        let left = (0..1_000).map(|number| {
            Change::Deleted(observed_pod(&at(110 + number, "Pending", pod(&format!("p{number}"), "j"))))
        });
        shard.watched(left.collect()).await;
        sleep(SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), HeldPods { hidden: 1_000, ..NONE });
        sleep(Duration::from_secs(200)).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), NONE);
    });
}

/// It waits for a Job of another shard until it cannot be read and is deleted.
#[test]
fn a_pod_that_cannot_be_read_when_it_is_deleted_is_not_kept() {
    run(async {
        let (gone, is_gone) = switch();
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/x") => Some((200, job("x", json!({})))),
            "GET" if of_pod(method, uri, "p") && is_gone.load(Ordering::Relaxed) > 0 => refusal(404),
            _ => None,
        });
        let shard = Shard::start(&api, &[], vec![labelled(pod("p", "x"))]).await;
        sleep(SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), HeldPods { waiting: 1, ..NONE });
        gone.store(1, Ordering::Relaxed);
        let left = unreadable(&broken(labelled(pod("p", "x")))).unwrap();
        shard.watched(vec![Change::Unreadable(Unreadable { has_left: true, ..left })]).await;
        sleep(4 * SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), NONE);
    });
}

/// It is given to a Job that does not exist, and loses the label by which the shard's watch shows it.
#[test]
fn a_pod_whose_end_no_watch_shows_is_not_kept() {
    run(async {
        let mut moved = labelled(at(120, "Running", pod("p", "gone")));
        moved["metadata"]["labels"].as_object_mut().unwrap().remove("batch.kubernetes.io/controller-uid");
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/gone") => refusal(404),
            "GET" if uri.contains("/jobs/j") => Some((200, job("j", up_to_date(0)))),
            _ if of_pod(method, uri, "p") => Some((200, moved.clone())),
            _ => None,
        });
        let running = labelled(at(110, "Running", pod("p", "j")));
        let shard = Shard::start(&api, &[job("j", up_to_date(0))], vec![running.clone()]).await;
        sleep(SOON).await;
        shard.watched(vec![Change::Deleted(observed_pod(&at(120, "Running", running)))]).await;
        sleep(20 * SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), NONE, "{:?}", api.sent());
    });
}

/// Its Job is another controller's, or gone, or not known yet.
#[test]
fn a_pod_without_label_whose_job_is_not_known_waits_for_it_and_is_released_if_it_is_gone() {
    for owner in ["another's", "gone", "ours"] {
        run(async move {
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/j") && owner == "gone" => refusal(404),
                "GET" if uri.contains("/jobs/j") => {
                    let mut found = job("j", json!({}));
                    if owner == "another's" {
                        found["spec"]["managedBy"] = "example.com/other".into();
                    }
                    Some((200, found))
                }
                "PATCH" if uri.contains("/pods/p") => Some((200, ended(pod("p", "j")))),
                _ => None,
            });
            let running = at(110, "Running", pod("p", "j"));
            let shard = Shard::start(&api, &[], vec![running.clone()]).await;
            sleep(4 * SOON).await;
            let releases = api.count(&["PATCH", "deleteFromPrimitiveList"]);
            assert_eq!(releases, usize::from(owner == "gone"), "{owner}");
            assert_eq!(shard.0.send(Held).await.unwrap().waiting, 1, "{owner}");
            if owner == "ours" {
                shard.job(&job("j", json!({}))).await;
                sleep(4 * SOON).await;
                assert_eq!(api.count(CREATION), 0, "it has that pod");
            }
            let mut gone = at(130, "Failed", running);
            gone["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            shard.watched(vec![Change::Deleted(observed_pod(&gone))]).await;
            sleep(4 * SOON).await;
            assert_eq!(shard.0.send(Held).await.unwrap(), NONE, "{owner}: {:?}", api.sent());
        });
    }
}

/// Live lists show pods of which the watch of the shard shows nothing.
#[test]
fn releases_that_have_ended_are_not_kept() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "PATCH" if uri.contains("/pods/") => refusal(404),
            "GET" if uri.contains("/pods/") => refusal(404),
            _ => None,
        });
        let shard = Shard::start(&api, &[], vec![]).await;
        for number in 0..100 {
            let mut orphan = pod(&format!("p{number}"), "j");
            orphan["metadata"]["ownerReferences"] = json!([]);
            shard.watched(vec![applied(&orphan)]).await;
            sleep(SOON).await;
        }
        assert_eq!(api.count(&["PATCH", "/pods/"]), 100);
        let held = shard.0.send(Held).await.unwrap();
        assert!(held.releasing <= 4, "{held:?}");
    });
}

#[test]
fn a_finished_job_that_waits_for_a_pod_leaves_the_board_when_it_is_gone() {
    run(async {
        let api = TestApi::new(|_, _| None);
        let shard = Shard::start(&api, &[finished(10, None)], vec![]).await;
        shard.watched(vec![change(&broken(labelled(pod("p", "f"))))]).await;
        assert_eq!(shard.held_jobs().await, HeldJobs { known: 1, waiting: 1, ..HeldJobs::default() });
        shard.vanished("f").await;
        assert_eq!(shard.held_jobs().await, HeldJobs::default());
    });
}

#[test]
fn a_job_that_is_gone_before_its_list_turns_out_to_be_old_is_forgotten() {
    run(async {
        let api = TestApi::new(|_, uri| if is_live(uri) { list(50, &[]) } else { None }).after(2 * SOON);
        let shard = Shard::start(&api, &[finished(10, None)], vec![]).await;
        shard.0.send(JobReport::Relist("f".into())).await.unwrap();
        sleep(SOON).await;
        assert_eq!(api.count(LIVE_LIST), 1);
        shard.vanished("f").await;
        sleep(4 * SOON).await;
        assert_eq!(shard.held_jobs().await, HeldJobs::default());
    });
}

/// The fate of many pods of a tenant.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The pods name a Job of another controller.
    Others,
    /// The pods name a Job of another controller, which goes. Their releases hang.
    Gone,
    /// Each names another Job. The reads of these hang.
    Unread,
    /// The pods name a Job of another shard, and have the label of this one. Their labels hang.
    Strangers,
}

/// Most bytes at a time while a shard holds this many pods.
fn most_bytes(pods: u64, fate: Fate) -> u64 {
    let used = allocation_counter::measure(|| {
        run(async move {
            let (gone, is_gone) = switch();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/f") && is_gone.load(Ordering::Relaxed) > 0 => refusal(404),
                "GET" if uri.contains("/jobs/j") && matches!(fate, Fate::Strangers) => {
                    Some((200, job(&strangers::job_of(1), json!({}))))
                }
                "GET" if uri.contains("/jobs/f") && !matches!(fate, Fate::Unread) => {
                    let mut seen = job("f", json!({}));
                    seen["spec"]["managedBy"] = "a/b".into();
                    Some((200, seen))
                }
                _ => None,
            });
            let shard = match fate {
                Fate::Strangers => strangers::of_two(ShardId(0), &api, &[], vec![]).await,
                _ => Shard::start(&api, &[], vec![]).await,
            };
            for number in 0..pods {
                let of = match fate {
                    Fate::Unread => format!("f{number}"),
                    Fate::Strangers => strangers::job_of(1),
                    Fate::Others | Fate::Gone => "f".to_owned(),
                };
                let held = labelled(at(110, "Running", pod(&format!("p{number}"), &of)));
                shard.watched(vec![applied(&held)]).await;
                if number % 100 == 0 {
                    sleep(SOON).await;
                }
            }
            sleep(SOON).await;
            if matches!(fate, Fate::Gone) {
                gone.store(1, Ordering::Relaxed);
                let job = JobId::new("n".into(), "f".into(), "f".into());
                shard.0.send(JobVanished(job)).await.unwrap();
                sleep(SOON).await;
            }
            let writes = api.count(&["PATCH"]);
            assert_eq!(writes > 0, matches!(fate, Fate::Gone | Fate::Strangers), "{fate:?}: {writes}");
        });
    });
    used.bytes_max
}

/// A tenant may have as many such pods as it likes.
#[test]
fn many_pods_take_little_memory_each() {
    let limits = [(Fate::Others, 2000), (Fate::Gone, 3600), (Fate::Unread, 6000), (Fate::Strangers, 6000)];
    for (fate, limit) in limits {
        let each = (most_bytes(2500, fate) - most_bytes(500, fate)) / 2000;
        assert!(each < limit, "{fate:?}: {each} bytes");
    }
}
