//! Writes behind a fence that closes, expires or is handed over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Scripted, bench, create, one_at_a_time, order};
use crate::cluster::boot_clock::AwakeClock;
use crate::cluster::gate::{Fence, GateConfig, Order, Priority, WriteError, WriteGate};
use crate::job::names::EXTERNAL_FINALIZER;
use crate::telemetry::metrics::Metrics;

#[tokio::test(start_paused = true)]
async fn a_reservation_behind_a_closed_fence_is_refused() {
    let bench = bench(one_at_a_time(), []);
    let status = order(Priority::Status, "j");
    let _full = bench.gate.reserve_status(&status, "n".into());
    let (early, late) = [(); 2].map(|()| bench.gate.reserve_status(&status, "n".into())).into();
    status.fence.close();
    sleep(Duration::from_millis(1)).await;
    drop(_full);
    assert_eq!(late.wait().await.unwrap_err(), WriteError::Fenced);
    assert_eq!(early.granted().unwrap_err(), WriteError::Fenced);
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_closes_stops_waiting_writes_but_not_those_in_flight() {
    let mut bench = bench(one_at_a_time(), []);
    let fence = Fence::unlimited();
    let fenced = || Order { fence: fence.clone(), ..order(Priority::Create, "ours") };
    let first = tokio::spawn(bench.gate.submit(fenced(), create("first")));
    let second = bench.gate.submit(fenced(), create("second"));
    let foreign = tokio::spawn(bench.gate.submit(order(Priority::Create, "other"), create("other")));
    bench.seen.recv().await.unwrap();
    fence.close();
    assert!(first.await.unwrap().is_ok());
    assert_eq!(second.await.unwrap_err(), WriteError::Fenced);
    assert!(foreign.await.unwrap().is_ok());
    assert_eq!(bench.bodies(), ["other"]);
    assert_eq!(bench.metrics.fenced_writes.get(), 1);
}

/// Writes in flight are answered, and other writes of the shard leave.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_right_that_is_withdrawn_stops_its_waiting_writes_only() {
    let mut bench = bench(one_at_a_time(), []);
    let fence = Fence::unlimited();
    let part = fence.part();
    let through = |fence: &Fence| Order { fence: fence.clone(), ..order(Priority::Create, "ours") };
    let first = tokio::spawn(bench.gate.submit(through(&part), create("first")));
    let second = bench.gate.submit(through(&part), create("second"));
    let later = tokio::spawn(bench.gate.submit(through(&fence.part()), create("later")));
    bench.seen.recv().await.unwrap();
    part.withdraw();
    assert!(first.await.unwrap().is_ok());
    assert_eq!(second.await.unwrap_err(), WriteError::Fenced);
    assert!(later.await.unwrap().is_ok());
    let too_late = bench.gate.submit(through(&part), create("too late")).await;
    assert_eq!(too_late.unwrap_err(), WriteError::Fenced);
    assert_eq!((bench.bodies(), bench.metrics.fenced_writes.get()), (vec!["later".to_owned()], 0));
}

/// A write that the API server has turned away is not awaited, and is no sign of a lost claim.
#[tokio::test(start_paused = true)]
async fn a_shard_that_is_handed_over_waits_for_no_write_that_was_put_back() {
    let mut bench = bench(one_at_a_time(), [(429, json!({"kind": "Status", "code": 429}))]);
    let fence = Fence::unlimited();
    let order = Order { fence: fence.clone(), ..order(Priority::Create, "ours") };
    let write = tokio::spawn(bench.gate.submit(order, create("first")));
    bench.seen.recv().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    fence.hand_over();
    assert_eq!(write.await.unwrap().unwrap_err(), WriteError::Fenced);
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((bench.bodies().len(), bench.metrics.fenced_writes.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_expires_while_a_write_waits_for_the_rate_stops_it() {
    let config = GateConfig { qps: 1, burst: 1, ..GateConfig::default() };
    let bench = bench(config, []);
    let fence = Fence::until(Instant::now() + Duration::from_millis(500), Arc::new(AwakeClock));
    let submit =
        || bench.gate.submit(Order { fence: fence.clone(), ..order(Priority::Create, "j") }, create("x"));
    let (first, second) = (submit(), submit());
    assert!(first.await.is_ok());
    assert_eq!(second.await.unwrap_err(), WriteError::Fenced);
}

/// The right may be renewed while an answer is awaited. Once it has ended, the answer is no longer
/// awaited.
#[tokio::test(start_paused = true)]
async fn an_answer_is_awaited_no_longer_than_the_right_lasts() {
    for (renewed, expected) in [(false, Duration::from_secs(2)), (true, Duration::from_secs(6))] {
        let (sender, _seen) = mpsc::unbounded_channel();
        let network = Arc::new(Scripted {
            latency: Duration::from_secs(3600),
            script: Mutex::default(),
            seen: sender,
            in_flight: Mutex::default(),
        });
        let gate = WriteGate::open(
            Arc::new(network),
            GateConfig::default(),
            EXTERNAL_FINALIZER,
            Arc::new(Metrics::new()),
        );
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let fence = Fence::until(at(2), Arc::new(AwakeClock));
        let write = gate.submit(Order { fence: fence.clone(), ..order(Priority::Create, "j") }, create("x"));
        let renewal = async {
            sleep(Duration::from_secs(1)).await;
            if renewed {
                fence.extend(at(6));
            }
            fence.close();
        };
        let (result, ()) = futures::join!(write, renewal);
        assert!(matches!(result, Err(WriteError::Unknown(_))), "{result:?}");
        assert_eq!(started.elapsed().as_secs(), expected.as_secs());
    }
}
