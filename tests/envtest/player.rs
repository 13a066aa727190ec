//! Plays the kubelets: moves pods, and keeps what became of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::control_plane::ControlPlane;
use crate::patch_status;

/// How many pods of a Job there have been, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub(crate) running: i32,
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    /// Removed before they had ended.
    pub(crate) deleted: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Running,
    Succeeded,
    Failed,
    Deleted,
}

#[derive(Default)]
struct Known {
    /// By the pod's UID: its Job, its name and its fate.
    pods: BTreeMap<String, (String, String, Fate)>,
    most_running: usize,
}

impl Known {
    fn running(&self) -> usize {
        self.pods.values().filter(|(_, _, fate)| *fate == Fate::Running).count()
    }
}

/// Has each pod run, and end after a time.
pub(crate) struct Player {
    known: Arc<Mutex<Known>>,
    pods: Api<Pod>,
    playing: JoinHandle<()>,
}

impl Player {
    /// Plays all pods: they run for `time`, and those whose number `fails` fail.
    pub(crate) fn start(plane: &ControlPlane, fails: fn(usize) -> bool, time: Duration) -> Self {
        let (known, pods) = (Arc::new(Mutex::new(Known::default())), plane.api::<Pod>());
        let (noted, api) = (Arc::clone(&known), pods.clone());
        let playing = tokio::spawn(async move {
            let mut events = Box::pin(watcher(api.clone(), watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                        let number = noted.lock().unwrap().pods.len();
                        if is_new(&noted, &pod) {
                            tokio::spawn(run(api.clone(), Arc::clone(&noted), pod, fails(number), time));
                        }
                    }
                    Ok(Event::Delete(pod)) => {
                        let mut known = noted.lock().unwrap();
                        let fate = known.pods.get_mut(&pod.metadata.uid.unwrap()).map(|(_, _, fate)| fate);
                        fate.into_iter()
                            .filter(|fate| **fate == Fate::Running)
                            .for_each(|fate| *fate = Fate::Deleted);
                    }
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { known, pods, playing }
    }

    /// The fates of the pods of a Job.
    pub(crate) fn fates(&self, job: &str) -> Fates {
        let mut fates = Fates::default();
        for (of, _, fate) in self.known.lock().unwrap().pods.values() {
            let count = match fate {
                _ if of != job => continue,
                Fate::Running => &mut fates.running,
                Fate::Succeeded => &mut fates.succeeded,
                Fate::Failed => &mut fates.failed,
                Fate::Deleted => &mut fates.deleted,
            };
            *count += 1;
        }
        fates
    }

    /// How many pods run.
    pub(crate) fn running(&self) -> usize {
        self.known.lock().unwrap().running()
    }

    /// How many pods ran at once, at most.
    pub(crate) fn most_running(&self) -> usize {
        self.known.lock().unwrap().most_running
    }

    /// Has some running pods of a Job succeed.
    pub(crate) async fn end_some(&self, job: &str, count: usize) {
        let running: Vec<(String, String)> = {
            let known = self.known.lock().unwrap();
            let of_job = known.pods.iter().filter(|(_, (of, _, fate))| of == job && *fate == Fate::Running);
            of_job.take(count).map(|(uid, (_, name, _))| (uid.clone(), name.clone())).collect()
        };
        for (uid, name) in running {
            assert!(patch_status(&self.pods, &name, json!({"phase": "Succeeded"})).await);
            self.known.lock().unwrap().pods.get_mut(&uid).unwrap().2 = Fate::Succeeded;
        }
    }

    pub(crate) fn stop(self) {
        self.playing.abort();
    }
}

/// Whether a pod was not seen before; from now on it is known.
fn is_new(known: &Mutex<Known>, pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let job = meta.labels.as_ref().and_then(|labels| labels.get("batch.kubernetes.io/job-name"));
    let mut known = known.lock().unwrap();
    let uid = meta.uid.clone().unwrap();
    if known.pods.contains_key(&uid) {
        return false;
    }
    let name = meta.name.clone().unwrap();
    known.pods.insert(uid, (job.cloned().unwrap_or_default(), name, Fate::Running));
    known.most_running = known.most_running.max(known.running());
    true
}

async fn run(pods: Api<Pod>, known: Arc<Mutex<Known>>, pod: Pod, fails: bool, time: Duration) {
    let (name, uid) = (pod.metadata.name.unwrap(), pod.metadata.uid.unwrap());
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    patch_status(&pods, &name, ready).await;
    tokio::time::sleep(time).await;
    let (phase, fate) = if fails { ("Failed", Fate::Failed) } else { ("Succeeded", Fate::Succeeded) };
    if patch_status(&pods, &name, json!({"phase": phase})).await {
        known.lock().unwrap().pods.get_mut(&uid).unwrap().2 = fate;
    }
}
