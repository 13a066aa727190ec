//! Live lists of the pods of Jobs that doubt the shard's own list: their status tells of pods that it lacks, or they have
//! known some with our finalizer.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler, Message};

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
    /// A list is scheduled or in progress.
    busy: bool,
    /// Lists that wait until all pods in them are shown.
    proven: UidMap<(UidSet, u64)>,
}

/// All pods of some Jobs, whatever label they have.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Sought {
    jobs: Vec<Uid>,
    list: PodList,
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
        if !std::mem::replace(&mut self.doubts.busy, true) {
            ctx.run_later(RELIST_DELAY, Self::seek_pods);
        }
    }

    fn seek_pods(&mut self, ctx: &mut Context<Self>) {
        let mut jobs: Vec<Uid> = self.doubts.jobs.iter().cloned().collect();
        jobs.retain(|job| self.jobs.contains_key(job));
        jobs.sort();
        // A selector of its own may select pods without the label that the others are found by.
        let manual = jobs.iter().position(|job| {
            self.jobs
                .get(job)
                .and_then(|entry| entry.seen().job.as_ref().ok())
                .is_some_and(|job| Owner::from(job).chooses_pods())
        });
        let jobs = match manual {
            Some(position) => vec![jobs.swap_remove(position)],
            None => jobs.into_iter().take(MAX_SOUGHT).collect(),
        };
        let selection = manual.and(jobs.first()).and_then(|job| {
            let job = self.jobs.get(job)?.seen().job.as_ref().ok()?;
            Some((job.namespace.clone(), job.spec.clone()))
        });
        match jobs.is_empty() {
            true => {
                self.doubts = Doubts { proven: std::mem::take(&mut self.doubts.proven), ..Doubts::default() }
            }
            false => jobs.iter().for_each(|job| _ = self.doubts.jobs.remove(job)),
        }
        if jobs.is_empty() {
            return;
        }
        let uids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let labels = format!("{CONTROLLER_UID_LABEL} in ({})", uids.join(","));
        let (cx, fence, shard) = (self.cx.clone(), self.owned.fence.clone(), ctx.address());
        self.owned.unit.spawn("a search for missing pods", async move {
            let list = match selection {
                Some((namespace, spec)) => list_selected(&cx, &namespace, &spec.selector).await,
                None => {
                    let mut backoff = cx.api_backoff();
                    loop {
                        match cx.reads.list_pod_metadata(&labels, |_| true).await {
                            Ok(list) => break list,
                            Err(_) if fence.is_closed() => return,
                            Err(error) => tracing::warn!(%error, "missing pods were not looked for"),
                        }
                        backoff.pause().await;
                    }
                }
            };
            shard.do_send(Sought { jobs, list });
        });
    }

    /// Answers the Jobs that were in doubt: what the live list does not show does not exist.
    fn pods_sought(&mut self, Sought { jobs, list }: Sought, ctx: &mut Context<Self>) {
        // A list in progress shows no state that ever existed. When it is complete, Jobs may doubt it again.
        let known = self.pod_feed.version();
        if known.is_some_and(|known| list.version < known) {
            // The shard's list is younger. What it shows would seem to be gone.
            self.doubts.jobs.extend(jobs);
            ctx.run_later(DOUBT_PAUSE, Self::seek_pods);
            return;
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
