//! Reflectors of kube-rs end with the content of the store, whatever was written meanwhile.
//!
//! `YARDMASTER_REFLECTOR_SECONDS` sets how long writes go on (default: 2).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Fault, FaultScope};

/// The allocator of the `yardmaster` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REFLECTORS: usize = 64;
/// Enough to keep the rate while answers take 30 ms.
const WRITERS: u64 = 64;
const WRITES_PER_SECOND: f64 = 2_000.0;
/// Number of objects that are created, changed and deleted repeatedly.
const NAMES: u64 = 500;
/// Limit for reflectors to catch up.
const PATIENCE: Duration = Duration::from_secs(60);

async fn maps(server: &ApiServer) -> Api<ConfigMap> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
    Api::default_namespaced(Client::try_from(config).unwrap())
}

/// The way in which the reflector with this number gets its initial state.
fn config(number: usize) -> watcher::Config {
    match number % 4 {
        0 => watcher::Config::default(),
        1 => watcher::Config::default().page_size(7),
        2 => watcher::Config::default().any_semantic(),
        _ => watcher::Config::default().streaming_lists(),
    }
}

fn reflect(maps: Api<ConfigMap>, config: watcher::Config) -> (Store<ConfigMap>, JoinHandle<()>) {
    let (store, writer) = reflector::store();
    let events = reflector::reflector(writer, watcher(maps, config).default_backoff());
    (store, tokio::spawn(events.for_each(|_| std::future::ready(()))))
}

/// The write with this number. Creations, changes and deletions alternate over the names.
async fn write(maps: &Api<ConfigMap>, number: u64) {
    let name = format!("map-{}", number % NAMES);
    let result = match (number / NAMES) % 4 {
        0 => {
            let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
            let map = ConfigMap { metadata, ..ConfigMap::default() };
            maps.create(&PostParams::default(), &map).await.map(drop)
        }
        3 if number.is_multiple_of(2) => maps.delete(&name, &DeleteParams::default()).await.map(drop),
        _ => {
            let patch = json!({"data": {"write": number.to_string()}});
            maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
    };
    match result {
        // Writers overtake each other, so an object may already exist or be gone.
        Ok(()) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_already_exists() => {}
        Err(error) => panic!("write {number} of {name}: {error}"),
    }
}

/// Writes at a steady rate. Returns the number of writes.
async fn write_for(maps: &Api<ConfigMap>, time: Duration) -> u64 {
    let next = Arc::new(AtomicU64::new(0));
    let begin = tokio::time::Instant::now();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (maps, next) = (maps.clone(), Arc::clone(&next));
        writers.spawn(async move {
            while begin.elapsed() < time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep_until(begin + Duration::from_secs_f64(number as f64 / WRITES_PER_SECOND))
                    .await;
                write(&maps, number).await;
            }
        });
    }
    writers.join_all().await;
    next.load(Ordering::Relaxed)
}

fn versions<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> BTreeMap<String, String> {
    maps.into_iter().map(|map| (map.name_any(), map.resource_version().unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reflector_ends_with_the_content_of_the_store() {
    let seconds = std::env::var("YARDMASTER_REFLECTOR_SECONDS").map_or(2, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let api = maps(&server).await;
    // Some reflectors start with many objects, others in the middle of the writes.
    for number in 0..NAMES / 2 {
        write(&api, number).await;
    }
    let mut reflectors = Vec::new();
    for number in 0..REFLECTORS / 2 {
        reflectors.push(reflect(maps(&server).await, config(number)));
    }
    let (writes, ()) = tokio::join!(write_for(&api, time), async {
        tokio::time::sleep(time / 4).await;
        for number in 0..REFLECTORS / 2 {
            reflectors.push(reflect(maps(&server).await, config(number)));
        }
        tokio::time::sleep(time / 4).await;
        server.faults().inject(Fault::ExpireWatches, FaultScope::default(), Some(REFLECTORS / 2));
        tokio::time::sleep(time / 4).await;
        server.faults().break_watches();
    });
    println!("{:.0} writes/s for {seconds} s", writes as f64 / time.as_secs_f64());

    let wanted = versions(&api.list(&ListParams::default()).await.unwrap());
    assert!(wanted.len() > 100, "{} objects are left", wanted.len());
    let deadline = Instant::now() + PATIENCE;
    for (number, (store, task)) in reflectors.into_iter().enumerate() {
        loop {
            let state = store.state();
            let have = versions(state.iter().map(AsRef::as_ref));
            if have == wanted {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "reflector {number}: {} of {} objects",
                have.len(),
                wanted.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        task.abort();
    }
    server.shutdown().await;
}
