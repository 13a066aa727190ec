//! The cost of a program from its start to its end, or to its first line of output.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;

/// The cost of a program.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spent {
    /// From its start to its end, in seconds.
    pub(super) wall_s: f64,
    /// Seconds of CPU, in user and system mode, of the program and of all processes that it waited for.
    pub(super) cpu_s: f64,
}

/// Runs a program to its end. This process must not have other children.
///
/// # Errors
///
/// If it cannot be started, or fails.
pub(super) fn run_to_end(command: &mut Command) -> Result<Spent> {
    let before = cpu_of_children()?;
    let wall_s = Started::new(command, Stdio::null())?.end()?;
    Ok(Spent { wall_s, cpu_s: cpu_of_children()? - before })
}

/// Runs a program to its end. Returns the time from its start to its first line of output, in seconds.
///
/// # Errors
///
/// If it cannot be started, fails, or has no output.
pub(super) fn time_to_first_line(command: &mut Command) -> Result<f64> {
    let mut started = Started::new(command, Stdio::piped())?;
    let mut output = BufReader::new(started.child.stdout.take().context("no pipe for the output")?);
    let mut line = Vec::new();
    output.read_until(b'\n', &mut line)?;
    let took = started.begun.elapsed().as_secs_f64();
    // A program with a full pipe would not end.
    std::io::copy(&mut output, &mut std::io::sink())?;
    started.end()?;
    ensure!(line.ends_with(b"\n"), "{command:?}: no output");
    Ok(took)
}

/// A program that runs.
struct Started {
    /// The command, for errors.
    name: String,
    child: Child,
    begun: Instant,
    /// Gets its standard error. A pipe would have to be read, and processes that stay could keep it open.
    messages: File,
}

impl Started {
    fn new(command: &mut Command, output: Stdio) -> Result<Self> {
        let (name, messages) = (format!("{command:?}"), tempfile::tempfile()?);
        command.stdin(Stdio::null()).stdout(output).stderr(messages.try_clone()?);
        let begun = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, begun, messages })
    }

    /// Waits for its end. Returns the time from its start, in seconds.
    fn end(mut self) -> Result<f64> {
        let status = self.child.wait()?;
        let took = self.begun.elapsed().as_secs_f64();
        if !status.success() {
            let mut messages = Vec::new();
            self.messages.rewind()?;
            self.messages.read_to_end(&mut messages)?;
            bail!("{}: {status}: {}", self.name, String::from_utf8_lossy(&messages));
        }
        Ok(took)
    }
}

/// Seconds of CPU of all children of this process that have ended, with their own children.
fn cpu_of_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn the_cpu_of_grandchildren_counts() {
        let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let spent = run_to_end(&mut shell(&format!("sh -c '{count}'; true"))).unwrap();
        assert!(spent.cpu_s > 0.005 && spent.wall_s > 0.005, "{spent:?}");
    }

    #[test]
    fn the_first_line_is_timed_and_all_output_is_read() {
        let mut command = shell("echo first; sleep 0.3; head -c 200000 /dev/zero");
        let begun = Instant::now();
        let took = time_to_first_line(&mut command).unwrap();
        assert!(took + 0.2 < begun.elapsed().as_secs_f64(), "{took}");
    }

    #[test]
    fn failures_come_with_the_messages_of_the_program() {
        let failed = run_to_end(&mut shell("echo wrong >&2; exit 7")).unwrap_err().to_string();
        assert!(failed.contains("exit status: 7") && failed.contains("wrong"), "{failed}");
        assert!(time_to_first_line(&mut shell("true")).unwrap_err().to_string().contains("no output"));
        assert!(run_to_end(&mut Command::new("/nowhere")).unwrap_err().to_string().contains("cannot start"));
    }
}
