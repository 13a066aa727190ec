//! Live lists of the pods of Jobs that doubt the shard's own list: their status tells of pods that it lacks, or they have
//! known some with our finalizer.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler, Message};
use tokio_util::task::AbortOnDropHandle;

use super::{RELIST_DELAY, ShardActor};
use crate::actors::job_index::Owner;
use crate::actors::job_input::JobInput;
use crate::actors::watch_feed::list_selected;
use crate::cluster::reads::PodList;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::uid::{Uid, UidMap, UidSet};

/// Most Jobs whose pods are looked for in one list: their UIDs are part of a URL.
const MAX_SOUGHT: usize = 50;
/// Pause before pods are listed again after a list that did not show all of them.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// The lists of pods that Jobs have asked for in doubt of the shard's own.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Jobs that wait for the next list.
    jobs: UidSet,
    /// The next list is scheduled.
    scheduled: bool,
    /// The list in progress that Jobs share.
    shared: Option<AbortOnDropHandle<()>>,
    /// The lists in progress of Jobs with a selector of their own, which may select pods without the label that the
    /// others are found by. None of them waits for another.
    own: UidMap<AbortOnDropHandle<()>>,
    /// Lists that wait until all pods in them are shown.
    proven: UidMap<(UidSet, u64)>,
}

/// All pods of some Jobs, whatever label they have.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Sought {
    of: SoughtFor,
    list: PodList,
}

/// Whose pods were looked for.
enum SoughtFor {
    /// Jobs that share the list.
    Shared(Vec<Uid>),
    /// A Job with a selector of its own.
    Own(Uid),
}

impl Doubts {
    /// The list that has waited until a Job's pods are all shown.
    pub(super) fn take_proven(&mut self, job: &Uid) -> Option<(UidSet, u64)> {
        self.proven.remove(job)
    }

    /// The shard lists its pods again: the lists that wait are older.
    pub(super) fn list_begins(&mut self) {
        self.proven.clear();
    }
}

impl ShardActor {
    /// A Job knows of pods that a complete list has not shown. All such Jobs share one live list.
    pub(super) fn pods_missing(&mut self, job: Uid, ctx: &mut Context<Self>) {
        if self.pod_feed.is_draining() {
            return;
        }
        self.doubts.jobs.insert(job);
        self.schedule_search(RELIST_DELAY, ctx);
    }

    fn schedule_search(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.doubts.scheduled, true) {
            ctx.run_later(pause, |shard, ctx| {
                shard.doubts.scheduled = false;
                shard.seek_pods(ctx);
            });
        }
    }

    /// Begins the lists that Jobs wait for and that are not in progress.
    fn seek_pods(&mut self, ctx: &mut Context<Self>) {
        let known = &self.jobs;
        self.doubts.jobs.retain(|job| known.contains_key(job));
        self.doubts.own.retain(|job, _| known.contains_key(job));
        let mut jobs: Vec<Uid> = self.doubts.jobs.iter().cloned().collect();
        jobs.sort();
        let chooses_pods = |job: &Uid| {
            let seen = self.jobs.get(job).map(|entry| &entry.seen().job);
            seen.is_some_and(|job| job.as_ref().is_ok_and(|job| Owner::from(job).chooses_pods()))
        };
        let (own, mut shared): (Vec<Uid>, Vec<Uid>) = jobs.into_iter().partition(chooses_pods);
        for job in own {
            if !self.doubts.own.contains_key(&job) {
                self.seek_selected(job, ctx);
            }
        }
        shared.truncate(MAX_SOUGHT);
        if !shared.is_empty() && self.doubts.shared.is_none() {
            self.seek_shared(shared, ctx);
        }
    }

    /// Looks for the pods that a Job's own selector selects.
    fn seek_selected(&mut self, job: Uid, ctx: &Context<Self>) {
        self.doubts.jobs.remove(&job);
        let Some(Ok(known)) = self.jobs.get(&job).map(|entry| &entry.seen().job) else { return };
        let (namespace, spec) = (known.namespace.clone(), known.spec.clone());
        let (cx, shard, of) = (self.cx.clone(), ctx.address(), job.clone());
        let task = self.owned.unit.spawn("a search for missing pods", async move {
            let list = list_selected(&cx, &namespace, &spec.selector).await;
            shard.do_send(Sought { of: SoughtFor::Own(of), list });
        });
        self.doubts.own.insert(job, AbortOnDropHandle::new(task));
    }

    /// Looks for the pods of these Jobs in one list.
    fn seek_shared(&mut self, jobs: Vec<Uid>, ctx: &Context<Self>) {
        jobs.iter().for_each(|job| _ = self.doubts.jobs.remove(job));
        let uids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let labels = format!("{CONTROLLER_UID_LABEL} in ({})", uids.join(","));
        let (cx, fence, shard) = (self.cx.clone(), self.owned.fence.clone(), ctx.address());
        let task = self.owned.unit.spawn("a search for missing pods", async move {
            let mut backoff = cx.api_backoff();
            let list = loop {
                match cx.reads.list_pod_metadata(&labels, |_| true).await {
                    Ok(list) => break list,
                    Err(_) if fence.is_closed() => return,
                    Err(error) => tracing::warn!(%error, "missing pods were not looked for"),
                }
                backoff.pause().await;
            };
            shard.do_send(Sought { of: SoughtFor::Shared(jobs), list });
        });
        self.doubts.shared = Some(AbortOnDropHandle::new(task));
    }

    /// Answers the Jobs that were in doubt: what the live list does not show does not exist.
    fn pods_sought(&mut self, Sought { of, list }: Sought, ctx: &mut Context<Self>) {
        let jobs = match of {
            SoughtFor::Shared(jobs) => {
                self.doubts.shared = None;
                jobs
            }
            SoughtFor::Own(job) => {
                self.doubts.own.remove(&job);
                vec![job]
            }
        };
        // A list in progress shows no state that ever existed. When it is complete, Jobs may doubt it again.
        let known = self.pod_feed.version();
        if known.is_some_and(|known| list.version < known) {
            // The shard's list is younger. What it shows would seem to be gone.
            self.doubts.jobs.extend(jobs);
            return self.schedule_search(DOUBT_PAUSE, ctx);
        }
        let mut found: UidMap<UidSet> = jobs.into_iter().map(|job| (job, UidSet::default())).collect();
        let mut must_relist = false;
        for pod in &list.pods {
            let Some(owner) = &pod.controller else { continue };
            let Some(uids) = found.get_mut(&owner.uid) else { continue };
            let uid = &pod.pod.uid;
            uids.insert(uid.clone());
            if !self.is_labelled(pod) {
                self.label(pod, &owner.uid, ctx);
            } else if pod.pod.tracked && self.pod_owners.job_of(uid).is_none() && !self.unseen.contains(uid) {
                // The label is right, and the shard's list did not show it.
                must_relist = true;
                found.remove(&owner.uid);
            }
        }
        for pod in &list.unreadable {
            if let Some(uids) = pod.controller.as_ref().and_then(|owner| found.get_mut(&owner.uid)) {
                uids.insert(pod.uid.clone());
                self.pod_unreadable(pod, ctx);
            }
        }
        let found = if known.is_some() { found } else { UidMap::default() };
        for (job, listed) in found {
            if self.unseen.hold_back(&job) {
                self.doubts.proven.insert(job, (listed, list.version));
            } else {
                self.send(&job, JobInput::PodsListed { listed, version: list.version, proven: true });
            }
        }
        if must_relist {
            tracing::warn!(shard = %self.owned.id, "a list of pods was not complete; listing again");
            ctx.run_later(DOUBT_PAUSE, |shard, ctx| shard.relist_pods(ctx));
        }
        self.seek_pods(ctx);
    }
}

impl Handler<Sought> for ShardActor {
    type Result = ();

    fn handle(&mut self, sought: Sought, ctx: &mut Self::Context) {
        if !self.pod_feed.is_draining() {
            self.pods_sought(sought, ctx);
        }
    }
}
