//! Pods that have lost the labels by which watches find pods. The elected replica searches for them
//! now and then. If a pod loses its labels while a shard is watched, the shard sees it at once
//! ([`crate::actors::shards::shard_actor`]).
//!
//! Nothing is remembered of such pods. Each search tries each step once, so the next one repeats
//! failed steps, and two simultaneous searches do no harm.

pub mod election;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::orphan_pods::OrphanRelease;
use super::release_with_job::ReleaseWithJob;
use crate::actors::context::ReplicaContext;
#[cfg(feature = "test-hooks")]
use crate::actors::test_hooks::Part;
use crate::cluster::gate::{Fence, Order, Priority, Write};
use crate::cluster::resource::Resource;
use crate::cluster::supervision::supervised;
use crate::cluster::watch::Selection;
use crate::cluster::wire::{ControllerRef, ObservedPod, release_patch, untrack_patch};
use crate::job::adoption::Claimant;
use crate::job::job_id::JobId;
use crate::job::names::CONTROLLER_UID_LABEL;

/// Pause between two searches, as a multiple of the time that a list takes, and its limits. Lists take
/// a thousandth of the time; if there are few other pods, such a pod is found soon.
const PAUSE: u32 = 1_000;
const PAUSE_LIMITS: (Duration, Duration) = (Duration::from_secs(20), Duration::from_hours(1));
/// How long a search works for one namespace. The rest is left to the next search.
const NAMESPACE_TIME: Duration = Duration::from_secs(60);

/// The search of a replica, which goes on while the replica is elected. Clones are the same search.
#[derive(Clone)]
pub struct StrippedPods {
    cx: ReplicaContext,
    search: Arc<Mutex<Option<AbortOnDropHandle<()>>>>,
}

impl StrippedPods {
    /// The search of a replica that has not been elected.
    pub fn new(cx: ReplicaContext) -> Self {
        Self { cx, search: Arc::default() }
    }

    /// Records whether this replica is elected.
    pub fn lead(&self, elected: bool) {
        let mut search = self.search();
        if elected == search.is_some() {
            return;
        }
        self.cx.metrics.orphan_controller_leader.set(elected.into());
        *search = elected.then(|| {
            let cx = self.cx.clone();
            let task = supervised("the search for pods without labels", move || keep_searching(cx.clone()));
            AbortOnDropHandle::new(self.cx.runtime.spawn(task))
        });
    }

    fn search(&self) -> MutexGuard<'_, Option<AbortOnDropHandle<()>>> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_searching(cx: ReplicaContext) {
    let selection = Selection::all(Resource::PODS).labelled(format!("!{CONTROLLER_UID_LABEL}"));
    let concerns_us =
        |pod: &ObservedPod| pod.has_marks() || pod.controller.as_ref().is_some_and(ControllerRef::is_job);
    let mut backoff = cx.api_backoff();
    loop {
        let begun = Instant::now();
        match cx.reads.list_pod_metadata(&selection, concerns_us).await {
            Ok(list) => {
                #[cfg(feature = "test-hooks")]
                cx.config.test_hooks.pass(Part::StrippedPods);
                let pause = (begun.elapsed() * PAUSE).clamp(PAUSE_LIMITS.0, PAUSE_LIMITS.1);
                see_to_all(&cx, list.pods).await;
                backoff = cx.api_backoff();
                sleep(pause).await;
            }
            Err(error) => {
                tracing::warn!(%error, "pods without labels were not looked for");
                backoff.pause().await;
            }
        }
    }
}

/// Pods by the Job that controls them, if one does.
type ByJob = BTreeMap<Option<JobId>, Vec<Box<ObservedPod>>>;

/// Sees to pods, one after the other in each namespace.
async fn see_to_all(cx: &ReplicaContext, pods: impl IntoIterator<Item = Box<ObservedPod>>) {
    let mut namespaces: BTreeMap<Arc<str>, ByJob> = BTreeMap::new();
    for pod in pods {
        let by_job = namespaces.entry(pod.namespace.clone()).or_default();
        by_job.entry(pod.job().cloned()).or_default().push(pod);
    }
    let of_namespace = async |by_job: ByJob| {
        for (job, pods) in by_job {
            match job {
                None => release(cx, &pods).await,
                Some(job) => see_to_pods_of(cx, &job, &pods).await,
            }
        }
    };
    // Pods that are not handled within the time are found again.
    join_all(namespaces.into_values().map(|by_job| timeout(NAMESPACE_TIME, of_namespace(by_job)))).await;
}

/// Lets go of the pods without labels of a Job, as it would itself.
async fn see_to_pods_of(cx: &ReplicaContext, job: &JobId, pods: &[Box<ObservedPod>]) {
    let found = match cx.for_job(job).reads.find_job(job).await {
        Ok(Some(found)) => found,
        Ok(None) => return release(cx, pods).await,
        Err(error) => return tracing::warn!(job = %job.uid(), %error, "pods without labels were not seen to"),
    };
    if !cx.config.manages(found.managed_by.as_deref()) {
        return;
    }
    for pod in pods {
        match &found.job {
            Ok(read) if pod.labels.match_selector(&read.spec.selector, true) => {}
            // A Job that has finished stays the owner of its pods.
            Ok(read) if Claimant::of(read) == Claimant::Finished && !pod.pod.tracked => {}
            Ok(read) if Claimant::of(read) == Claimant::Finished => {
                let_go(cx, pod, job, untrack_patch(&pod.pod.uid, cx.config.finalizer())).await;
            }
            Ok(_) if !found.deleting => {
                let body = release_patch(&pod.pod.uid, pod.pod.version, job.uid(), cx.config.finalizer());
                let_go(cx, pod, job, body).await;
            }
            // The Job goes once its pods have gone.
            _ if found.deleting && pod.pod.tracked => _ = untrack(cx, pod, job).if_job_leaves().await,
            _ => {}
        }
    }
}

/// Takes our marks off pods that have no Job.
async fn release(cx: &ReplicaContext, pods: &[Box<ObservedPod>]) {
    let is_others = |pod: &ObservedPod| matches!(pod.controller, Some(ControllerRef::Other));
    for pod in pods.iter().filter(|pod| pod.has_marks() && !is_others(pod)) {
        OrphanRelease::of(cx, &Fence::unlimited(), pod).attempt_once().await;
    }
}

/// Takes a pod from the Job that does not select it, or our finalizer off the pod, as this patch says.
async fn let_go(cx: &ReplicaContext, pod: &ObservedPod, job: &JobId, body: Bytes) {
    let write = Write::PatchPod { namespace: pod.namespace.clone(), name: pod.pod.name.clone(), body };
    let order = Order::new(Priority::Finalizer, job.uid().clone(), Fence::unlimited());
    if let Err(refusal) = cx.gate.submit(order, write).await {
        tracing::warn!(pod = %pod.pod.uid, %refusal, "a pod that its Job does not select was not released");
    }
}

fn untrack(cx: &ReplicaContext, pod: &ObservedPod, job: &JobId) -> ReleaseWithJob {
    ReleaseWithJob {
        cx: cx.for_job(job),
        fence: Fence::unlimited(),
        namespace: pod.namespace.clone(),
        name: pod.pod.name.clone(),
        pod: pod.pod.uid.clone(),
        job: job.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::actors::test_api::{TestApi, job, list, pod, refusal, replica, run};
    use crate::job::names::BUILT_IN_CONTROLLER;

    const SOON: Duration = Duration::from_secs(1);
    const RELEASE: &[&str] = &["PATCH", "/pods/p"];

    fn stripped(controller: bool, tracked: bool) -> Value {
        let mut stripped = pod("p", "j");
        stripped["metadata"]["labels"] = json!({});
        if !controller {
            stripped["metadata"]["ownerReferences"] = json!([]);
        }
        if !tracked {
            stripped["metadata"]["finalizers"] = json!([]);
        }
        stripped
    }

    /// An API server with this pod, and its Job if it is there.
    fn api(found: Value, owner: Option<Value>) -> TestApi {
        TestApi::new(move |method, uri| match method {
            "GET" if uri.ends_with("labelSelector=%21batch.kubernetes.io%2Fcontroller-uid") => {
                list(7, std::slice::from_ref(&found))
            }
            "GET" if uri.contains("/jobs/j") => {
                owner.clone().map_or_else(|| refusal(404), |owner| Some((200, owner)))
            }
            "PATCH" => refusal(404),
            _ => None,
        })
    }

    #[test]
    fn a_pod_without_labels_is_let_go_as_its_job_would() {
        let ours = || Some(job("j", json!({})));
        let with = |change: fn(&mut Value)| {
            let mut owner = job("j", json!({}));
            change(&mut owner);
            Some(owner)
        };
        let others = || with(|owner| owner["spec"]["managedBy"] = "example.com/other".into());
        let chosen = || with(|owner| owner["spec"]["selector"] = json!({}));
        let deleting =
            || with(|owner| owner["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into());
        let finished = || {
            with(|owner| owner["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]}))
        };
        for (what, found, owner, patches, with_owner) in [
            ("its Job is gone", stripped(true, true), None, 1, 0),
            ("and it has no finalizer", stripped(true, false), None, 0, 0),
            ("it has no Job", stripped(false, true), None, 1, 0),
            ("its Job does not select it", stripped(true, true), ours(), 1, 1),
            ("and it has no finalizer", stripped(true, false), ours(), 1, 1),
            ("its Job has finished", stripped(true, false), finished(), 0, 0),
            ("and it has the finalizer", stripped(true, true), finished(), 1, 0),
            ("its Job selects it", stripped(true, true), chosen(), 0, 0),
            ("its Job is being deleted", stripped(true, true), deleting(), 1, 0),
            ("its Job is another controller's", stripped(true, true), others(), 0, 0),
        ] {
            run(async move {
                let api = api(found, owner);
                let search = StrippedPods::new(replica(&api, BUILT_IN_CONTROLLER));
                search.lead(true);
                sleep(SOON).await;
                assert_eq!(api.count(RELEASE), patches, "{what}: {:?}", api.sent());
                assert_eq!(api.count(&["PATCH", "ownerReferences"]), with_owner, "{what}");
            });
        }
    }

    #[test]
    fn only_the_leader_searches_and_repeats_what_has_failed() {
        run(async {
            let api = api(stripped(true, true), None);
            let search = StrippedPods::new(replica(&api, BUILT_IN_CONTROLLER));
            search.lead(false);
            sleep(PAUSE_LIMITS.0 * 3).await;
            assert_eq!(api.count(RELEASE), 0);
            search.lead(true);
            search.lead(true);
            sleep(PAUSE_LIMITS.0 * 2 + SOON).await;
            assert_eq!(api.count(RELEASE), 3);
            search.lead(false);
            sleep(PAUSE_LIMITS.0 * 3).await;
            assert_eq!(api.count(RELEASE), 3);
        });
    }

    /// Its webhooks answer nothing.
    #[test]
    fn a_namespace_whose_writes_hang_holds_up_no_other() {
        run(async {
            let found = |namespace: &str, number: u32| {
                let mut found = stripped(true, true);
                found["metadata"]["namespace"] = namespace.into();
                found["metadata"]["name"] = format!("p{number}").into();
                found["metadata"]["uid"] = format!("{namespace}-{number}").into();
                found
            };
            let mut pods: Vec<Value> = (0..100).map(|number| found("evil", number)).collect();
            pods.push(found("victim", 0));
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("labelSelector") => list(7, &pods),
                "GET" if uri.contains("/jobs/") => refusal(404),
                "PATCH" if uri.contains("/victim/") => refusal(404),
                _ => None,
            });
            let search = StrippedPods::new(replica(&api, BUILT_IN_CONTROLLER));
            search.lead(true);
            sleep(SOON).await;
            assert_eq!(api.count(&["PATCH", "/victim/pods/p0"]), 1);
            sleep(NAMESPACE_TIME + PAUSE_LIMITS.0).await;
            assert_eq!(api.count(&["PATCH", "/victim/pods/p0"]), 2, "the search goes on");
        });
    }
}
