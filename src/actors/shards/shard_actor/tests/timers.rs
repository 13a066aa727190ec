//! Jobs that wait for a time: a tenant can make thousands of them.

use actix::AsyncContext as _;

use super::foreign_jobs::{finished, with_ttl};
use super::*;

/// How many timers and futures actix has been given by the shard so far, with the one that counts them.
#[derive(Message)]
#[rtype(result = "usize")]
struct Spawned;

impl Handler<Spawned> for ShardActor {
    type Result = usize;

    fn handle(&mut self, _: Spawned, ctx: &mut Self::Context) -> Self::Result {
        ctx.run_later(Duration::ZERO, |_, _| {}).into_usize()
    }
}

/// A Job that has finished at the beginning, at this version and with this TTL in seconds.
fn expiring(name: &str, version: u64, ttl: Option<u64>) -> Value {
    let mut job = finished(version, ttl);
    job["metadata"]["name"] = name.into();
    job["metadata"]["uid"] = name.into();
    job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = name.into();
    job
}

async fn shard(api: &TestApi) -> Shard {
    Shard::start_fenced(with_ttl(api), Fence::unlimited(), &[], vec![]).await
}

/// actix looks at each of its timers at every message of the shard.
#[test]
fn thousands_of_jobs_that_wait_for_the_end_of_their_ttl_share_a_timer() {
    run(async {
        let shard = shard(&TestApi::new(|_, _| None)).await;
        let before = shard.0.send(Spawned).await.unwrap();
        for number in 0..1_000 {
            shard.job(&expiring(&format!("own-{number}"), 10, Some(1_000 + number))).await;
            shard.foreign(&expiring(&format!("foreign-{number}"), 10, Some(2_000 + number))).await;
        }
        let spawned = shard.0.send(Spawned).await.unwrap() - before;
        assert_eq!(spawned, 2, "the timer, and the one that counts");
    });
}

#[test]
fn each_job_is_deleted_when_its_ttl_ends_as_that_is_now() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" => Some((200, expiring(uri.split("/jobs/").nth(1)?, 30, Some(0)))),
            "DELETE" => Some((200, json!({}))),
            _ => None,
        });
        let shard = shard(&api).await;
        for (name, before, now) in [
            ("same", Some(300), Some(300)),
            ("later", Some(200), Some(400)),
            ("earlier", Some(300), Some(100)),
            ("never", Some(100), None),
            ("gone", Some(100), Some(100)),
        ] {
            for (version, ttl) in [(10, before), (20, now)] {
                shard.job(&expiring(&format!("own-{name}"), version, ttl)).await;
                shard.foreign(&expiring(&format!("foreign-{name}"), version, ttl)).await;
            }
        }
        shard.0.send(JobVanished("own-gone".into())).await.unwrap();
        shard.0.send(JobVanished("foreign-gone".into())).await.unwrap();
        sleep(Duration::from_secs(50)).await;
        for deleted in [
            vec![],
            vec!["earlier"],
            vec!["earlier"],
            vec!["earlier", "same"],
            vec!["earlier", "same", "later"],
        ] {
            for name in ["same", "later", "earlier", "never", "gone"] {
                for job in [format!("own-{name}"), format!("foreign-{name}")] {
                    let deletions = api.count(&["DELETE", &format!("/jobs/{job} ")]);
                    assert_eq!(deletions, usize::from(deleted.contains(&name)), "{job}, {deleted:?}");
                }
            }
            sleep(Duration::from_secs(100)).await;
        }
        assert_eq!(api.count(&["GET", "/jobs/own-gone"]) + api.count(&["GET", "/jobs/foreign-gone"]), 0);
    });
}
