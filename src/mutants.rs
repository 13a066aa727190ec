//! Deliberately broken variants of the controller: plausible mistakes, each of which the simulator must
//! catch. A mutant that survives shows a promise that the simulator does not check.
//!
//! A mark in the code is one line that asks [`is`]. Without the cargo feature `test-hooks`, which no
//! released program has, the answer is always no, and the mark compiles to nothing.

macro_rules! mutants {
    ($(#[doc = $what:literal] $mutant:ident,)*) => {
        /// A broken variant. The name and the comment say what is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $(#[doc = $what] $mutant,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$mutant,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$mutant => stringify!($mutant),)* }
            }

            /// Describes the fault in one sentence.
            pub fn what(self) -> &'static str {
                match self { $(Self::$mutant => $what.trim_ascii(),)* }
            }
        }
    };
}

mutants! {
    // Counting.
    /// Finalizers of ended pods are removed before a status records the pods.
    FinalizerBeforeStatus,
    /// A recorded pod is counted although it still has its finalizer.
    CountedWithFinalizer,
    /// That the status lists a pod does not keep it from being recorded again.
    RecordedAgain,
    /// A replica that takes a Job over counts from zero.
    CountsFromZero,
    /// A refused removal of a finalizer is taken for done.
    RefusedReleaseTakenForDone,
    /// A Job ends before all its recorded pods are counted.
    EndsBeforeCounted,
    /// Completed indexes whose pods are gone are forgotten.
    CompletedIndexesForgotten,
    /// A pod that scaling down or suspending removes keeps its finalizer, and so counts as failed.
    RemovalsCountAsFailures,
    /// A failed pod that is being deleted loses its finalizer uncounted.
    DeletedFailureUncounted,

    // Options.
    /// A Job that has to succeed before another one may also fail.
    FailureTakenForSuccess,
    /// A Job that has to end before another one may also be missing.
    MissingTakenForEnded,
    /// A pod of a lost node is deleted with its own grace period, not by force.
    LostPodsKeepGrace,
    /// A replica that takes a Job over forgets how its indexes have ended.
    ResultsForgotten,
    /// Pods do not carry what those before them have taught.
    LineageNotWritten,
    /// After a container has run out of memory, only its limit is raised.
    OnlyLimitsRaised,
    /// When all pods are to be replaced together, those that have not failed stay.
    RestartLeavesOthers,
    /// The status does not say how often all pods were replaced together.
    RestartNotWritten,

    // Knowledge of our own writes.
    /// A status is believed when it is sent, not when it is acknowledged.
    StatusBelievedWhenSent,
    /// A status under way is forgotten: the next look writes it again.
    StatusInFlightForgotten,
    /// Creations under way are forgotten: the next look creates the pods again.
    CreationsInFlightForgotten,
    /// Creations under way do not count as active pods.
    CreationsNotExpected,
    /// Pods get names by chance.
    RandomPodNames,
    /// A creation whose answer was lost is repeated under another name.
    LostCreationUnderNewName,
    /// A Job gets pods while the adoption of others is not answered.
    AdoptionsNotAwaited,
    /// Refused requests are repeated at once.
    NoBackoff,

    // Knowledge of what others change.
    /// DELETED events of pods are ignored.
    DeletedPodIgnored,
    /// DELETED events of Jobs are ignored.
    DeletedJobIgnored,
    /// A list does not show that pods are gone.
    RelistKeepsGonePods,
    /// A watch that breaks is not opened again.
    WatchGivenUp,
    /// A watch whose version has expired (410) goes on with the newest, without a list.
    ExpiredWatchNotRelisted,
    /// Plans are made before the pods of a new shard are listed.
    PlansBeforePodsAreListed,
    /// Pods that somebody else has released do not cast doubt on the known status.
    StatusNeverDoubted,
    /// A status that somebody else has written does not cast doubt on the known pods.
    PodsNeverDoubted,
    /// Whether the Job of an orphan exists is not looked up before the orphan loses its finalizer.
    OrphanReleasedUnasked,
    /// A shard does not forget pods that are counted.
    CountedPodsHeld,
    /// A Job whose actor has panicked is not rebuilt.
    PanickedJobNotRebuilt,

    // The rules of a Job.
    /// Nothing happens at the time that a plan asks for: back-offs and deadlines do not end.
    TimersForgotten,
    /// A Job ends without the condition that announces its end.
    EndNotAnnounced,
    /// A Job is done with one success less than its completions.
    CompletionsOffByOne,
    /// A Job fails with one failure less than beyond its backoffLimit.
    BackoffLimitOffByOne,
    /// An index forgets its earlier failures.
    IndexFailuresForgotten,
    /// An index whose success is not recorded yet gets another pod.
    UnrecordedSuccessForgotten,
    /// A pod counts as active only until its removal is sent, not until that is answered.
    ActiveUntilRemovalSent,
    /// A status is not written if no more has changed than how many pods are active, ready or terminating.
    GaugesNotWritten,
    /// The success policy is never met.
    SuccessPolicyIgnored,
    /// `podReplacementPolicy` is ignored: terminating pods are replaced.
    ReplacementPolicyIgnored,
    /// `podFailurePolicy` is ignored.
    FailurePolicyIgnored,
    /// A suspended Job keeps its pods.
    SuspendedKeepsPods,
    /// A Job that wants fewer pods than before keeps those that it has.
    SurplusKept,
    /// A Job that is being deleted still gets pods.
    DeletedJobGetsPods,
    /// The TTL begins at the start of a Job, not at its end.
    TtlFromStart,
    /// A finished Job is passivated while pods of it are held.
    PassivatedWithPods,

    // Tenants.
    /// A pod is the Job's whose UID its owner reference has, whatever namespace and name say.
    OwnershipByUid,
    /// Reads take turns by the UIDs of Jobs, which the authors of pods choose, and not by namespace.
    TurnsByUid,

    // Owners.
    /// Fences never close.
    FenceOff,
    /// A replica acts for longer after its last heartbeat than others wait for the next.
    ActsBeyondLease,
    /// A replica that seems silent is taken for dead without a live read.
    SilentTakenForDead,
    /// A shard is claimed while its owner is alive.
    ClaimedFromTheLiving,
    /// A shard that another replica has claimed is kept.
    LostShardKept,
    /// A shard is handed over while requests are in flight.
    DrainWaitsForNothing,
    /// A claim does not raise the epoch.
    EpochNotRaised,
    /// A request about a Lease, such as a heartbeat, waits for its answer as long as its replica may act without one.
    HeartbeatWaitsForDeadline,
}

#[cfg(feature = "test-hooks")]
mod chosen {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        /// A simulated world runs in one thread, all of its replicas included.
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether the controllers of this thread are this mutant.
    pub fn is(mutant: Mutant) -> bool {
        CHOSEN.get() == Some(mutant)
    }

    /// Runs something whose controllers, in this thread, are a mutant or none.
    pub fn with<T>(mutant: Option<Mutant>, run: impl FnOnce() -> T) -> T {
        struct Restore(Option<Mutant>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CHOSEN.set(self.0);
            }
        }
        let _restore = Restore(CHOSEN.replace(mutant));
        run()
    }
}

#[cfg(feature = "test-hooks")]
pub use self::chosen::{is, with};

/// Whether the controllers of this thread are this mutant: never, in this build.
#[cfg(not(feature = "test-hooks"))]
pub const fn is(_: Mutant) -> bool {
    false
}
