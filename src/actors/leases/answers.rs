//! Answers of the API server about Leases, and what the coordinator learns from them.

use std::sync::Arc;

use tokio::time::Instant;

use super::LeaseManager;
use super::live::{Found, Unreadable};
use crate::sharding::lease::{Balance, Claim, LeaseRecord};
use crate::sharding::{Moment, Written};
use crate::telemetry::metrics::labels::Handover;

/// An answer of the API server.
pub(super) enum Answer {
    Heartbeat { sent: Instant, leaving: bool, found: Option<Found>, written: Written },
    Read(Arc<str>, Option<Found>),
    Claim { claim: Claim, found: Option<Found>, written: Written },
    Balance { balance: Balance, found: Option<Found>, written: Written },
    Nothing,
}

impl LeaseManager {
    pub(super) fn answered(&mut self, answer: Answer) {
        let now = self.now();
        match answer {
            Answer::Heartbeat { sent, leaving, found, written } => {
                let identity = self.cx.config.identity.clone();
                self.take_reading(found, now, |lease_manager, unreadable| match unreadable {
                    None => lease_manager.coordinator.heartbeat_gone(&identity, u64::MAX, now),
                    Some(lease) => lease_manager.coordinator.heartbeat_unreadable(lease.version),
                });
                self.coordinator.heartbeat_written(written, leaving, now);
                if let Written::As(_) = written {
                    self.renewed = Some(sent);
                    let took = self.instant().saturating_duration_since(sent);
                    self.cx.config.answer_time.renewed(took);
                }
                if let Some(until) = self.coordinator.acts_until() {
                    let until = self.origin + until;
                    self.fences.values().for_each(|fence| fence.extend(until));
                }
            }
            Answer::Read(identity, None) => {
                tracing::warn!(%identity, "cannot read the heartbeat of a silent replica");
                self.coordinator.heartbeat_unread(now);
            }
            Answer::Read(identity, Some(found)) => {
                // A living replica mends its own heartbeat: one that cannot be read counts as none.
                let heartbeat = match found {
                    Found::Record(LeaseRecord::Heartbeat(heartbeat)) => Some(heartbeat),
                    _ => None,
                };
                self.coordinator.heartbeat_read(&identity, heartbeat, now);
            }
            Answer::Claim { claim, found, written } => {
                let shard = claim.shard;
                self.take_reading(found, now, |lease_manager, unreadable| match unreadable {
                    None => lease_manager.coordinator.claim_gone(shard, u64::MAX, now),
                    Some(Unreadable { version, epoch }) => {
                        lease_manager.coordinator.claim_unreadable(shard, version, epoch, now);
                    }
                });
                if claim.holder.is_none() && matches!(written, Written::As(_)) {
                    self.count(Handover::Released);
                }
                if let Written::As(version) = written {
                    // The watch may show it only after the shard is synced.
                    let record = LeaseRecord::Claim(Claim { version, ..claim.clone() });
                    self.board.seen(&record, self.instant(), self.cx.clock.now());
                }
                self.coordinator.claim_written(&claim, written, now);
            }
            Answer::Balance { balance, found, written } => {
                self.take_reading(found, now, |lease_manager, unreadable| match unreadable {
                    None => lease_manager.coordinator.balance_gone(u64::MAX),
                    Some(Unreadable { version, .. }) => {
                        let nothing = Balance { version, ..Balance::default() };
                        lease_manager.coordinator.balance_seen(nothing, now);
                    }
                });
                self.coordinator.balance_written(balance, written, now);
            }
            Answer::Nothing => {}
        }
    }

    /// Applies a live read, if there was one. `unknown` handles a missing or unreadable Lease.
    fn take_reading(
        &mut self,
        found: Option<Found>,
        now: Moment,
        unknown: impl FnOnce(&mut Self, Option<Unreadable>),
    ) {
        match found {
            Some(Found::Record(record)) => self.found(record, now),
            Some(Found::Unreadable(lease)) => unknown(self, Some(lease)),
            Some(Found::Nothing) => unknown(self, None),
            None => {}
        }
    }
}
