//! The way to the orphan controller, which outlives its panics.

use std::sync::{Arc, Mutex, PoisonError};

use actix::{Actor, Addr, ArbiterHandle, System};

use super::OrphanController;
use crate::actors::context::ReplicaContext;
use crate::actors::protocol::LeadershipChanged;

/// The way to the orphan controller of a replica. Clones lead to the same one.
#[derive(Clone)]
pub struct OrphanControllerHandle {
    cx: ReplicaContext,
    arbiter: ArbiterHandle,
    actor: Arc<Mutex<Addr<OrphanController>>>,
}

impl OrphanControllerHandle {
    /// Starts an orphan controller on the current arbiter.
    ///
    /// # Panics
    /// Outside an actix system.
    pub fn start(cx: ReplicaContext) -> Self {
        let actor = OrphanController::new(cx.clone()).start();
        Self { cx, arbiter: System::current().arbiter().clone(), actor: Arc::new(Mutex::new(actor)) }
    }

    /// The actor, until it panics.
    pub fn address(&self) -> Addr<OrphanController> {
        self.actor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells it whether this replica is the leader. One that has panicked begins anew with that: whoever is elected
    /// is told so again and again.
    pub fn lead(&self, elected: bool) {
        // A panic leaves the address whole.
        let mut actor = self.actor.lock().unwrap_or_else(PoisonError::into_inner);
        if !actor.connected() {
            tracing::error!("the orphan controller has panicked, and begins anew");
            let cx = self.cx.clone();
            *actor = OrphanController::start_in_arbiter(&self.arbiter, move |_| OrphanController::new(cx));
        }
        actor.do_send(LeadershipChanged(elected));
    }
}
