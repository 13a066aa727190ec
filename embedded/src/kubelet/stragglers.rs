//! Processes that left the process group of their container, as daemons do.
//!
//! They are recognised by a variable that all processes of a pod inherit. Finding them takes a scan of
//! `/proc`, whose cost grows with the number of processes, so pods that end at about the same time share a
//! scan. Systems without `/proc` do not have this cleanup.

use std::collections::HashSet;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::{mpsc, oneshot};

/// The variable with the uid of the pod that a process belongs to.
pub(super) const POD_UID_VARIABLE: &str = "YARDMASTER_POD_UID";

/// Maximum number of pods per scan.
const MAX_SHARED: usize = 1024;

/// The uid of a pod whose processes must be killed, and a channel to signal completion.
type Request = (String, oneshot::Sender<()>);

/// Kills the remaining processes of pods.
#[derive(Debug)]
pub(super) struct Stragglers(mpsc::UnboundedSender<Request>);

impl Stragglers {
    /// Starts the scanning task. It ends with the last handle.
    pub(super) fn start() -> Self {
        let (requests, mut waiting) = mpsc::unbounded_channel::<Request>();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while waiting.recv_many(&mut batch, MAX_SHARED).await > 0 {
                let (pods, callers): (HashSet<_>, Vec<_>) = batch.drain(..).unzip();
                let scan = tokio::task::spawn_blocking(move || kill_processes_of(&pods));
                if let Err(error) = scan.await {
                    tracing::error!(%error, "the search for leftover processes panicked");
                }
                for caller in callers {
                    // A caller that is gone needs no reply.
                    let _sent = caller.send(());
                }
            }
        });
        Self(requests)
    }

    /// Kills the remaining processes of a pod, if their environment identifies them.
    pub(super) async fn kill(&self, pod_uid: &str) {
        let (done, waiting) = oneshot::channel();
        if self.0.send((pod_uid.to_owned(), done)).is_ok() {
            // Fails only if the runtime ends, which ends the scan as well.
            let _ended = waiting.await;
        }
    }
}

fn kill_processes_of(pods: &HashSet<String>) {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    let processes = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for id in processes {
        // The environments of other users' processes cannot be read, so these are skipped.
        let Ok(environment) = std::fs::read(format!("/proc/{id}/environ")) else { continue };
        if pod_of(&environment).is_some_and(|pod| pods.contains(pod)) {
            let _gone = kill(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

/// The pod that a process with this environment belongs to.
fn pod_of(environment: &[u8]) -> Option<&str> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables
        .find_map(|variable| variable.strip_prefix(POD_UID_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use super::pod_of;

    #[test]
    fn the_pod_is_in_the_environment() {
        assert_eq!(pod_of(b"A=1\0YARDMASTER_POD_UID=abc\0B=2\0"), Some("abc"));
        assert_eq!(pod_of(b"A=YARDMASTER_POD_UID=abc\0YARDMASTER_POD_UID_2=x\0"), None);
        assert_eq!(pod_of(b""), None);
    }
}
