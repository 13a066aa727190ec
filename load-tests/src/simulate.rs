//! `simulate`: many worlds of the simulation on all cores, or one with its story.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use yardmaster_simulation::known::Defect;
use yardmaster_simulation::mutants::{self, Mutant, run_as};
use yardmaster_simulation::{
    Cut, Finished, Kept, List, Replay, Tally, defect, defects, explain, jobs_in, run_all, story,
};

/// Flags of `simulate`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Number of seeds.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "M", default_value_t = 0)]
    from: u64,
    /// Threads, each with one world at a time [default: one for each core].
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Known defects whose causes plans may contain, by name, or all [default: none].
    #[arg(long, value_name = "NAME,...|all", value_parser = parse_defects)]
    with: Option<Defects>,
    /// Make plans that bring about this known defect, and break nothing else.
    #[arg(long, value_name = "NAME", value_parser = parse_defect, conflicts_with = "with")]
    provoke: Option<Defect>,
    /// Break the controller on purpose, in the way of this name or in each way, and run seeds until one shows it. One alone is
    /// explained. With --seed: tell the story of the broken controller.
    #[arg(long, value_name = "NAME|all", value_parser = parse_mutants, conflicts_with_all = ["with", "provoke", "twice"])]
    mutant: Option<Mutants>,
    /// Run every world twice, and compare the logs.
    #[arg(long)]
    twice: bool,
    /// Most worlds that are run to make the first of each kind of failure smaller; 0: leave them as they are.
    #[arg(long, value_name = "RUNS", default_value_t = 200)]
    shrink: u32,
    /// Run only this seed, and tell its story.
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from", "threads"])]
    seed: Option<u64>,
    /// With --seed: the numbers of the steps that happen, such as 0,3; 3/4: for a quarter of its duration; or none
    /// [default: all].
    #[arg(long, value_name = "STEP,...", requires = "seed")]
    keep: Option<List<Kept>>,
    /// With --seed: the numbers of the Jobs that exist, or none [default: all].
    #[arg(long, value_name = "JOB,...", requires = "seed")]
    jobs: Option<List<usize>>,
    /// With --seed: the number of replicas [default: as the seed has it].
    #[arg(long, value_name = "N", requires = "seed")]
    replicas: Option<usize>,
    /// With --seed: print every message, in place of the story.
    #[arg(long, requires = "seed")]
    log: bool,
}

/// Ways to break the controller.
#[derive(Clone, Debug)]
struct Mutants(Vec<Mutant>);

fn parse_mutants(name: &str) -> Result<Mutants, String> {
    mutants::named(name).map(Mutants).map_err(|error| error.to_string())
}

/// Known defects.
#[derive(Clone, Debug, Default)]
struct Defects(Vec<Defect>);

fn parse_defects(text: &str) -> Result<Defects, String> {
    defects(text).map(Defects).map_err(|error| error.to_string())
}

fn parse_defect(name: &str) -> Result<Defect, String> {
    defect(name).map_err(|error| error.to_string())
}

impl SimulateArgs {
    /// Worlds block their thread, so they run beside the runtime.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let mutants = self.mutant.as_ref().map_or(0, |Mutants(mutants)| mutants.len());
        ensure!(mutants <= 1 || self.seed.is_none(), "--mutant all: --seed shows one mutant");
        let (done, outcome) = tokio::sync::oneshot::channel();
        let work = move || {
            let broken = match (&self.mutant, self.seed) {
                (Some(Mutants(mutants)), None) => self.hunt(mutants),
                (_, Some(seed)) => self.one(&self.replay(seed)),
                (None, None) => self.many(),
            };
            // The receiver is gone after Ctrl-C.
            let _ = done.send(broken);
        };
        std::thread::Builder::new().name("simulate".into()).stack_size(16 << 20).spawn(work)?;
        let broken = outcome.await.context("the simulation has panicked")??;
        Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn replay(&self, seed: u64) -> Replay {
        let mutant = self.mutant.as_ref().and_then(|Mutants(mutants)| match **mutants {
            [mutant] => Some(mutant),
            _ => None,
        });
        Replay {
            seed,
            mutant,
            provoke: self.provoke,
            with: self.with.clone().unwrap_or_default().0,
            cut: Cut { keep: self.keep.clone(), jobs: self.jobs.clone(), replicas: self.replicas },
        }
    }

    /// Shows one world, of the controller or of a mutant. Whether it breaks a promise.
    fn one(&self, replay: &Replay) -> Result<bool> {
        let plan = replay.plan();
        let outcome = run_as(replay.mutant, &plan, true);
        if self.log {
            outcome.log.kept().iter().for_each(|line| println!("{line}"));
        } else {
            println!("{plan}");
            let job = outcome.violation.as_ref().and_then(|violation| jobs_in(&violation.what).next());
            print!("{}", story(&outcome.log, job));
        }
        println!(
            "\n{replay}: {} of virtual time, {} requests, {} pods, {} lines, digest {:016x}",
            outcome.time,
            outcome.requests,
            outcome.pods,
            outcome.log.lines(),
            outcome.log.digest()
        );
        let repeats = !self.twice || run_as(replay.mutant, &plan, false).log.digest() == outcome.log.digest();
        if !repeats {
            println!("another run has another log");
        }
        match &outcome.violation {
            Some(violation) => println!("broken: {violation}"),
            None => println!("every promise is kept"),
        }
        Ok(outcome.violation.is_some() || !repeats)
    }

    fn threads(&self) -> Result<usize> {
        Ok(match self.threads {
            Some(threads) => threads,
            None => std::thread::available_parallelism()?.get(),
        })
    }

    /// Hunts mutants. A single one is explained once it is caught. Whether any survives.
    fn hunt(&self, mutants: &[Mutant]) -> Result<bool> {
        let mut survivors = 0;
        let mut catches = Vec::new();
        println!("| mutant | what is broken | seed |\n|---|---|---|");
        let hunt = |mutant| mutants::hunt(mutant, self.from.max(mutants::first_seed(mutant)), self.seeds);
        mutants::for_all(mutants, self.threads()?, hunt, |mutant, caught| match caught {
            Some(caught) => {
                println!("{caught}");
                catches.push(caught);
            }
            None => {
                survivors += 1;
                println!("{} survives {} seeds: {}", mutant.name(), self.seeds, mutant.what());
            }
        })?;
        if let ([caught], [mutant]) = (&*catches, mutants) {
            println!("\n{}", explain(&Replay::of_mutant(*mutant, caught.seed), self.shrink));
        }
        println!("\nmutants {}, survivors {survivors}", mutants.len());
        Ok(survivors > 0)
    }

    /// Runs many worlds. Whether any breaks a promise.
    fn many(&self) -> Result<bool> {
        let replays: Vec<Replay> =
            (0..self.seeds).map(|number| self.replay(self.from.wrapping_add(number))).collect();
        let threads = self.threads()?;
        let began = Instant::now();
        let bar = bar(self.seeds);
        let mut tally = Tally::default();
        run_all(&replays, threads, self.twice, |world| {
            tally.add(&world);
            report(&bar, &world);
            ControlFlow::Continue(())
        })?;
        bar.finish_and_clear();
        print!("{}", summary(&tally, began.elapsed()));
        for broken in tally.broken.values() {
            if let Some((replay, _)) = broken.examples.first() {
                println!("\n{}", explain(replay, self.shrink));
            }
        }
        for replay in &tally.unlike {
            println!("another run has another log:\n    {} --twice", replay.command());
        }
        println!("{tally}");
        Ok(!tally.is_good())
    }
}

fn bar(seeds: u64) -> ProgressBar {
    let bar = ProgressBar::new(seeds);
    // The template is valid. If not, the default style is good enough.
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} seeds {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Moves the bar, and shows what was broken.
fn report(bar: &ProgressBar, world: &Finished) {
    bar.inc(1);
    if let Some(violation) = &world.outcome.violation {
        bar.suspend(|| println!("seed {}: {violation}", world.replay.seed));
    }
}

/// All figures of many worlds.
fn summary(tally: &Tally, took: Duration) -> String {
    let an_hour = tally.all.worlds as f64 / took.as_secs_f64().max(0.001) * 3_600.0;
    let mut text = format!(
        "{} seeds in {:.1} s, {an_hour:.0} an hour; {:.1} simulated hours, {} requests, {} pods\n",
        tally.all.worlds,
        took.as_secs_f64(),
        tally.all.simulated.as_secs_f64() / 3_600.0,
        tally.all.requests,
        tally.all.pods,
    );
    for (title, counts) in [("what happened", &tally.acts), ("what Jobs came to", &tally.reached)] {
        text += &format!("{title}:\n");
        for (what, count) in counts {
            text += &format!("{count:>10}  {what}\n");
        }
    }
    text += "what worlds cost:\n";
    for (size, cost) in &tally.costs {
        let a_pod = cost.requests as f64 / cost.pods.max(1) as f64;
        let a_minute = cost.requests as f64 / (cost.simulated.as_secs_f64() / 60.0).max(0.001);
        let worlds = cost.worlds;
        text += &format!("{worlds:>10}  {size}, {a_pod:.1} requests a pod, {a_minute:.0} a minute\n");
    }
    for (promise, broken) in &tally.broken {
        let seeds: Vec<String> = broken.examples.iter().map(|(replay, _)| replay.seed.to_string()).collect();
        let more = if broken.worlds as usize > seeds.len() { " and more" } else { "" };
        text +=
            &format!("{promise:?} is broken in {} worlds: seeds {}{more}\n", broken.worlds, seeds.join(" "));
    }
    text
}
