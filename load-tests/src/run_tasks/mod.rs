//! `run-tasks`: many short tasks on one machine. `yardmaster run` and the usual programs for that have turns.

mod findings;
mod programs;
mod timed;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use serde_json::json;

use self::findings::{Findings, Start};
use self::programs::{Contender, Tasks};
use self::timed::{Spent, run_to_end, time_to_first_line};
use crate::report::{Env, write_text};

/// Flags of `run-tasks`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunTasksArgs {
    /// Number of tasks, each of which runs `true` [default: 1000; containers: 100].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    tasks: Option<u32>,
    /// Tasks that run at once.
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = at_least_one())]
    at_once: u32,
    /// The nature of tasks: processes, beside xargs and GNU parallel, or containers, beside a loop of `podman run`.
    #[arg(long, value_name = "RUNTIME", default_value = "processes")]
    runtime: Runtime,
    /// Image of the containers, which has `true` and `echo`. For Yardmaster, as for Kubernetes, an image without a
    /// tag is pulled for each task.
    #[arg(long, value_name = "IMAGE", default_value = "busybox:1")]
    image: String,
    /// Command of the container engine, for `CMD run --rm IMAGE true` [default: podman; docker where there is no
    /// podman].
    #[arg(long, value_name = "CMD")]
    engine: Option<String>,
    /// Another yardmaster program [default: the one in this program].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Number of rounds with a turn of each. Every second round is in reverse, so take an even number.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one())]
    rounds: u32,
    /// Starts of a single task in each round, timed until its first line of output; 0: none.
    #[arg(long, value_name = "N", default_value_t = 5)]
    starts: u32,
    /// File for the report; a page with its tables is written beside it.
    #[arg(long, value_name = "FILE.json")]
    report: Option<PathBuf>,
}

fn at_least_one() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..)
}

/// The nature of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    Processes,
    Containers,
}

impl Runtime {
    /// The usual number of tasks. A container takes some hundred times the time of a process.
    fn tasks(self) -> u32 {
        match self {
            Self::Processes => 1000,
            Self::Containers => 100,
        }
    }

    /// The plural, as the command line and the report have it.
    fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Containers => "containers",
        }
    }
}

/// A program, and its costs so far.
struct Entry<W, C> {
    who: W,
    command: Command,
    costs: Vec<C>,
}

impl<W, C> Entry<W, C> {
    fn new(who: W, command: Command) -> Self {
        Self { who, command, costs: Vec::new() }
    }
}

/// Plays all rounds, prints medians beside the goals, and writes the report. A goal that is missed is no error.
pub(crate) fn run(args: &RunTasksArgs) -> Result<ExitCode> {
    let (tasks, env) = (Tasks::new(args)?, Env::here("embedded".into()));
    let mut absent = Vec::new();
    let mut runs: Vec<Entry<Contender, Spent>> = Vec::new();
    for who in Contender::of(args.runtime) {
        match tasks.missing_program(who) {
            Some(program) => absent.push(program),
            None => runs.push(Entry::new(who, tasks.all(who))),
        }
    }
    for program in &absent {
        println!("{program}: not installed, left out");
    }
    let mut starts: Vec<Entry<Start, f64>> = match (args.starts, tasks.single_alone()) {
        (1.., Some(alone)) => {
            vec![Entry::new(Start::Yardmaster, tasks.single()), Entry::new(Start::Alone, alone)]
        }
        _ => Vec::new(),
    };
    // The first start of each is not measured: images are pulled, and programs are read from the disk.
    for start in &mut starts {
        time_to_first_line(&mut start.command)?;
    }
    for _ in 0..args.rounds {
        for run in &mut runs {
            let spent = run_to_end(&mut run.command)?;
            println!("{}: {:.3} s, {:.3} s of CPU", tasks.name(run.who), spent.wall_s, spent.cpu_s);
            run.costs.push(spent);
        }
        runs.reverse();
        for _ in 0..args.starts {
            for start in &mut starts {
                start.costs.push(time_to_first_line(&mut start.command)?);
            }
            starts.reverse();
        }
    }
    let load = json!({
        "name": "run-tasks", "tasks": tasks.number, "at_once": args.at_once, "runtime": args.runtime.name(),
        "rounds": args.rounds,
    });
    let findings = Findings::new(runs, starts);
    let tables = findings.tables(&tasks);
    print!("\n{tables}");
    if let Some(file) = &args.report {
        let report = json!({ "load": load, "env": env, "absent": absent, "findings": findings });
        write_text(file, &(serde_json::to_string_pretty(&report)? + "\n"))?;
        write_text(&file.with_extension("md"), &tables)?;
    }
    Ok(ExitCode::SUCCESS)
}
