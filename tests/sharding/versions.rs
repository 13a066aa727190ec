//! Replicas of two versions side by side, as during a rolling update and its roll-back.
//! `YARDMASTER_PREVIOUS=PROGRAM cargo test --test sharding versions`, with the program of another version.

use std::ffi::OsString;

use yardmaster_embedded::ApiServerConfig;

use crate::{Yard, assert_one_at_a_time};

/// The program of another version, if the test run has one.
fn previous() -> Option<OsString> {
    let program = std::env::var_os("YARDMASTER_PREVIOUS");
    if program.is_none() {
        eprintln!("skipped: YARDMASTER_PREVIOUS names no program");
    }
    program
}

/// Shards change hands in both directions, in order and after a crash, while pods run and end.
#[tokio::test(flavor = "multi_thread")]
async fn versions_update_and_roll_back_under_load() {
    let Some(previous) = previous() else { return };
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join_as(&previous, [0, 1]);
    yard.shared_by(&[0, 1]).await;
    yard.create_jobs_of("4s").await;

    yard.join([2]);
    yard.shared_by(&[0, 1, 2]).await;
    yard.leave(0);
    yard.join([3]);
    yard.shared_by(&[1, 2, 3]).await;
    yard.crash(1);
    yard.shared_by(&[2, 3]).await;

    yard.join_as(&previous, [4]);
    yard.shared_by(&[2, 3, 4]).await;
    yard.leave(2);
    yard.join_as(&previous, [5]);
    yard.shared_by(&[3, 4, 5]).await;
    yard.crash(3);
    yard.shared_by(&[4, 5]).await;

    assert!(!yard.has_finished().await, "all of this was to happen under load");
    yard.assert_exact().await;
    assert_one_at_a_time(&yard).await;
    yard.end().await;
}
