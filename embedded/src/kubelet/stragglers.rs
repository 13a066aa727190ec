//! Processes that left the process group of their container, as daemons do.
//!
//! They are recognised by variables that all processes of a pod inherit. Finding them takes a scan of
//! `/proc`, whose cost grows with the number of processes. So pods that end at about the same time share a
//! scan. Systems without `/proc` do not have this cleanup.
//!
//! Signals go through a pidfd: the process is looked at again once it is pinned, so no signal reaches another
//! process with the same number.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tokio::sync::{mpsc, oneshot};

/// The variable with the uid of the pod that a process belongs to.
pub(super) const POD_UID_VARIABLE: &str = "YARDMASTER_POD_UID";
/// The variable with the [`identity`] of the supervisor that started a process.
pub(super) const SUPERVISOR_VARIABLE: &str = "YARDMASTER_SUPERVISOR";

/// Maximum number of pods per scan.
const MAX_SHARED: usize = 1024;
/// Maximum time to wait for the end of killed processes. A process that is inside of a system call on a
/// disk or network that hangs does not end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of killed processes whose end is awaited at a time.
const MAX_AWAITED: usize = 64;

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

    /// Kills the remaining processes of a pod, if their environment identifies them, and waits for their end.
    pub(super) async fn kill(&self, pod_uid: &str) {
        let (done, waiting) = oneshot::channel();
        if self.0.send((pod_uid.to_owned(), done)).is_ok() {
            // Fails only if the runtime ends, which ends the scan as well.
            let _ended = waiting.await;
        }
    }
}

fn kill_processes_of(pods: &HashSet<String>) {
    kill_where(|environment| value_of(POD_UID_VARIABLE, environment).is_some_and(|pod| pods.contains(pod)));
}

/// Kills the processes of a supervisor.
pub(super) fn kill_processes_under(supervisor: &str) {
    kill_where(|environment| value_of(SUPERVISOR_VARIABLE, environment) == Some(supervisor));
}

/// Kills the processes whose supervisor has ended: it was killed together with its cluster.
pub(super) fn kill_orphans() {
    kill_where(|environment| value_of(SUPERVISOR_VARIABLE, environment).is_some_and(has_ended));
}

/// Identifies a process of this host among all that ever ran since it was booted.
pub(super) fn identity(process: u32) -> Option<String> {
    Some(format!("{}:{process}:{}", namespace()?, start_time(process)?))
}

/// Whether the process with this [`identity`] has certainly ended. Nothing is known of other process namespaces.
pub(super) fn has_ended(identity: &str) -> bool {
    let parse = || {
        let (process, start) = identity.strip_prefix(&namespace()?)?.strip_prefix(':')?.split_once(':')?;
        Some((process.parse::<u32>().ok()?, start.parse::<u64>().ok()?))
    };
    parse().is_some_and(|(process, start)| match start_time(process) {
        Some(current) => current != start,
        // This process may be out of file descriptors, say.
        None => matches!(Path::new(&format!("/proc/{process}")).try_exists(), Ok(false)),
    })
}

/// The process namespace of this process.
fn namespace() -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()?;
    Some(namespace.chars().filter(char::is_ascii_digit).collect())
}

/// When a process started, in ticks since the host was booted.
fn start_time(process: u32) -> Option<u64> {
    stat(process, 22)?.parse().ok()
}

/// A field of `/proc/PROCESS/stat` behind the program's name, by its number in proc_pid_stat(5).
fn stat(process: u32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(field - 3).map(str::to_owned)
}

/// The children of this process.
pub(super) fn children() -> impl Iterator<Item = Pid> {
    let own = std::process::id().to_string();
    processes().filter(move |id| stat(*id, 4).is_some_and(|parent| parent == own)).filter_map(pid)
}

/// A thread of a process.
#[derive(Debug)]
pub(super) struct Thread(PathBuf);

impl Thread {
    /// The main thread of this process.
    pub(super) fn main() -> Self {
        Self::main_of(std::process::id())
    }

    /// The main thread of a process.
    pub(super) fn main_of(process: u32) -> Self {
        Self(format!("/proc/{process}/task/{process}").into())
    }

    /// This thread; `None` on systems that do not name it.
    pub(super) fn current() -> Option<Self> {
        std::fs::read_link("/proc/thread-self").ok().map(|thread| Self(Path::new("/proc").join(thread)))
    }

    /// The children that it has, either because it started them, or because it was given them when their own
    /// parent ended. It is `None` on kernels that do not say.
    pub(super) fn children(&self) -> Option<Vec<Pid>> {
        let children = std::fs::read_to_string(self.0.join("children")).ok()?;
        Some(children.split_whitespace().filter_map(|child| pid(child.parse().ok()?)).collect())
    }

    /// Kills its children. It may reap them meanwhile.
    pub(super) fn kill_children(&self) {
        for child in self.children().unwrap_or_default() {
            kill_if(child, || self.children().is_some_and(|children| children.contains(&child)));
        }
    }
}

fn pid(process: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process).ok()?)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Kills every process that has such an environment, and waits until they have ended, for [`ENDS_WITHIN`] at most: until then
/// they may still write files.
fn kill_where(is_wanted: impl Fn(&[u8]) -> bool) {
    let wanted = |process: u32| {
        // The environments of other users' processes cannot be read, so these are skipped.
        std::fs::read(format!("/proc/{process}/environ")).is_ok_and(|environment| is_wanted(&environment))
    };
    let mut killed = Vec::new();
    for process in processes().filter(|process| wanted(*process)) {
        let (Some(pid), start) = (pid(process), start_time(process)) else { continue };
        let pinned = kill_if(pid, || wanted(process) && start_time(process) == start);
        // Open files are few; a process that is not waited for ends as well.
        killed.extend(pinned.filter(|_| killed.len() < MAX_AWAITED));
    }
    let deadline = Instant::now() + ENDS_WITHIN;
    for process in &killed {
        // A file descriptor of a process can be read from once the process has ended. Signals interrupt the wait, as that of
        // the end of a child does.
        let ended = retry_on_intr(|| {
            let left = deadline.saturating_duration_since(Instant::now());
            poll(&mut [PollFd::new(process, PollFlags::IN)], Timespec::try_from(left).ok().as_ref())
        });
        if !matches!(ended, Ok(1..)) {
            break;
        }
    }
}

/// Kills a process if it is still the one that is meant, once it is pinned. Returns what pins it.
fn kill_if(process: Pid, is_meant: impl Fn() -> bool) -> Option<OwnedFd> {
    // The process may end at any time, which is the aim.
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(pinned) if is_meant() => pidfd_send_signal(&pinned, Signal::KILL).ok().map(|()| pinned),
        // A kernel before Linux 5.3.
        Err(Errno::NOSYS) if is_meant() => {
            let _gone = kill_process(process, Signal::KILL);
            None
        }
        _ => None,
    }
}

/// The value of a variable in this environment.
fn value_of<'a>(variable: &str, environment: &'a [u8]) -> Option<&'a str> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_pod_is_in_the_environment() {
        let pod_of = |environment| value_of(POD_UID_VARIABLE, environment);
        assert_eq!(pod_of(b"A=1\0YARDMASTER_POD_UID=abc\0B=2\0"), Some("abc"));
        assert_eq!(pod_of(b"A=YARDMASTER_POD_UID=abc\0YARDMASTER_POD_UID_2=x\0"), None);
        assert_eq!(pod_of(b""), None);
    }

    #[test]
    fn killed_processes_have_ended() {
        let uid = uuid::Uuid::new_v4().to_string();
        let start =
            || std::process::Command::new("sleep").arg("600").env(POD_UID_VARIABLE, &uid).spawn().unwrap();
        let mut children = [start(), start(), start()];
        for child in &children {
            // Linux shows the environment a moment after it has started the program.
            while std::fs::read(format!("/proc/{}/environ", child.id())).unwrap().is_empty() {
                std::thread::yield_now();
            }
        }
        kill_processes_of(&HashSet::from([uid.clone()]));
        for child in &mut children {
            assert!(child.try_wait().unwrap().is_some());
        }
    }

    #[test]
    fn an_identity_says_whether_its_process_has_ended() {
        let own = identity(std::process::id()).unwrap();
        assert!(!has_ended(&own));
        assert!(has_ended(&format!("{own}0")), "another process had the same number");
        assert!(!has_ended(&format!("1{own}")), "another namespace");
        assert!(!has_ended("anything"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let identity = identity(child.id()).unwrap();
        child.wait().unwrap();
        assert!(has_ended(&identity));
    }
}
