#![allow(clippy::unwrap_used)]

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, Context, Handler};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::actors::test_api::{TestApi, observed_pod, pod, refusal, replica, replica_with, run};
use crate::job::names::{BUILT_IN_CONTROLLER, SHARD_LABEL};
use crate::sharding::ShardCount;

/// The orphans of the only shard, and the actor that gets messages for them.
#[derive(Clone, Default)]
struct Orphans(Rc<RefCell<Option<OrphanPods>>>);

impl Orphans {
    fn get(&self) -> RefMut<'_, OrphanPods> {
        RefMut::map(self.0.borrow_mut(), |orphans| orphans.as_mut().unwrap())
    }
}

impl Actor for Orphans {
    type Context = Context<Self>;
}

impl Handler<JobLookedFor> for Orphans {
    type Result = ();

    fn handle(&mut self, look: JobLookedFor, _: &mut Self::Context) {
        self.get().looked_for(look);
    }
}

fn orphans(api: &TestApi) -> Orphans {
    of_first_shard(replica(api, BUILT_IN_CONTROLLER))
}

fn of_first_shard(cx: ReplicaContext) -> Orphans {
    let unit = Unit::new(cx.runtime.clone(), || {});
    let orphans = Orphans::default();
    let hears = orphans.clone().start().recipient();
    *orphans.0.borrow_mut() = Some(OrphanPods::new(cx, ShardId(0), Fence::unlimited(), unit, hears));
    orphans
}

fn no_jobs() -> JobIndex {
    JobIndex::default()
}

/// The pod `p`, whose Job is gone, or which has none.
fn orphan(has_job: bool) -> Value {
    let mut orphan = pod("p", "j");
    if !has_job {
        orphan["metadata"]["ownerReferences"] = json!([]);
    }
    orphan
}

/// An API server that knows the pod `p`, and no Job. It answers patches with this code, and the
/// thousandth with success.
fn api(has_job: bool, code: u16) -> TestApi {
    let mut patches = 0;
    TestApi::new(move |method, uri| match method {
        "GET" if uri.contains("/pods/p") => Some((200, orphan(has_job))),
        "GET" => refusal(404),
        _ => {
            patches += 1;
            if patches < 1_000 { refusal(code) } else { Some((200, orphan(has_job))) }
        }
    })
}

#[test]
fn a_release_that_is_refused_for_good_is_tried_by_one_task() {
    for has_job in [true, false] {
        run(async move {
            let api = api(has_job, 403);
            let orphans = orphans(&api);
            for _ in 0..40 {
                orphans.get().list_begins(Kind::Labelled);
                orphans.get().consider(observed_pod(&orphan(has_job)), true);
                orphans.get().list_complete(Kind::Labelled);
                sleep(Duration::from_millis(100)).await;
                orphans.get().look_again();
            }
            sleep(Duration::from_secs(600)).await;
            let patches = api.count(&["PATCH"]);
            // A new list is no reason to go on before a pause is over.
            assert!((12..=30).contains(&patches), "{has_job}: {patches} patches");
        });
    }
}

#[test]
fn a_pod_that_loses_its_owner_no_longer_waits_for_it() {
    for is_gone in [false, true] {
        run(async move {
            let orphans = orphans(&api(true, 200));
            let waiting = observed_pod(&orphan(true));
            let job = waiting.job().unwrap().clone();
            orphans.get().consider(waiting.clone(), true);
            assert_eq!(orphans.get().waiting_for(&job, &no_jobs()).len(), 1);
            orphans.get().consider(waiting, true);
            let without_owner = observed_pod(&orphan(false));
            match is_gone {
                false => orphans.get().consider(without_owner, true),
                true => orphans.get().forget(&without_owner.pod.uid),
            }
            assert!(orphans.get().waiting_for(&job, &no_jobs()).is_empty());
        });
    }
}

/// The watch shows this shard no further changes of it.
#[test]
fn a_pod_that_another_shard_keeps_is_not_kept() {
    run(async {
        let api = api(false, 200);
        let shards = ShardCount::new(2).unwrap();
        let cx = replica_with(&api, BUILT_IN_CONTROLLER, |config| config.shards = shards);
        let orphans = of_first_shard(cx);
        let of = |shard| (0..).map(|n| format!("u{n}")).find(|uid| shards.shard_of(uid) == ShardId(shard));
        for (named, label, held) in [(0, None, 1), (1, None, 0), (0, Some("1"), 0)] {
            let mut without_owner = orphan(false);
            without_owner["metadata"]["finalizers"] = json!([]);
            let labels = &mut without_owner["metadata"]["labels"];
            *labels = json!({"batch.kubernetes.io/controller-uid": of(named)});
            label.into_iter().for_each(|label: &str| labels[SHARD_LABEL] = label.into());
            orphans.get().consider(observed_pod(&without_owner), true);
            assert_eq!(orphans.get().held(), [held, 0], "{named} {label:?}");
        }
        let mut hidden = pod("p", &of(0).unwrap());
        hidden["metadata"]["labels"][SHARD_LABEL] = "1".into();
        orphans.get().consider(observed_pod(&hidden), true);
        assert_eq!(orphans.get().held(), [0, 0]);
    });
}

#[test]
fn a_pod_that_another_job_owns_waits_for_no_former_one() {
    run(async {
        let orphans = orphans(&api(true, 200));
        orphans.get().consider(observed_pod(&orphan(true)), true);
        let of_other = observed_pod(&pod("p", "other"));
        orphans.get().leave_other_jobs(&of_other);
        assert!(orphans.get().waiting_for(&"j".into(), &no_jobs()).is_empty());
        orphans.get().consider(observed_pod(&orphan(true)), true);
        orphans.get().consider(of_other, true);
        assert!(orphans.get().waiting_for(&"j".into(), &no_jobs()).is_empty());
        assert_eq!(orphans.get().waiting_for(&"other".into(), &no_jobs()).len(), 1);
    });
}

#[test]
fn a_pod_that_a_list_shows_as_counted_still_waits_for_its_job() {
    run(async {
        let orphans = orphans(&api(true, 200));
        let mut shown = pod("p", "j");
        shown["metadata"]["labels"][SHARD_LABEL] = "0".into();
        orphans.get().consider(observed_pod(&shown), true);
        orphans.get().list_begins(Kind::Labelled);
        shown["metadata"]["finalizers"] = json!([]);
        shown["status"]["phase"] = "Succeeded".into();
        orphans.get().consider(observed_pod(&shown), true);
        orphans.get().list_complete(Kind::Labelled);
        assert_eq!(orphans.get().waiting_for(&"j".into(), &no_jobs()).len(), 1);
    });
}

#[test]
fn a_conflict_that_nothing_explains_is_followed_by_a_pause() {
    run(async {
        let api = api(false, 409);
        let orphans = orphans(&api);
        orphans.get().consider(observed_pod(&orphan(false)), true);
        sleep(Duration::from_secs(60)).await;
        let patches = api.count(&["PATCH"]);
        assert!((3..=7).contains(&patches), "{patches} patches");
    });
}

/// The pod changes before each patch.
#[test]
fn many_conflicts_in_a_row_are_followed_by_pauses_though_the_pod_has_changed() {
    run(async {
        let mut version = 1_000;
        let api = TestApi::new(move |method, _| match method {
            "GET" => {
                version += 1;
                let mut changed = orphan(false);
                changed["metadata"]["resourceVersion"] = version.to_string().into();
                Some((200, changed))
            }
            _ => refusal(409),
        });
        let orphans = orphans(&api);
        orphans.get().consider(observed_pod(&orphan(false)), true);
        sleep(Duration::from_secs(60)).await;
        let patches = api.count(&["PATCH"]);
        assert!((4..=10).contains(&patches), "{patches} patches");
    });
}

/// An API server that refuses the first patch with this code and carries out the next. It shows the pod `p`, with an owner or
/// without one, and no Job.
fn refuses_first(code: u16, has_owner: bool) -> TestApi {
    let mut patches = 0;
    TestApi::new(move |method, uri| match method {
        "GET" if uri.contains("/pods/p") => Some((200, orphan(has_owner))),
        "GET" => refusal(404),
        _ => {
            patches += 1;
            let mut released = orphan(false);
            released["metadata"]["finalizers"] = json!([]);
            if patches == 1 { refusal(code) } else { Some((200, released)) }
        }
    })
}

#[test]
fn a_pod_that_was_adopted_during_its_release_is_released_when_it_is_an_orphan_again() {
    run(async {
        let api = refuses_first(409, true);
        let orphans = orphans(&api);
        for patches in [1, 2] {
            orphans.get().consider(observed_pod(&orphan(false)), true);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(api.count(&["PATCH"]), patches);
        }
    });
}

/// Garbage collection takes off an owner that is gone, which is no adoption.
#[test]
fn a_pod_that_loses_its_owner_during_its_release_is_released_all_the_same() {
    run(async {
        let api = refuses_first(500, false);
        let orphans = orphans(&api);
        orphans.get().consider(observed_pod(&orphan(true)), true);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(api.count(&["PATCH"]), 2);
    });
}
