//! Many short tasks on one machine: `yardmaster run` beside what people use for that, in turns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

/// Flags of `run-tasks`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunTasksArgs {
    /// Number of tasks, each of which runs `true`.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    tasks: u32,
    /// How many run at once [default: as many as the machine has CPUs].
    #[arg(long, value_name = "P")]
    at_once: Option<u32>,
    /// What runs the tasks: processes beside xargs and GNU parallel, or containers beside a loop of `podman run`.
    #[arg(long, value_name = "RUNTIME", default_value = "processes")]
    runtime: Runtime,
    /// The image of containers, which has `true`.
    #[arg(long, value_name = "IMAGE", default_value = "busybox")]
    image: String,
    /// The yardmaster program [default: the one beside this program].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Number of turns.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    Processes,
    Containers,
}

/// The name of what is measured against the others.
const OURS: &str = "yardmaster";

/// Plays all turns. The figures are medians of wall times.
pub(crate) fn run(args: &RunTasksArgs) -> Result<ExitCode> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let at_once = args.at_once.unwrap_or(cpus).max(1);
    let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for round in 0..args.rounds.max(1) {
        let mut turns = turns(args, at_once, cpus)?;
        if round % 2 == 1 {
            turns.reverse();
        }
        for (name, mut command) in turns {
            let took = timed(&name, &mut command)?;
            println!("{name:12} {:.3} s", took.as_secs_f64());
            times.entry(name).or_default().push(took);
        }
    }
    let medians: BTreeMap<_, _> = times.into_iter().map(|(name, times)| (name, median(times))).collect();
    let ours = medians[OURS].as_secs_f64();
    let ratios: BTreeMap<_, _> = medians
        .iter()
        .filter(|(name, _)| *name != OURS)
        .map(|(name, time)| (name.clone(), ours / time.as_secs_f64()))
        .collect();
    let told: Vec<_> = ratios.iter().map(|(name, ratio)| format!("{ratio:.2} times {name}")).collect();
    println!("tasks {}, {at_once} at once: {ours:.3} s, {}", args.tasks, told.join(", "));
    if let Some(file) = &args.report {
        let seconds: BTreeMap<_, _> =
            medians.iter().map(|(name, time)| (name.clone(), time.as_secs_f64())).collect();
        let figures = json!({
            "load": "run-tasks", "tasks": args.tasks, "at_once": at_once, "runtime": format!("{:?}", args.runtime),
            "wall_s": seconds, "ratios": ratios,
        });
        std::fs::write(file, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The commands that run all tasks once, each with its name.
fn turns(args: &RunTasksArgs, at_once: u32, cpus: u32) -> Result<Vec<(String, Command)>> {
    let RunTasksArgs { tasks, image, .. } = args;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name(OURS),
    };
    ensure!(program.exists(), "there is no {}: build it, or name it with --program", program.display());
    let mut ours = Command::new(program);
    ours.arg("run").args(["--array", &format!("0-{}%{at_once}", tasks.saturating_sub(1))]);
    // The requests of `at_once` tasks fill the machine.
    ours.args(["--cpus", &format!("{}m", 1000 * cpus / at_once)]);
    let shell = |script: String| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        shell
    };
    let numbers = format!("seq {tasks}");
    let mut turns = Vec::new();
    match args.runtime {
        Runtime::Processes => {
            ours.args(["--", "true"]);
            turns.push(("xargs".to_owned(), shell(format!("{numbers} | xargs -P {at_once} -n 1 true"))));
            if is_there("parallel") {
                turns.push((
                    "parallel".to_owned(),
                    shell(format!("{numbers} | parallel --will-cite -j {at_once} true")),
                ));
            }
        }
        Runtime::Containers => {
            ours.args(["--runtime", "containers", "--image", image, "--", "true"]);
            let loops = format!("{numbers} | xargs -P {at_once} -I {{}} podman run --rm {image} true");
            turns.push(("podman run".to_owned(), shell(loops)));
        }
    }
    turns.push((OURS.to_owned(), ours));
    Ok(turns)
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).exists())
}

fn timed(name: &str, command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    let took = begun.elapsed();
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    // There is at least one turn.
    times.get(times.len() / 2).copied().unwrap_or_default()
}
