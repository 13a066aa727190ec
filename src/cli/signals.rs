//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Termination requests, from the terminal or a supervisor.
#[derive(Debug)]
pub(super) struct Interrupts {
    terminal: Signal,
    supervisor: Signal,
}

impl Interrupts {
    /// Installs the handlers: from now on the signals no longer terminate the process.
    pub(super) fn listen() -> std::io::Result<Self> {
        let (terminal, supervisor) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { terminal, supervisor })
    }

    /// Resolves at the next request.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminal.recv() => {}
            _ = self.supervisor.recv() => {}
        }
    }
}
