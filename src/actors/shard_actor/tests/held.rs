//! What a shard keeps of pods whose end its watch does not show, and of Jobs that are gone: a tenant can make any number of
//! them.

use actix::MessageResult;

use super::foreign_jobs::finished;
use super::*;

/// Time in which all that is refused is tried again.
const LATER: Duration = Duration::from_secs(200);

#[derive(Message)]
#[rtype(result = "HeldPods")]
struct Held;

/// The numbers of pods in the tables of the shard.
#[derive(Debug, PartialEq, Eq)]
struct HeldPods {
    waiting: usize,
    releasing: usize,
    unseen: usize,
}

const NONE: HeldPods = HeldPods { waiting: 0, releasing: 0, unseen: 0 };

impl Handler<Held> for ShardActor {
    type Result = MessageResult<Held>;

    fn handle(&mut self, _: Held, _: &mut Self::Context) -> Self::Result {
        let [waiting, releasing] = self.orphan_pods.held();
        MessageResult(HeldPods { waiting, releasing, unseen: self.unseen.held() })
    }
}

#[derive(Message)]
#[rtype(result = "HeldJobs")]
struct HeldOfJobs;

/// The numbers of Jobs in the tables of the shard.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldJobs {
    known: usize,
    /// Those on the board.
    waiting: usize,
    /// Those of which a refused label was reported.
    unlabelled: usize,
    /// Those that need their pods shown again.
    to_show: usize,
}

impl Handler<HeldOfJobs> for ShardActor {
    type Result = MessageResult<HeldOfJobs>;

    fn handle(&mut self, _: HeldOfJobs, _: &mut Self::Context) -> Self::Result {
        let (known, (waiting, _)) = (self.jobs.len(), self.owned.waits.read());
        let (unlabelled, to_show) = (self.unseen.unlabelled(), self.doubts.to_show());
        MessageResult(HeldJobs { known, waiting, unlabelled, to_show })
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

fn census(pod: &Value) -> CensusTaken {
    CensusTaken { pods: [observed_pod(pod)].into(), ..no_census() }
}

/// A webhook holds up the writes of the namespace, and the pods are deleted while their labels wait: another replica's watch
/// shows that.
#[test]
fn a_pod_that_is_deleted_while_its_label_waits_is_not_kept() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/pods/p") => refusal(404),
            _ => None,
        });
        let shard = Shard::start(&api, &[job("j", up_to_date(0))], no_census(), vec![]).await;
        let strays = (0..1_000).map(|number| {
            let mut stray = at(110 + number, "Pending", pod(&format!("p{number}"), "j"));
            stray["metadata"]["labels"]["yardmaster.dev/shard"] = "1".into();
            Change::Deleted(observed_pod(&stray))
        });
        shard.watched(strays.collect()).await;
        sleep(SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), HeldPods { unseen: 1_000, ..NONE });
        sleep(Duration::from_secs(40)).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), NONE);
        assert!(api.count(&["PATCH"]) < 500, "the writes that waited do not leave");
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
        let shard = Shard::start(&api, &[], no_census(), vec![labelled(pod("p", "x"))]).await;
        sleep(SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), HeldPods { waiting: 1, ..NONE });
        gone.store(1, Ordering::Relaxed);
        let left = unreadable(&broken(labelled(pod("p", "x")))).unwrap();
        shard.watched(vec![Change::Unreadable(Unreadable { has_left: true, ..left })]).await;
        sleep(4 * SOON).await;
        assert_eq!(shard.0.send(Held).await.unwrap(), NONE);
    });
}

/// A webhook refuses the label. The pod ends when its Job is gone, or is gone itself.
#[test]
fn a_pod_that_is_refused_its_label_is_not_kept_for_a_job_that_is_gone() {
    for ends in ["ended", "gone"] {
        run(async move {
            let (over, is_over) = switch();
            let api = TestApi::new(move |method, uri| match (method, is_over.load(Ordering::Relaxed)) {
                ("PATCH", _) if uri.contains("/pods/p") => refusal(403),
                ("GET", 0) if of_pod(method, uri, "p") => Some((200, at(110, "Running", pod("p", "j")))),
                ("GET", _) if of_pod(method, uri, "p") && ends == "ended" => {
                    Some((200, ended(pod("p", "j"))))
                }
                ("GET", 0) if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                ("GET", _) => refusal(404),
                _ => None,
            });
            let shard = Shard::start(&api, &[job("j", json!({}))], census(&pod("p", "j")), vec![]).await;
            sleep(SOON).await;
            assert_eq!(shard.0.send(Held).await.unwrap(), HeldPods { unseen: 1, ..NONE }, "{ends}");
            over.store(1, Ordering::Relaxed);
            shard.0.send(JobVanished("j".into())).await.unwrap();
            sleep(LATER).await;
            assert_eq!(shard.0.send(Describe).await.unwrap().jobs, 0, "{ends}");
            assert_eq!(shard.0.send(Held).await.unwrap(), NONE, "{ends}: {:?}", api.sent());
        });
    }
}

/// Its Job is another controller's, or gone, or not known yet.
#[test]
fn a_pod_in_a_census_whose_job_is_not_known_is_kept_only_while_its_job_may_become_known() {
    for owner in ["another's", "gone", "ours"] {
        run(async move {
            let (gone, is_gone) = switch();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/j") && owner == "gone" => refusal(404),
                "GET" if uri.contains("/jobs/j") => {
                    let mut found = job("j", json!({}));
                    if owner == "another's" {
                        found["spec"]["managedBy"] = "example.com/other".into();
                    }
                    Some((200, found))
                }
                "PATCH" if uri.contains("/pods/p") && owner == "gone" => Some((200, ended(pod("p", "j")))),
                "PATCH" if uri.contains("/pods/p") => refusal(403),
                "GET" if of_pod(method, uri, "p") => match is_gone.load(Ordering::Relaxed) {
                    0 => Some((200, at(110, "Running", pod("p", "j")))),
                    _ => refusal(404),
                },
                _ => None,
            });
            let shard = Shard::start(&api, &[], census(&pod("p", "j")), vec![]).await;
            sleep(4 * SOON).await;
            let unseen = usize::from(owner == "ours");
            assert_eq!(shard.0.send(Held).await.unwrap(), HeldPods { unseen, ..NONE }, "{owner}");
            assert_eq!(api.count(&["PATCH", "deleteFromPrimitiveList"]), usize::from(owner == "gone"));
            if owner == "ours" {
                shard.job(&job("j", json!({}))).await;
                sleep(4 * SOON).await;
                assert_eq!(api.count(CREATION), 0, "the pod holds its Job back");
            }
            gone.store(1, Ordering::Relaxed);
            sleep(LATER).await;
            assert_eq!(shard.0.send(Held).await.unwrap(), NONE, "{owner}: {:?}", api.sent());
            assert_eq!(api.count(CREATION) > 0, owner == "ours", "{owner}");
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
        let shard = Shard::start(&api, &[], no_census(), vec![]).await;
        for number in 0..100 {
            let mut orphan = pod(&format!("p{number}"), "j");
            orphan["metadata"]["ownerReferences"] = json!([]);
            let list = PodList::of(200, vec![observed_pod(&orphan)]).await;
            let candidates = Candidates { job: "m".into(), doubted: UidMap::default(), list };
            shard.0.send(candidates).await.unwrap();
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
        let shard = Shard::start(&api, &[finished(10, None)], no_census(), vec![]).await;
        shard.watched(vec![change(&broken(labelled(pod("p", "f"))))]).await;
        assert_eq!(shard.held_jobs().await, HeldJobs { known: 1, waiting: 1, ..HeldJobs::default() });
        shard.vanished("f").await;
        assert_eq!(shard.held_jobs().await, HeldJobs::default());
    });
}

/// The API server has yet to refuse the label when the Job leaves, and does not say whether the Job is there.
#[test]
fn a_job_of_which_a_refused_label_was_reported_while_it_left_is_forgotten_when_it_is_gone() {
    run(async {
        let (allowed, is_allowed) = switch();
        let api = TestApi::new(move |method, uri| match method {
            _ if uri.contains("/pods/") && is_allowed.load(Ordering::Relaxed) == 1 => refusal(404),
            "PATCH" if uri.contains("/pods/") => refusal(403),
            "GET" if of_pod(method, uri, "p") => Some((200, at(110, "Running", pod("p", "j")))),
            "GET" if uri.contains("/jobs/j") => refusal(500),
            _ => None,
        });
        let api = api.after(SOON);
        let held = vec![labelled(at(90, "Running", pod("q", "j")))];
        let shard = Shard::start(&api, &[job("j", json!({}))], census(&pod("p", "j")), held).await;
        shard.vanished("j").await;
        sleep(20 * SOON).await;
        let held = shard.held_jobs().await;
        assert_eq!((held.known, held.unlabelled), (1, 1), "{:?}", api.sent());
        allowed.store(1, Ordering::Relaxed);
        sleep(LATER).await;
        assert_eq!(shard.held_jobs().await, HeldJobs::default(), "{:?}", api.sent());
    });
}

#[test]
fn a_job_that_is_gone_before_its_list_turns_out_to_be_old_is_forgotten() {
    run(async {
        let api = TestApi::new(|_, uri| if is_live(uri) { list(50, &[]) } else { None }).after(2 * SOON);
        let shard = Shard::start(&api, &[finished(10, None)], no_census(), vec![]).await;
        shard.0.send(JobReport::Relist("f".into())).await.unwrap();
        sleep(SOON).await;
        assert_eq!(api.count(LIVE_LIST), 1);
        shard.vanished("f").await;
        sleep(4 * SOON).await;
        assert_eq!(shard.held_jobs().await, HeldJobs::default());
    });
}

/// What becomes of many pods of a tenant.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// They name a Job of another controller.
    Others,
    /// They name a Job of another controller, which goes. Their releases hang.
    Gone,
    /// Each names another Job. The reads of these hang.
    Unread,
    /// They name a Job of ours that is not known yet, and have the label of another shard. Their labels hang.
    Labelled,
}

/// Most bytes at a time while a shard holds this many pods.
fn most_bytes(pods: u64, fate: Fate) -> u64 {
    let used = allocation_counter::measure(|| {
        run(async move {
            let (gone, is_gone) = switch();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/jobs/f") && is_gone.load(Ordering::Relaxed) > 0 => refusal(404),
                "GET" if uri.contains("/jobs/f") && !matches!(fate, Fate::Unread) => {
                    let mut seen = job("f", json!({}));
                    if !matches!(fate, Fate::Labelled) {
                        seen["spec"]["managedBy"] = "a/b".into();
                    }
                    Some((200, seen))
                }
                _ => None,
            });
            let shard = Shard::start(&api, &[], no_census(), vec![]).await;
            for number in 0..pods {
                let of = if matches!(fate, Fate::Unread) { format!("f{number}") } else { "f".to_owned() };
                let mut held = labelled(at(110, "Running", pod(&format!("p{number}"), &of)));
                if matches!(fate, Fate::Labelled) {
                    held["metadata"]["labels"]["yardmaster.dev/shard"] = "7".into();
                }
                shard.watched(vec![applied(&held)]).await;
                if number % 100 == 0 {
                    sleep(SOON).await;
                }
            }
            sleep(SOON).await;
            if matches!(fate, Fate::Gone) {
                gone.store(1, Ordering::Relaxed);
                let job = JobId::new("n".into(), "f".into(), "f".into());
                shard.0.send(ForeignJobVanished(job)).await.unwrap();
                sleep(SOON).await;
            }
            let writes = api.count(&["PATCH"]);
            assert_eq!(writes > 0, matches!(fate, Fate::Gone | Fate::Labelled), "{fate:?}: {writes}");
        });
    });
    used.bytes_max
}

/// A tenant may have as many such pods as it likes.
#[test]
fn many_pods_take_little_memory_each() {
    let limits = [(Fate::Others, 2000), (Fate::Gone, 3600), (Fate::Unread, 6000), (Fate::Labelled, 6000)];
    for (fate, limit) in limits {
        let each = (most_bytes(2500, fate) - most_bytes(500, fate)) / 2000;
        assert!(each < limit, "{fate:?}: {each} bytes");
    }
}
