#![allow(clippy::unwrap_used, clippy::expect_used)]

mod api;

use std::collections::BTreeMap;
use std::sync::Mutex;

use actix::{Actor, Context, Handler};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use self::api::Api;
use super::*;
use crate::actors::known_jobs::job_index::Owner;
use crate::actors::test_api::run;
use crate::cluster::watch::{Change, Step};
use crate::cluster::wire::{Decoder as _, Unreadable};
use crate::job::job_id::JobId;
use crate::job::names::EXTERNAL_FINALIZER;

/// Time in which everything happens that does not wait for something.
const SOON: Duration = Duration::from_millis(100);
/// Time after which the streams are as they should be.
const SETTLED: Duration = Duration::from_secs(120);
const SHARDS: u32 = 8;

/// The changes that one subscription of a shard has seen.
#[derive(Default)]
struct Told {
    /// The pods that it was seen of, and their versions.
    pods: BTreeMap<String, u64>,
    /// The pods of the list in progress.
    listing: Option<BTreeMap<String, u64>>,
    lists: usize,
    /// The version of the last complete list.
    listed: u64,
    /// The versions of the changes since then. Deletions of pods that were not there do not count.
    changes: Vec<u64>,
}

#[derive(Clone)]
struct Shard {
    from: SubscriptionId,
    seen: Arc<Mutex<Told>>,
}

impl Actor for Shard {
    type Context = Context<Self>;
}

impl Handler<Pods> for Shard {
    type Result = ();

    fn handle(&mut self, Pods { from, changes, .. }: Pods, _: &mut Self::Context) {
        assert_eq!(from, self.from);
        let seen = &mut *self.seen.lock().unwrap();
        for change in changes {
            match change {
                Change::Restarted => {
                    seen.listing = Some(BTreeMap::new());
                    seen.lists += 1;
                }
                Change::Listed(pod) => {
                    let listing = seen.listing.as_mut().expect("a list has begun");
                    listing.insert(pod.pod.name.to_string(), pod.pod.version);
                }
                Change::Synced { version } => {
                    seen.pods = seen.listing.take().expect("a list has begun");
                    seen.listed = version;
                    seen.changes.clear();
                }
                Change::Applied(pod) => {
                    assert!(seen.listing.is_none());
                    seen.changes.push(pod.pod.version);
                    seen.pods.insert(pod.pod.name.to_string(), pod.pod.version);
                }
                Change::Deleted(pod) => {
                    let known = seen.listing.as_mut().unwrap_or(&mut seen.pods);
                    if known.remove(&*pod.pod.name).is_some() && seen.listing.is_none() {
                        seen.changes.push(pod.pod.version);
                    }
                }
                Change::Unreadable(pod) => panic!("{pod:?}"),
            }
        }
    }
}

/// Shards of a replica, over an API server of the test's own.
struct Replica {
    api: Api,
    watch: PodWatch,
    jobs: Arc<JobIndex>,
    shards: BTreeMap<u32, (Subscription, Arc<Mutex<Told>>)>,
    joined: u64,
}

impl Replica {
    fn new() -> Self {
        let (api, jobs) = (Api::default(), Arc::<JobIndex>::default());
        let services = Services {
            transport: Arc::new(api.clone()),
            metrics: Arc::new(Metrics::new()),
            seeds: Arc::default(),
            shards: ShardCount::new(SHARDS).unwrap(),
            jobs: jobs.clone(),
            kind: Kind::Labelled,
            decoder: PodDecoder::new(EXTERNAL_FINALIZER),
            #[cfg(feature = "test-hooks")]
            test_hooks: TestHooks::default(),
        };
        let watch = PodWatch::begin(services, &Handle::current());
        Self { api, watch, jobs, shards: BTreeMap::new(), joined: 0 }
    }

    /// The Jobs are known.
    fn know_jobs(&self) {
        for shard in 0..SHARDS {
            let name = api::job_of(shard);
            let job = JobId::new("n".into(), (&*name).into(), (&*name).into());
            self.jobs.insert(Owner::new(job, &Arc::default(), true));
        }
    }

    fn join(&mut self, shard: u32) {
        let from = SubscriptionId(self.joined);
        self.joined += 1;
        let seen = Arc::<Mutex<Told>>::default();
        let actor = Shard { from, seen: seen.clone() }.start();
        let subscription = self.watch.join(ShardId(shard), from, actor.recipient());
        self.shards.insert(shard, (subscription, seen));
    }

    fn leave(&mut self, shard: u32) {
        self.shards.remove(&shard);
    }

    fn lists(&self, shard: u32) -> usize {
        self.shards[&shard].1.lock().unwrap().lists
    }

    /// Each shard knows its pods as they are, and was seen of every change since its list, once and in order.
    fn assert_exact(&self, what: &str) {
        for (shard, (_, seen)) in &self.shards {
            let seen = seen.lock().unwrap();
            assert!(seen.listing.is_none() && seen.lists > 0, "{what}: shard {shard} has no list");
            assert_eq!(seen.pods, self.api.pods_of(*shard), "{what}: the pods of shard {shard}");
            let changes = self.api.changes_of(*shard, seen.listed);
            assert_eq!(seen.changes, changes, "{what}: the changes of shard {shard} since {}", seen.listed);
        }
    }
}

#[test]
fn shards_that_come_one_after_the_other_share_one_watch_and_each_is_listed_once() {
    run(async {
        let mut replica = Replica::new();
        for shard in 0..SHARDS {
            replica.api.apply(&format!("p{shard}"), shard, Some(shard));
            replica.join(shard);
            tokio::time::sleep(SOON).await;
        }
        tokio::time::sleep(SETTLED).await;
        assert_eq!(replica.api.open(), ["batch.kubernetes.io/controller-uid"]);
        for shard in 0..SHARDS {
            replica.api.apply(&format!("q{shard}"), shard, Some(shard));
        }
        tokio::time::sleep(SOON).await;
        replica.assert_exact("settled");
        assert!((0..SHARDS).all(|shard| replica.lists(shard) == 1));
        // Some go: nothing is listed again, and soon they are not asked for.
        [1, 2, 7].into_iter().for_each(|shard| replica.leave(shard));
        tokio::time::sleep(SETTLED).await;
        let but_for =
            |others| format!("batch.kubernetes.io/controller-uid,yardmaster.dev/shard notin ({others})");
        assert_eq!(replica.api.open(), [but_for("1,2,7")]);
        replica.join(2);
        tokio::time::sleep(SETTLED).await;
        assert_eq!(replica.api.open(), [but_for("1,7")]);
        replica.assert_exact("after some have gone");
        assert!(replica.shards.keys().all(|shard| replica.lists(*shard) == 1));
        assert_eq!(replica.api.lists(), SHARDS as usize + 1);
        replica.shards.clear();
        tokio::time::sleep(SOON).await;
        assert!(replica.api.open().is_empty());
    });
}

#[test]
fn shards_that_come_together_are_listed_together() {
    run(async {
        let mut replica = Replica::new();
        (0..5).for_each(|shard| replica.join(shard));
        tokio::time::sleep(50 * SOON).await;
        assert_eq!((replica.api.lists(), replica.api.requests()), (1, 1));
        replica.assert_exact("listed");
    });
}

#[test]
fn a_shard_that_lists_again_lists_nothing_else() {
    run(async {
        let mut replica = Replica::new();
        (0..5).for_each(|shard| replica.join(shard));
        tokio::time::sleep(SOON).await;
        replica.join(3);
        replica.api.apply("p", 3, Some(3));
        tokio::time::sleep(SOON).await;
        let open = replica.api.open();
        assert!(open.last().unwrap().ends_with("yardmaster.dev/shard notin (0,1,2,4,5,6,7)"), "{open:?}");
        replica.assert_exact("at once");
        tokio::time::sleep(SETTLED).await;
        replica.assert_exact("settled");
        assert_eq!((replica.api.lists(), replica.api.open().len()), (2, 1));
        assert!(replica.shards.keys().all(|shard| replica.lists(*shard) == 1));
    });
}

fn routes() -> Routes {
    Routes::new(PodPlaces(ShardCount::new(SHARDS).unwrap()), Arc::default())
}

/// The shards, of 0 to 2, to which a stream delivers a change of `p`.
fn told(routes: &mut Routes, change: PodChange) -> Vec<u32> {
    let mut told = Vec::new();
    routes.step(StreamId(0), Step::Change(change), Instant::now(), &mut |shard, _| told.push(shard.0));
    told.sort_unstable();
    told
}

fn listed(first: u32) -> Routes {
    let mut routes = routes();
    for shard in (first..3).map(ShardId) {
        routes.join(shard, SubscriptionId(u64::from(shard.0)));
    }
    routes.list(StreamId(0), &(first..3).map(ShardId).collect());
    told(&mut routes, Change::Synced { version: 5 });
    routes
}

/// A stream is opened in place of an idle one, and no bookmark has come since. So its version is as old as
/// that of the other.
#[test]
fn a_stream_has_not_caught_up_by_following_another() {
    let (begin, mut routes) = (Instant::now(), routes());
    let now = begin + Duration::from_secs(60);
    let synced = |routes: &mut Routes, stream: u64, version: u64, at: Instant| {
        routes.step(StreamId(stream), Step::Change(Change::Synced { version }), at, &mut |_, _| {});
    };
    (0..2).for_each(|shard| routes.join(ShardId(shard), SubscriptionId(u64::from(shard))));
    routes.list(StreamId(0), &[0, 1].map(ShardId).into());
    synced(&mut routes, 0, 5, begin);
    routes.leave(ShardId(1), SubscriptionId(1));
    let join = routes.upkeep(now, Duration::from_secs(30));
    let Upkeep::Join { sources, after, moved } = join else { panic!("{join:?}") };
    assert_eq!((after, moved), (5, begin));
    routes.follow(StreamId(1), &sources, after, moved);
    assert_eq!(routes.take_idle(), [StreamId(0)]);

    routes.join(ShardId(1), SubscriptionId(2));
    routes.list(StreamId(2), &[ShardId(1)].into());
    synced(&mut routes, 2, 1_000_000, now);
    let soon = Duration::from_secs(1);
    assert_eq!(routes.upkeep(now, soon), Upkeep::Later, "a million of versions would be sent again");
    routes.step(StreamId(1), Step::Reached(900_000), now, &mut |_, _| {});
    let join = routes.upkeep(now, soon);
    assert!(matches!(join, Upkeep::Join { after: 900_000, .. }), "{join:?}");
}

fn readable(home: u32, label: Option<u32>, version: u64) -> Box<ObservedPod> {
    let pod = api::pod("p", home, label, version);
    PodDecoder::new(EXTERNAL_FINALIZER).decode(pod.to_string().as_bytes()).unwrap()
}

#[test]
fn a_pod_is_shown_to_the_shard_of_its_job_and_of_its_label_and_to_those_that_were_shown_it() {
    let mut routes = listed(0);
    for (home, label, expected) in [
        (0, None, &[0][..]),
        (0, Some(0), &[0]),
        (0, Some(7), &[0]),
        (0, Some(1), &[0, 1]),
        (0, Some(2), &[0, 1, 2]),
        (2, Some(2), &[0, 2]),
        (2, None, &[2]),
        (5, Some(1), &[1, 2]),
        (5, None, &[1]),
        (5, None, &[]),
    ] {
        let pod = readable(home, label, 6);
        assert_eq!(told(&mut routes, Change::Applied(pod)), expected, "{home} {label:?}");
    }
    told(&mut routes, Change::Applied(readable(5, Some(1), 7)));
    assert_eq!(told(&mut routes, Change::Deleted(readable(5, None, 8))), [1]);
    assert_eq!(told(&mut routes, Change::Deleted(readable(5, None, 8))), [0_u32; 0]);
}

/// In one write, a pod loses our marks, and gets another controller.
#[test]
fn a_pod_that_a_known_job_may_have_had_is_shown_to_its_shard() {
    let mut routes = listed(0);
    let job = JobId::new("n".into(), "j".into(), (&*api::job_of(1)).into());
    routes.jobs.insert(Owner::new(job, &Arc::default(), true));
    let mut taken = api::pod("p", 1, None, 6);
    taken["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": api::job_of(1)});
    taken["metadata"]["finalizers"] = json!([]);
    taken["metadata"]["ownerReferences"][0]["apiVersion"] = "apps/v1".into();
    taken["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet".into();
    let taken = PodDecoder::new(EXTERNAL_FINALIZER).decode(taken.to_string().as_bytes()).unwrap();
    assert_eq!(told(&mut routes, Change::Applied(taken)), [1]);
}

#[test]
fn a_pod_that_concerns_nobody_is_shown_to_nobody() {
    let mut routes = listed(0);
    let mut foreign = readable(0, None, 6);
    foreign.pod.tracked = false;
    assert_eq!(told(&mut routes, Change::Applied(foreign.clone())), [0_u32; 0]);
    told(&mut routes, Change::Applied(readable(0, None, 7)));
    assert_eq!(told(&mut routes, Change::Applied(foreign)), [0], "it has lost our finalizer");
}

/// Its Job is of another shard than its label, and both get the change.
#[test]
fn a_pod_that_cannot_be_read_when_it_is_deleted_is_forgotten_by_all_that_were_shown_it() {
    let mut routes = listed(0);
    assert_eq!(told(&mut routes, Change::Applied(readable(0, Some(1), 6))), [0, 1]);
    let left = api::pod("p", 0, Some(1), 7);
    let left = Unreadable::in_list(left.to_string().as_bytes(), &std::fmt::Error).unwrap();
    assert_eq!(told(&mut routes, Change::Unreadable(left.clone())), [0]);
    assert_eq!(told(&mut routes, Change::Unreadable(Unreadable { has_left: true, ..left })), [0, 1]);
    assert_eq!(told(&mut routes, Change::Applied(readable(0, Some(2), 8))), [0, 2], "nobody else knows it");
}

/// Pods come, go and change their shards, and so do shards; watches break, and versions expire.
#[test]
fn each_shard_is_told_of_everything_once_and_in_order_whatever_happens() {
    for seed in 0..60 {
        run(async move {
            let mut chance = SmallRng::seed_from_u64(seed);
            let mut replica = Replica::new();
            if seed % 2 == 0 {
                replica.know_jobs();
            }
            for _ in 0..chance.random_range(20..150) {
                let (pod, shard) = (chance.random_range(0..12_u32), chance.random_range(0..SHARDS));
                let (name, home) = (format!("p{pod}"), pod % SHARDS);
                match chance.random_range(0..100) {
                    0..25 => replica.api.apply(&name, home, Some(home)),
                    25..35 => replica.api.apply(&name, home, None),
                    // No shard has this number.
                    35..45 => replica.api.apply(&name, home, Some(SHARDS + shard)),
                    45..55 => replica.api.delete(&name),
                    55..70 => replica.join(shard),
                    70..76 => replica.leave(shard),
                    76..78 => replica.api.break_watches(),
                    78..79 => replica.api.compact(),
                    79..82 => replica.api.skip_versions(10_000),
                    82..86 => {
                        // A watch has followed the oldest, or is about to.
                        replica.join(shard);
                        tokio::time::sleep(UPKEEP + Duration::from_millis(chance.random_range(0..100))).await;
                        replica.api.expire_oldest();
                    }
                    86..94 => tokio::time::sleep(Duration::from_millis(chance.random_range(0..2_000))).await,
                    _ => tokio::time::sleep(Duration::from_secs(chance.random_range(0..60))).await,
                }
            }
            tokio::time::sleep(SETTLED + SETTLED).await;
            replica.assert_exact(&format!("seed {seed}"));
            assert!(replica.api.open().len() <= 1, "seed {seed}: {:?}", replica.api.open());
        });
    }
}
