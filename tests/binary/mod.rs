//! The `yardmaster` program, as tests start it.
// Each test uses its part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take that is not a matter of time by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program with nothing to read, and with both outputs to be read from.
pub(crate) fn yardmaster() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yardmaster"));
    // A cluster or collector that others are pointed to must not decide what tests do.
    let ours = |name: &str| name.starts_with("YARDMASTER_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command in the background; killed if the test gives up.
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

    /// The first line of this stream that contains the text.
    pub(crate) fn line(stream: impl Read, wanted: &str) -> String {
        BufReader::new(stream).lines().map_while(Result::ok).find(|line| line.contains(wanted)).unwrap()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended, as it should.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}
