//! Whether the parts of a replica answer. A part in an endless loop does not panic; only this
//! check finds it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix::Addr;
use tokio::time::{Instant, sleep};

use crate::actors::messages::protocol::Ping;
use crate::actors::shards::replica_actor::{ListShards, ReplicaActor};
use crate::sharding::ShardId;

/// Time between two questions.
const PERIOD: Duration = Duration::from_secs(5);
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A part that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Replica,
    Shard(ShardId),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica => f.write_str("the replica actor"),
            Self::Shard(shard) => write!(f, "shard {shard}"),
        }
    }
}

/// The questions that are not answered yet, and since when. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<BTreeMap<Part, Instant>>>);

impl Liveness {
    /// Asks all actors again and again, without end.
    pub async fn keep_asking(self, replica: Addr<ReplicaActor>) {
        loop {
            let (this, shards) = (self.clone(), replica.send(ListShards));
            self.ask(Part::Replica, async move {
                for (shard, actor) in shards.await.unwrap_or_default() {
                    this.ask(Part::Shard(shard), async move { _ = actor.send(Ping).await });
                }
            });
            sleep(PERIOD).await;
        }
    }

    /// Asks a part, unless an earlier question waits for its answer. A part that is gone has not failed to answer.
    fn ask(&self, part: Part, answer: impl Future<Output = ()> + Send + 'static) {
        if self.waiting().contains_key(&part) {
            return;
        }
        self.waiting().insert(part, Instant::now());
        let this = self.clone();
        tokio::spawn(async move {
            answer.await;
            this.waiting().remove(&part);
        });
    }

    /// The part that has not answered in time, with a lease manager that has decided nothing
    /// for `idle`.
    pub fn hangs(&self, idle: Duration) -> Option<String> {
        let says = |part: &dyn fmt::Display, silent: Duration| {
            (silent >= DEADLINE).then(|| format!("{part} has not answered for {} s", silent.as_secs()))
        };
        let of_actors = self.waiting().iter().find_map(|(part, since)| says(part, since.elapsed()));
        of_actors.or_else(|| says(&"the lease manager", idle))
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Part, Instant>> {
        // A panic leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_answer_for_thirty_seconds_hangs() {
        let liveness = Liveness::default();
        liveness.ask(Part::Replica, ready(()));
        liveness.ask(Part::Shard(ShardId(7)), pending());
        sleep(Duration::from_secs(20)).await;
        liveness.ask(Part::Shard(ShardId(7)), ready(()));
        assert_eq!(liveness.hangs(Duration::from_secs(29)), None);
        sleep(Duration::from_secs(10)).await;
        let hangs = liveness.hangs(Duration::ZERO);
        assert_eq!(hangs.as_deref(), Some("shard 7 has not answered for 30 s"), "since the first question");
        let idle = Liveness::default().hangs(Duration::from_secs(31));
        assert_eq!(idle.as_deref(), Some("the lease manager has not answered for 31 s"));
    }
}
