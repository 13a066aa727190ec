//! Searches for the pods that a Job with a selector of its own may adopt.

use actix::{Addr, AsyncContext, Context};
use tokio_util::task::AbortOnDropHandle;

use super::{JobEntry, Stage};
use crate::actors::shard_actor::doubts::DOUBT_PAUSE;
use crate::actors::shard_actor::{Candidates, ShardActor};
use crate::actors::watch_feed::list_selected;
use crate::job::job_id::JobId;
use crate::job::spec::Job;
use crate::job::uid::UidMap;

impl JobEntry {
    /// The pods that it may adopt are being looked for again, unless nobody waits for them or another search goes on.
    pub(super) fn candidates_sought(&mut self, search: AbortOnDropHandle<()>) {
        if let Stage::Active(active) = &mut self.stage
            && active.candidates.as_ref().is_some_and(AbortOnDropHandle::is_finished)
        {
            active.candidates = Some(search);
        }
    }

    /// The pods that it may adopt have been found, or nobody needs them any more. Returns whether they were looked for.
    pub(in crate::actors::shard_actor) fn candidates_found(&mut self) -> bool {
        let Stage::Active(active) = &mut self.stage else { return false };
        active.candidates.take().is_some()
    }
}

impl ShardActor {
    /// Looks for pods that a Job may adopt. `doubted`: those in whose state an earlier look left doubts.
    pub(super) fn look_for_candidates(
        &self,
        job: &Job,
        doubted: UidMap<u64>,
        shard: &Addr<Self>,
    ) -> AbortOnDropHandle<()> {
        let (id, shard) = (job.id(), shard.clone());
        let (cx, spec) = (self.cx.for_job(&id), job.spec.clone());
        AbortOnDropHandle::new(self.owned.unit.spawn("a search for pods that a Job may adopt", async move {
            let list = list_selected(&cx, id.namespace(), &spec.selector).await;
            shard.do_send(Candidates { job: id, doubted, list });
        }))
    }

    /// Looks again for pods that a Job may adopt, after a pause in which the watch may show what has become of them.
    pub(in crate::actors::shard_actor) fn look_for_candidates_again(
        &mut self,
        job: &JobId,
        doubted: UidMap<u64>,
        ctx: &mut Context<Self>,
    ) {
        let job = job.clone();
        self.timers.set(DOUBT_PAUSE, ctx, move |shard, ctx| {
            let Some(Ok(known)) = shard.jobs.get(&job).map(|entry| &entry.seen.job) else { return };
            let search = shard.look_for_candidates(known, doubted, &ctx.address());
            if let Some(entry) = shard.jobs.get_mut(&job) {
                entry.candidates_sought(search);
            }
        });
    }
}
