//! Starts the `yardmaster` program for tests.
// No test uses all of this.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Limit for everything that does not take time by design.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program with empty standard input, and with both outputs piped.
pub(crate) fn yardmaster() -> Command {
    start_of(OsStr::new(env!("CARGO_BIN_EXE_yardmaster")))
}

/// A program like [`yardmaster`].
pub(crate) fn start_of(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    // A cluster, collector or container engine in the developer's environment must not change the tests.
    let ours = |name: &str| name.starts_with("YARDMASTER_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.env("YARDMASTER_RUNTIME", "processes");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command in the background. It is killed when dropped.
pub(crate) struct Background(pub(crate) Child);

impl Background {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        until("the command has ended", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }

    /// The first line of the stream that contains the text. The rest is read, too: the command may go on writing.
    pub(crate) fn line(stream: impl Read + Send + 'static, wanted: &str) -> String {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains(wanted)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        line
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}
