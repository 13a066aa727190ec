//! The programs that run tasks, and their command lines.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::{RunTasksArgs, Runtime};
use crate::replicas::{CONTROLLER, forget_settings};

/// The program of a single task whose start is timed, and its line of output.
const SINGLE: [&str; 2] = ["echo", "started"];

/// A way to run many tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contender {
    Yardmaster,
    Xargs,
    Parallel,
    /// A loop over `podman run`, or `docker run`.
    EngineLoop,
}

impl Contender {
    /// All that run tasks of this nature.
    pub(super) fn of(runtime: Runtime) -> Vec<Self> {
        match runtime {
            Runtime::Processes => vec![Self::Yardmaster, Self::Xargs, Self::Parallel],
            Runtime::Containers => vec![Self::Yardmaster, Self::EngineLoop],
        }
    }

    /// The goal: the most that Yardmaster's wall time may be, in multiples of that of this contender.
    pub(super) fn goal(self) -> Option<f64> {
        match self {
            Self::Yardmaster => None,
            Self::Xargs => Some(1.2),
            Self::Parallel => Some(1.0 / 3.0),
            Self::EngineLoop => Some(1.1),
        }
    }
}

/// The tasks, and the programs that run them.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    /// How many there are; at least 1.
    pub(super) number: u32,
    /// How many run at once; at least 1.
    pub(super) at_once: u32,
    pub(super) runtime: Runtime,
    image: String,
    /// The yardmaster program.
    program: PathBuf,
    /// The command of the container engine; `None` if there is none.
    engine: Option<String>,
}

impl Tasks {
    /// # Errors
    ///
    /// If the yardmaster program does not exist.
    pub(super) fn new(args: &RunTasksArgs) -> Result<Self> {
        let program = match &args.program {
            Some(program) => program.clone(),
            None => std::env::current_exe()?,
        };
        ensure!(program.exists(), "--program: there is no {}", program.display());
        let known = ["podman", "docker"].into_iter().find(|engine| is_installed(engine));
        Ok(Self {
            number: args.tasks.unwrap_or(args.runtime.tasks()),
            at_once: args.at_once,
            runtime: args.runtime,
            image: args.image.clone(),
            program,
            engine: args.engine.clone().or(known.map(str::to_owned)),
        })
    }

    /// The name of a contender in tables.
    pub(super) fn name(&self, who: Contender) -> String {
        match who {
            Contender::Yardmaster => "`yardmaster run`".into(),
            Contender::Xargs => "xargs".into(),
            Contender::Parallel => "GNU parallel".into(),
            Contender::EngineLoop => format!("loop of `{} run`", self.engine()),
        }
    }

    /// The program that this contender needs and that is not installed.
    pub(super) fn missing_program(&self, who: Contender) -> Option<&'static str> {
        let xargs = || (!is_installed("xargs")).then_some("xargs");
        match who {
            Contender::Yardmaster => None,
            Contender::Xargs => xargs(),
            Contender::Parallel => (!is_gnu_parallel()).then_some("GNU parallel"),
            Contender::EngineLoop if self.engine.is_none() => Some("podman or docker"),
            Contender::EngineLoop => xargs(),
        }
    }

    /// The command that runs all tasks.
    pub(super) fn all(&self, who: Contender) -> Command {
        let Self { number, at_once, image, .. } = self;
        let numbers = format!("seq {number}");
        match who {
            Contender::Yardmaster => {
                let array = format!("0-{}%{at_once}", number.saturating_sub(1));
                self.yardmaster(&["--array", &array, "--cpus", &share(cpus(), *at_once)], &["true"])
            }
            Contender::Xargs => shell(&format!("{numbers} | xargs -P {at_once} -n 1 true")),
            Contender::Parallel => shell(&format!("{numbers} | parallel --will-cite -j {at_once} true")),
            Contender::EngineLoop => {
                let one = format!("{} run --rm {image} true", self.engine());
                shell(&format!("{numbers} | xargs -P {at_once} -I {{}} {one}"))
            }
        }
    }

    /// The command that runs a single task as a Job, and prints its output.
    pub(super) fn single(&self) -> Command {
        self.yardmaster(&["--logs"], &SINGLE)
    }

    /// The command that runs a single task without Yardmaster. Returns `None` without an engine for its container.
    pub(super) fn single_alone(&self) -> Option<Command> {
        match self.runtime {
            Runtime::Processes => {
                let [program, text] = SINGLE;
                let mut command = Command::new(program);
                command.arg(text);
                Some(command)
            }
            Runtime::Containers => {
                let engine = self.engine.as_ref()?;
                Some(shell(&format!("exec {engine} run --rm {} {}", self.image, SINGLE.join(" "))))
            }
        }
    }

    fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or("podman")
    }

    fn yardmaster(&self, flags: &[&str], task: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        forget_settings(&mut command);
        // This program acts as `yardmaster` under this name.
        command.arg0(CONTROLLER).arg("run").args(["--runtime", self.runtime.name()]).args(flags);
        if self.runtime == Runtime::Containers {
            command.args(["--image", &self.image]);
        }
        command.arg("--").args(task);
        command
    }
}

/// The CPUs that each task requests, so that the requests of `at_once` tasks fit the machine.
fn share(cpus: usize, at_once: u32) -> String {
    format!("{}m", (1000 * cpus as u64 / u64::from(at_once)).max(1))
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    shell
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Whether `parallel` is GNU's. The package moreutils has another program of this name.
fn is_gnu_parallel() -> bool {
    let told = Command::new("parallel").arg("--version").output();
    told.is_ok_and(|told| told.stdout.starts_with(b"GNU parallel"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Ten tasks, four of which run at once.
    pub(in super::super) fn tasks(runtime: Runtime, engine: Option<&str>) -> Tasks {
        Tasks {
            number: 10,
            at_once: 4,
            runtime,
            image: "busybox:1".into(),
            program: "yardmaster".into(),
            engine: engine.map(str::to_owned),
        }
    }

    fn words(command: &Command) -> String {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn each_runs_as_many_tasks_with_as_many_at_once() {
        let processes = tasks(Runtime::Processes, None);
        let ours = words(&processes.all(Contender::Yardmaster));
        assert!(ours.starts_with("run --runtime processes --array 0-9%4 --cpus "), "{ours}");
        assert!(ours.ends_with("m -- true"), "{ours}");
        assert_eq!(words(&processes.all(Contender::Xargs)), "-c seq 10 | xargs -P 4 -n 1 true");
        let containers = tasks(Runtime::Containers, Some("podman"));
        let looped = words(&containers.all(Contender::EngineLoop));
        assert_eq!(looped, "-c seq 10 | xargs -P 4 -I {} podman run --rm busybox:1 true");
    }

    #[test]
    fn a_single_task_is_the_same_with_and_without_a_job() {
        let containers = tasks(Runtime::Containers, Some("docker"));
        let ours = "run --runtime containers --logs --image busybox:1 -- echo started";
        assert_eq!(words(&containers.single()), ours);
        let alone = containers.single_alone().map(|command| words(&command));
        assert_eq!(alone.as_deref(), Some("-c exec docker run --rm busybox:1 echo started"));
        assert!(tasks(Runtime::Containers, None).single_alone().is_none());
    }

    #[test]
    fn a_missing_engine_is_named() {
        let missing = tasks(Runtime::Containers, None).missing_program(Contender::EngineLoop);
        assert_eq!(missing, Some("podman or docker"));
        assert_eq!(tasks(Runtime::Containers, None).missing_program(Contender::Yardmaster), None);
    }

    #[test]
    fn the_requests_of_tasks_at_once_fit_the_machine() {
        for (cpus, at_once, expected) in [(2, 8, "250m"), (2, 3, "666m"), (8, 4, "2000m"), (1, 5000, "1m")] {
            assert_eq!(share(cpus, at_once), expected, "{cpus} CPUs, {at_once} at once");
        }
    }
}
