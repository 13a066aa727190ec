//! Faults of processes, connections, webhooks and the disk, and the time until their effect is over.
//!
//! `drill` plays them one after the other on a stage. `record` is what is known of each afterwards.

mod acts;
mod drill;
mod record;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use self::drill::{Drill, DrillArgs};
pub(crate) use self::record::{Record, table};
use crate::ground::Storage;
use crate::stage::Setup;

/// A kind of fault.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProcessFault {
    /// SIGKILL to a replica; another one is started at once.
    KillReplica,
    /// SIGSTOP to a replica, and SIGCONT after the fault time.
    FreezeReplica,
    /// Orderly end of the API server, which starts again from its data directory.
    RestartApiServer,
    /// SIGKILL to the API server, which starts again from its data directory.
    KillApiServer,
    /// The files in the API server's data directory cannot grow any more, until the API server ends. It starts
    /// again with room.
    FullDisk,
    /// All bytes on one connection of a replica are swallowed for the fault time.
    Blackhole,
    /// The API server's side of one connection is closed, and the replica does not hear of it for the fault time.
    HalfOpen,
    /// All bytes on all connections of a replica take longer for the fault time.
    SlowLink,
    /// One connection ends in the middle of an answer.
    CutAnswer,
    /// All bytes on all connections of a replica are swallowed for the fault time.
    IsolateReplica,
    /// A webhook takes some time for each pod that is created, for the fault time.
    SlowWebhook,
    /// A webhook gives no answer, so no pod is created for the fault time.
    FailingWebhook,
}

impl ProcessFault {
    /// Whether it needs the embedded API server.
    pub(crate) fn needs_embedded(self) -> bool {
        match self {
            Self::RestartApiServer
            | Self::KillApiServer
            | Self::FullDisk
            | Self::SlowWebhook
            | Self::FailingWebhook => true,
            Self::KillReplica
            | Self::FreezeReplica
            | Self::Blackhole
            | Self::HalfOpen
            | Self::SlowLink
            | Self::CutAnswer
            | Self::IsolateReplica => false,
        }
    }

    /// The setup that it needs.
    fn setup(self) -> Setup {
        let default = Setup::default();
        match self {
            Self::KillReplica | Self::FreezeReplica | Self::SlowWebhook | Self::FailingWebhook => default,
            Self::RestartApiServer | Self::KillApiServer | Self::FullDisk => {
                Setup { storage: Storage::Disk, ..default }
            }
            Self::Blackhole | Self::HalfOpen | Self::SlowLink | Self::CutAnswer | Self::IsolateReplica => {
                Setup { proxies: true, ..default }
            }
        }
    }

    /// The setup that all of these need.
    pub(crate) fn setup_of(faults: &[Self]) -> Setup {
        faults.iter().map(|fault| fault.setup()).fold(Setup::default(), |all, one| Setup {
            storage: if one.storage == Storage::Disk { Storage::Disk } else { all.storage },
            proxies: all.proxies || one.proxies,
        })
    }
}

impl std::fmt::Display for ProcessFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No variant is skipped, so each has a name.
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_brings_what_it_needs() {
        assert_eq!(ProcessFault::setup_of(&[ProcessFault::KillReplica]), Setup::default());
        let both = [ProcessFault::FullDisk, ProcessFault::Blackhole];
        assert_eq!(ProcessFault::setup_of(&both), Setup { storage: Storage::Disk, proxies: true });
        assert!(!ProcessFault::FreezeReplica.needs_embedded() && !ProcessFault::CutAnswer.needs_embedded());
        assert!(ProcessFault::SlowWebhook.needs_embedded() && ProcessFault::FullDisk.needs_embedded());
    }
}
