//! Load on a Kubernetes Job controller. It knows the controller only through the Kubernetes API, `/metrics` and `/proc`.
//!
//! # The map
//!
//! A `load` says which Jobs come when. `stage` plays it: on a `ground` (an API server, embedded in a process of its own
//! or any other), with a `fleet` of `replicas` (processes, too), it creates `jobs`, plays the kubelet of their `pods`, and
//! writes into a `ledger` what it sees. In the end `exact` asks the API server whether everything was counted once,
//! `audit` reads who wrote what, `usage` tells what each replica cost, and all of it becomes a `report`. `simple`,
//! `failover`, `soak` and `compare` are the commands.

mod api_server;
mod audit;
mod compare;
mod exact;
mod failover;
mod faults;
mod fleet;
mod ground;
mod jobs;
mod ledger;
mod load;
mod pods;
mod recovery;
mod replicas;
mod report;
mod simple;
mod soak;
mod stage;
mod usage;
mod views;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::pods::Simulator;
use self::report::Report;

/// The allocator of the `yardmaster` program, which replicas and API servers started here stand for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;

/// Load on a Kubernetes Job controller. Exit code 0: all Jobs ended and everything was counted exactly once; 1: not so;
/// 2: bad input; 3: could not run.
#[derive(Debug, Parser)]
#[command(name = "load-tests", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Large Jobs: what a pod costs.
    Large(simple::LargeArgs),
    /// Many small Jobs: how long one takes.
    Small(simple::SmallArgs),
    /// Far more work than places: how soon a pod that has ended is followed by the next.
    Churn(simple::ChurnArgs),
    /// Replicas join, leave and are killed while pods run.
    Failover(Box<failover::FailoverArgs>),
    /// A mixed load for a long time, while the API server misbehaves and replicas are killed.
    Soak(soak::SoakArgs),
    /// The same load under Yardmaster and under another controller, in turns.
    Compare(compare::CompareArgs),
    /// A load from a file.
    Run(simple::FileArgs),
    /// Play the kubelet for all pods of a cluster, without running anything: pods become Running and then Succeeded or
    /// Failed (annotations `yardmaster.dev/simulated-run-time` and `yardmaster.dev/simulated-exit-code`), until Ctrl-C.
    Kubelet {
        /// Kubeconfig of the cluster [default: the usual lookup].
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
    /// The embedded API server's process.
    #[command(hide = true)]
    ApiServer(api_server::ApiServerArgs),
}

fn main() -> ExitCode {
    // Replicas are this program under another name: so they are never older than the rest of it.
    if std::env::args_os().next().is_some_and(|name| name == replicas::CONTROLLER) {
        return yardmaster::cli::main();
    }
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    let work = async {
        match command {
            Command::Large(args) => args.run().await,
            Command::Small(args) => args.run().await,
            Command::Churn(args) => args.run().await,
            Command::Failover(args) => args.run().await,
            Command::Soak(args) => args.run().await,
            Command::Compare(args) => args.run().await,
            Command::Run(args) => args.run().await,
            Command::Kubelet { kubeconfig } => simulate_pods(kubeconfig).await,
            Command::ApiServer(args) => api_server::serve(args).await.map(|()| ExitCode::SUCCESS),
        }
    };
    // Dropping what was under way ends the processes and removes the files.
    tokio::select! {
        done = work => done,
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| ExitCode::from(INTERRUPTED)).map_err(Into::into),
    }
}

async fn simulate_pods(kubeconfig: Option<PathBuf>) -> Result<ExitCode> {
    let client = ground::client(kubeconfig.as_deref(), "load-tests-kubelet").await?;
    let simulator = Simulator::new(client.clone(), 0, ());
    simulator.run(client, "/api/v1/pods").await;
    Ok(ExitCode::SUCCESS)
}

/// Tells people, writes the files, and judges.
fn conclude(report: &Report, file: Option<&PathBuf>) -> Result<ExitCode> {
    print!("{}", report.summary());
    if let Some(file) = file {
        report.write(file)?;
    }
    Ok(if report.exact.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
