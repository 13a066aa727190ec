//! Load on a Kubernetes Job controller, observed only through the Kubernetes API, `/metrics` and `/proc`.
//!
//! # Map
//!
//! A `load` defines the Jobs and their schedule. `stage` plays it on a `ground`: an API server, embedded in
//! its own process or any other. It starts a `fleet` of `replicas`, each in its own process, and creates the
//! `jobs`. It plays the kubelet for their `pods`, and records its observations in a `ledger`. At the end,
//! `exact` checks on the API server that everything was counted once, and `audit` reads the record of writes.
//! `usage` measures the cost of each replica, and `report` writes all figures. `faults` are those that the
//! embedded API server plays itself; `process_faults` are those of processes, of the disk, and of
//! connections, which a `proxy` plays. `simple`, `failover`, `take_over`, `soak`, `growth`, `webhooks`,
//! `tenant`, `compare`, `differ` and `bystanders` are the commands. `run_tasks` needs no cluster. `simulate`
//! has no load: it runs the worlds of the crate `simulation`. `panels` draws what controllers serve at `/metrics`.

mod api_server;
mod audit;
mod bystanders;
mod claims;
mod compare;
mod differ;
mod document;
mod exact;
mod failover;
mod faults;
mod fleet;
mod ground;
mod growth;
mod jobs;
mod ledger;
mod limits;
mod load;
mod namespaces;
mod panels;
mod pods;
mod process_faults;
mod proxy;
mod recovery;
mod replicas;
mod report;
mod run_tasks;
mod simple;
mod simulate;
mod soak;
mod stage;
mod take_over;
mod tenant;
mod unmanaged;
mod usage;
mod views;
mod watch;
mod watches;
mod webhooks;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use yardmaster_embedded::kubelet::{START_MOUNTED, SUPERVISE};

use self::pods::Simulator;
use self::report::Report;

/// The allocator of the `yardmaster` program: replicas and API servers are started from this program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;

/// Load on a Kubernetes Job controller. Exit codes: 0 if all Jobs ended and everything was counted exactly
/// once, 1 if not, 2 for bad input, 3 if the load could not run.
#[derive(Debug, Parser)]
#[command(name = "load-tests", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Large Jobs: the cost of a pod.
    Large(simple::LargeArgs),
    /// Many small Jobs: the duration of a Job.
    Small(simple::SmallArgs),
    /// Completions far above parallelism: the latency from the end of a pod to its replacement.
    Churn(simple::ChurnArgs),
    /// Replicas join, leave and are killed while pods run.
    Failover(Box<failover::FailoverArgs>),
    /// Replicas start in place of the built-in controller while its pods are there.
    TakeOver(take_over::TakeOverArgs),
    /// A long mixed load with faults of the API server, of processes, connections and the disk.
    Soak(Box<soak::SoakArgs>),
    /// How cost grows with the numbers of replicas, pods and Jobs, and what bends first.
    Growth(Box<growth::GrowthArgs>),
    /// Slow and failing admission webhooks: what the tenants of other namespaces notice.
    Webhooks(Box<webhooks::WebhooksArgs>),
    /// Attacks by one tenant: what the Jobs of another one notice.
    Tenant(Box<tenant::TenantArgs>),
    /// The same load under Yardmaster and another controller, alternately.
    Compare(compare::CompareArgs),
    /// Pairs of equal Jobs under Yardmaster and the controller built into Kubernetes: where they differ.
    Differ(Box<differ::DifferArgs>),
    /// Changes of pods that no Job has, beside controllers: their cost for the API server.
    Bystanders(bystanders::BystandersArgs),
    /// A load from a file.
    Run(simple::FileArgs),
    /// Many short tasks on this machine: `yardmaster run` beside xargs, GNU parallel, or `podman run`.
    RunTasks(run_tasks::RunTasksArgs),
    /// Simulated worlds: the whole controller in virtual time, with every fault, from one seed each.
    Simulate(simulate::SimulateArgs),
    /// The panels of the chart's Grafana dashboard as a picture, from recorded scrapes of controllers.
    Panels(panels::PanelsArgs),
    /// Play the kubelet for all pods of a cluster until Ctrl-C. Nothing is run: pods become Running, then
    /// Succeeded or Failed (annotations `yardmaster.dev/simulated-run-time` and
    /// `yardmaster.dev/simulated-exit-code`).
    Kubelet {
        /// Kubeconfig of the cluster [default: the usual lookup].
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
    /// The embedded API server's process.
    #[command(hide = true)]
    ApiServer(api_server::ApiServerArgs),
    /// Another program with limited resources.
    #[command(hide = true)]
    Limited(limits::LimitedArgs),
}

fn main() -> ExitCode {
    if acts_as_yardmaster() {
        return yardmaster::cli::main();
    }
    let done = match Cli::parse().command {
        // Before there are threads: they could need memory between the limit and the new program.
        Command::Limited(args) => args.exec().map(|never| match never {}),
        Command::RunTasks(args) => run_tasks::run(&args),
        command => {
            limits::raise_open_files();
            run(command)
        }
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

/// Whether this process is the program `yardmaster`. Replicas and `yardmaster run` are this program under that
/// name, so they are always of the same build. `yardmaster run` starts its helpers by the path of its program.
fn acts_as_yardmaster() -> bool {
    let mut args = std::env::args_os();
    let is_named = args.next().is_some_and(|name| name == replicas::CONTROLLER);
    is_named || args.next().is_some_and(|command| command == SUPERVISE || command == START_MOUNTED)
}

#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    let work = async {
        match command {
            Command::Large(args) => args.run().await,
            Command::Small(args) => args.run().await,
            Command::Churn(args) => args.run().await,
            Command::Failover(args) => args.run().await,
            Command::TakeOver(args) => args.run().await,
            Command::Soak(args) => args.run().await,
            Command::Growth(args) => args.run().await,
            Command::Webhooks(args) => args.run().await,
            Command::Tenant(args) => args.run().await,
            Command::Compare(args) => args.run().await,
            Command::Differ(args) => args.run().await,
            Command::Bystanders(args) => args.run().await,
            Command::Run(args) => args.run().await,
            Command::Simulate(args) => args.run().await,
            Command::Panels(args) => args.run().await,
            Command::Kubelet { kubeconfig } => simulate_pods(kubeconfig).await,
            Command::ApiServer(args) => api_server::serve(args).await.map(|()| ExitCode::SUCCESS),
            Command::RunTasks(args) => run_tasks::run(&args),
            Command::Limited(args) => args.exec().map(|never| match never {}),
        }
    };
    // Dropping the work ends its processes and removes its files.
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

/// Prints the summary, writes the report, and chooses the exit code.
fn conclude(report: &Report, file: Option<&PathBuf>) -> Result<ExitCode> {
    print!("{}", report.summary());
    if let Some(file) = file {
        report.write(file)?;
    }
    Ok(if report.exact.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
