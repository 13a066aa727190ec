//! The turn of a Job's next status.
//!
//! A status is composed when its turn to be sent comes, not when it becomes due: until then, more can join it.

use tokio_util::task::AbortOnDropHandle;

use crate::actors::jobs::requests::Requests;
use crate::actors::messages::job_input::JobInput;
use crate::cluster::gate::Turn;
use crate::job::plan::{Plan, Urgency};

/// The turn of the next status.
#[derive(Debug, Default)]
pub(super) enum StatusTurn {
    /// No turn was requested.
    #[default]
    None,
    /// The turn will come.
    Awaited(Urgency, AbortOnDropHandle<()>),
    /// The turn has come.
    Here(Turn),
}

impl StatusTurn {
    /// The turn for the status of a plan. If it has not come, the status leaves the plan.
    /// A turn for which there is no status is given back.
    pub(super) fn take(&mut self, plan: &mut Plan, requests: &Requests) -> Option<Turn> {
        let composed = plan.status.as_ref().map(|write| write.urgency);
        let Some(urgency) = composed.or(plan.status_queued) else {
            if matches!(self, Self::Here(_)) {
                *self = Self::None;
            }
            return None;
        };
        match std::mem::take(self) {
            Self::Here(turn) if composed.is_some() => return Some(turn),
            Self::Awaited(asked, task) if urgency <= asked => *self = Self::Awaited(asked, task),
            _ => {
                let turn = match requests.reserve_status(urgency).granted() {
                    Ok(Ok(turn)) if composed.is_some() => return Some(turn),
                    Ok(Err(reservation)) => {
                        *self = Self::Awaited(urgency, requests.await_turn(reservation));
                        None
                    }
                    Ok(Ok(turn)) => Some(Some(turn)),
                    Err(_) => Some(None),
                };
                turn.into_iter().for_each(|turn| requests.inbox.push_urgent(JobInput::StatusTurn(turn)));
            }
        }
        plan.queue_status();
        None
    }
}
