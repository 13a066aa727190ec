//! A cluster that keeps its objects on disk and is killed without warning.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::binary::{Background, until, yardmaster};

/// A data directory, and the address of its clusters.
pub(crate) struct DataDir {
    directory: TempDir,
    listen: String,
}

/// A running cluster.
pub(crate) struct Cluster {
    process: Background,
    pub(crate) url: String,
    kubeconfig: PathBuf,
    errors: Arc<Mutex<Vec<String>>>,
}

impl DataDir {
    pub(crate) fn new() -> Self {
        // A free port below the ephemeral range, which starts at 32768 or 49152. So the system assigns it to
        // no other process while the cluster is down.
        let addresses =
            std::iter::repeat_with(|| format!("127.0.0.1:{}", rand::random_range(20_000..32_000)));
        let listen = addresses.take(100).find(|address| TcpListener::bind(address).is_ok()).unwrap();
        Self { directory: tempfile::tempdir().unwrap(), listen }
    }

    /// The data directory itself.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A file beside the data directory.
    pub(crate) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The lines of a file beside the data directory.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn command(&self, listen: &str) -> Command {
        let mut command = yardmaster();
        command.args(["cluster", "--listen", listen, "--data-dir"]).arg(self.path());
        command
    }

    /// Starts a cluster and waits until it prints its address.
    pub(crate) fn start(&self, flags: &[&str]) -> Cluster {
        let mut command = self.command(&self.listen);
        command.args(flags);
        self.run(command)
    }

    /// Starts an API server whose files cannot grow beyond `blocks` of 512 bytes.
    pub(crate) fn start_with_little_room(&self, blocks: u32) -> Cluster {
        let command = self.command(&self.listen);
        let mut shell = Command::new("sh");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            shell.env_remove(name);
        }
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\" --api-only");
        shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
        self.run(shell)
    }

    fn run(&self, mut command: Command) -> Cluster {
        let kubeconfig = self.directory.path().join("kubeconfig");
        command.arg("--write-kubeconfig").arg(&kubeconfig);
        let mut process = Background::start(&mut command);
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with("API server"));
        let url = line.and_then(|line| Some(line.split_whitespace().last()?.to_owned()));
        let Some(url) = url else {
            let stderr = process.0.stderr.take().unwrap();
            panic!("did not start: {:?}", BufReader::new(stderr).lines().collect::<Vec<_>>())
        };
        // Both outputs are drained, so that full pipes do not block the cluster.
        let stderr = process.0.stderr.take().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let errors = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&errors);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                eprintln!("{line}");
                collected.lock().unwrap().push(line);
            }
        });
        Cluster { process, url, kubeconfig, errors }
    }

    /// Exit code and the only line of standard error of a cluster that cannot start.
    pub(crate) fn refused(&self) -> (i32, String) {
        let output = self.command("127.0.0.1:0").arg("--api-only").output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        (output.status.code().unwrap(), errors)
    }
}

impl Cluster {
    /// A client with connections of its own.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Sends SIGKILL to the cluster alone. Its child processes must notice by themselves.
    pub(crate) fn kill(mut self) {
        self.process.signal(Signal::SIGKILL);
        self.process.0.wait().unwrap();
    }

    /// Waits until the cluster ends by itself and has logged `reason`. Returns its exit code.
    pub(crate) fn ended(mut self, reason: &str) -> Option<i32> {
        let code = self.process.exit_code();
        let logged = || self.errors.lock().unwrap().iter().any(|line| line.contains(reason));
        until("the reason is logged", logged);
        code
    }

    /// Sends SIGTERM and expects exit code 0.
    pub(crate) fn stop(mut self) {
        self.process.signal(Signal::SIGTERM);
        assert_eq!(self.process.exit_code(), Some(0));
    }
}

/// Whether a process runs.
pub(crate) fn is_alive(pid: &str) -> bool {
    // A zombie has ended; its parent (init, for an orphan) has not reaped it yet.
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}
