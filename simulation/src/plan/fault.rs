//! Faults that a plan may have.

use std::time::Duration;

/// A fault. Replicas are numbered from 0.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A replica crashes, and starts again.
    Crash {
        /// Which.
        replica: usize,
        /// Until it starts again.
        down: Duration,
    },
    /// A replica ends in good order, and starts again.
    Restart {
        /// Which.
        replica: usize,
        /// Until it starts again.
        down: Duration,
    },
    /// A replica does not run, and its clock goes on.
    Freeze {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
    },
    /// The machine of a replica is suspended: it does not run, and its monotonic clock stands still.
    Suspend {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
    },
    /// The wall clock of a replica is set.
    ClockStep {
        /// Which.
        replica: usize,
        /// By how many milliseconds; forward, if positive.
        millis: i64,
    },
    /// A replica's packets vanish in both directions: what is sent hangs.
    Partition {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
    },
    /// Connections of a replica fail at once.
    Unreachable {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
    },
    /// A replica's requests are carried out, but some answers never come: the connection breaks.
    LoseReplies {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
        /// How many of 100.
        percent: u32,
    },
    /// The next requests of a replica vanish, each on a connection of its own that hangs.
    Swallow {
        /// Which.
        replica: usize,
        /// How many.
        requests: u32,
        /// Only heartbeats.
        heartbeats: bool,
    },
    /// A replica's messages take longer.
    Slow {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
        /// How much longer.
        extra: Duration,
    },
    /// Watch events of a replica come late.
    HoldWatches {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
    },
    /// Watch events of a replica come twice, as when a watch resumes from a slightly earlier version.
    RepeatEvents {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
    },
    /// For a while, a load balancer sends a replica to an API server with caches that are behind. Watches show what these have.
    /// A list is answered when they have it, or from etcd.
    CachesBehind {
        /// Which.
        replica: usize,
        /// For how long.
        time: Duration,
        /// How far behind.
        by: Duration,
    },
    /// All watches of a replica end.
    CutWatches {
        /// Which.
        replica: usize,
    },
    /// The API server refuses some requests.
    Refuse {
        /// For how long.
        time: Duration,
        /// The HTTP status.
        code: u16,
        /// How many of 100.
        percent: u32,
        /// Which requests.
        what: Refused,
    },
    /// The API server is gone.
    Down {
        /// For how long.
        time: Duration,
    },
    /// The API server forgets old versions.
    Compact,
    /// A webhook of a namespace fails.
    Webhook {
        /// Where.
        namespace: String,
        /// For how long.
        time: Duration,
    },
    /// etcd is restored from a backup that was made this long before. All replicas are stopped for it, and
    /// started after it.
    Restore {
        /// How old the backup is.
        age: Duration,
    },
    /// A quota of this many pods in a namespace, for a while.
    Quota {
        /// Where.
        namespace: String,
        /// Most pods.
        pods: u32,
        /// For how long.
        time: Duration,
    },
    /// A Job is shown in a form that cannot be decoded.
    Undecodable {
        /// The number of the Job.
        job: usize,
        /// For how long.
        time: Duration,
    },
    /// A panic in the actor of a Job.
    Panic {
        /// The number of the Job.
        job: usize,
    },
    /// A panic in the actor of a shard.
    PanicShard {
        /// Which.
        replica: usize,
    },
    /// A panic in a watch of pods.
    PanicWatch {
        /// Which.
        replica: usize,
    },
    /// Two replicas believe to be the leader of the orphan controllers, or none does.
    Leadership {
        /// How many: 0 or 2.
        leaders: usize,
        /// For how long.
        time: Duration,
    },
    /// A user deletes a namespace with all that is in it.
    EndNamespace {
        /// Which.
        namespace: String,
    },
}

/// Which requests the API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All.
    All,
    /// Writes.
    Writes,
    /// Patches of pods.
    PodPatches,
    /// Deletions of pods.
    PodDeletes,
    /// Creations of pods.
    PodCreates,
    /// Patches of statuses.
    Statuses,
    /// Reads and watches.
    Reads,
    /// Creations in protobuf.
    Protobuf,
    /// Claims of shards, while heartbeats are renewed.
    Claims,
}

impl Fault {
    /// Which replica (all: `None`) has a reason to lose its shards, and for how long. A single lost request is no
    /// reason, and neither is what happens to pods alone.
    pub(crate) fn disturbs(&self) -> Option<(Option<usize>, Duration)> {
        match *self {
            Self::Crash { replica, down } => Some((Some(replica), down)),
            Self::Restart { replica, down } => Some((Some(replica), down + Duration::from_secs(10))),
            Self::Freeze { replica, time }
            | Self::Suspend { replica, time }
            | Self::Partition { replica, time }
            | Self::Unreachable { replica, time }
            | Self::LoseReplies { replica, time, .. }
            | Self::HoldWatches { replica, time }
            | Self::Slow { replica, time, .. } => Some((Some(replica), time)),
            // Slightly late caches are no reason.
            Self::CachesBehind { replica, time, by } => {
                (by > Duration::from_secs(5)).then_some((Some(replica), time + by))
            }
            Self::Swallow { replica, requests, .. } => {
                (requests > 1).then_some((Some(replica), Duration::from_secs(60)))
            }
            Self::Refuse { time, what, .. } => {
                let of_pods = matches!(
                    what,
                    Refused::PodPatches | Refused::PodDeletes | Refused::PodCreates | Refused::Protobuf
                );
                (!of_pods).then_some((None, time))
            }
            Self::Down { time } => Some((None, time)),
            Self::Restore { .. } => Some((None, Duration::from_secs(120))),
            Self::ClockStep { .. }
            | Self::CutWatches { .. }
            | Self::RepeatEvents { .. }
            | Self::Compact
            | Self::Webhook { .. }
            | Self::Quota { .. }
            | Self::Undecodable { .. }
            | Self::Panic { .. }
            | Self::PanicShard { .. }
            | Self::PanicWatch { .. }
            | Self::Leadership { .. }
            | Self::EndNamespace { .. } => None,
        }
    }
}
