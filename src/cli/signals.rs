//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Requests to end, from the terminal or from whoever started this process.
#[derive(Debug)]
pub(super) struct Interrupts {
    terminal: Signal,
    supervisor: Signal,
}

impl Interrupts {
    /// Takes over the signals: from here on they do not end the process by themselves.
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
