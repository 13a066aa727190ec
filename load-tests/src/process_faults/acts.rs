//! The act of each kind of fault.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Request;
use jiff::SignedDuration;
use nix::sys::signal::Signal;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use serde_json::json;

use super::{Drill, ProcessFault};
use crate::faults::{FaultKind, TimedFault};
use crate::proxy::{Mode, Proxy};
use crate::stage::Stage;

/// Time for which the API server is down.
const DOWN: Duration = Duration::from_secs(2);
/// Limit for a connection to be used, and for a full disk to be noticed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size of an object that fills the disk, in bytes, and the limit of their number.
const FILLER: usize = 512 << 10;
const FILLERS: usize = 400;

/// The observed effect of a fault.
pub(super) struct Act {
    /// The process or connection.
    pub(super) target: String,
    /// Observations of the fault itself.
    pub(super) observed: String,
}

/// Plays the fault from its begin to its end, while the load goes on.
pub(super) async fn play(drill: &mut Drill, stage: &mut Stage, fault: ProcessFault) -> Result<Act> {
    match fault {
        ProcessFault::KillReplica => kill_replica(drill, stage).await,
        ProcessFault::FreezeReplica => freeze_replica(drill, stage).await,
        ProcessFault::RestartApiServer => {
            stage.ground.server()?.stop().await?;
            resume(stage, "ended in order".into()).await
        }
        ProcessFault::KillApiServer => {
            stage.ground.server()?.kill().await?;
            resume(stage, "killed".into()).await
        }
        ProcessFault::FullDisk => full_disk(stage).await,
        ProcessFault::Blackhole => one_connection(drill, stage, Mode::Swallow).await,
        ProcessFault::HalfOpen => one_connection(drill, stage, Mode::HalfOpen).await,
        ProcessFault::CutAnswer => cut_answer(drill, stage).await,
        ProcessFault::SlowLink => {
            let delay = Mode::Delay(drill.args.link_delay);
            all_connections(drill, stage, delay).await
        }
        ProcessFault::IsolateReplica => all_connections(drill, stage, Mode::Swallow).await,
        ProcessFault::SlowWebhook => {
            let delay = drill.args.webhook_delay;
            let observed = format!("{} ms more for each pod that is created", delay.as_millis());
            webhook(drill, stage, FaultKind::Delay(duration(delay)), observed).await
        }
        ProcessFault::FailingWebhook => {
            let after = drill.args.webhook_timeout;
            let observed = format!("no pod is created; refused after {} s", after.as_secs_f64());
            webhook(drill, stage, FaultKind::FailWebhook(duration(after)), observed).await
        }
    }
}

/// A random running replica, counted from the oldest.
fn choose(drill: &mut Drill, stage: &Stage) -> Result<usize> {
    match stage.fleet.len() {
        0 => bail!("no replica runs"),
        count => Ok(drill.random.random_range(0..count)),
    }
}

fn identity(stage: &Stage, index: usize) -> String {
    stage.fleet.get(index).map(|replica| replica.identity.clone()).unwrap_or_default()
}

fn proxy(stage: &Stage, index: usize) -> Result<&Proxy> {
    stage.fleet.get(index).and_then(|replica| replica.proxy()).context("the replica has no proxy")
}

async fn kill_replica(drill: &mut Drill, stage: &mut Stage) -> Result<Act> {
    let index = choose(drill, stage)?;
    let target = stage.fleet.kill(index).await.unwrap_or_default();
    Ok(Act { target, observed: "SIGKILL; another replica is started".into() })
}

async fn freeze_replica(drill: &mut Drill, stage: &mut Stage) -> Result<Act> {
    let index = choose(drill, stage)?;
    let signal = |stage: &Stage, signal| {
        stage.fleet.get(index).map(|replica| replica.signal(signal)).context("the replica has ended")
    };
    signal(stage, Signal::SIGSTOP)?;
    stage.run_for(drill.args.fault_time).await?;
    let state = stage.fleet.get(index).and_then(|replica| replica.state()).unwrap_or('?');
    signal(stage, Signal::SIGCONT)?;
    Ok(Act { target: identity(stage, index), observed: format!("state {state}, then SIGCONT") })
}

/// Starts the API server again.
async fn resume(stage: &mut Stage, ended: String) -> Result<Act> {
    stage.run_for(DOWN).await?;
    let begun = Instant::now();
    stage.ground.server()?.resume().await?;
    let started = begun.elapsed().as_secs_f64();
    let observed = format!("{ended}; started again after {} s, in {started:.1} s", DOWN.as_secs());
    Ok(Act { target: "API server".into(), observed })
}

/// Fills the disk with objects until the API server ends. These are deleted afterwards.
async fn full_disk(stage: &mut Stage) -> Result<Act> {
    let size = stage.ground.server()?.fill_disk()?;
    let path = stage.ground.path("/api/v1", "configmaps");
    let begun = Instant::now();
    let (mut names, mut refused) = (Vec::new(), None);
    let why = loop {
        if let Some(why) = stage.ground.server()?.ended().await? {
            break why;
        }
        if begun.elapsed() > PATIENCE {
            bail!(
                "the API server goes on with a full disk of {size} bytes: {} objects, {refused:?}",
                names.len()
            );
        }
        if refused.is_none() && names.len() < FILLERS {
            let name = format!("filler-{}", names.len());
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"filler": "x".repeat(FILLER)},
            });
            let request = Request::post(&path).body(body.to_string().into_bytes())?;
            // A request without an answer is refused, too.
            let answer =
                tokio::time::timeout(PATIENCE, stage.client.request::<serde_json::Value>(request)).await;
            refused = answer
                .map_or_else(|_| Some("no answer".into()), |answer| answer.err().map(|e| e.to_string()));
            names.push(name);
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let written = names.len();
    let act =
        resume(stage, format!("at {size} bytes, object {written} was refused; it ended: {why}")).await?;
    for name in names {
        let request = Request::delete(format!("{path}/{name}")).body(Vec::new())?;
        // The refused one may not exist.
        let _deleted = stage.client.request::<serde_json::Value>(request).await;
    }
    Ok(act)
}

/// A random connection of a random replica: index of the replica, number of the connection, and its last request.
async fn choose_connection(drill: &mut Drill, stage: &mut Stage) -> Result<(usize, u64, String)> {
    let index = choose(drill, stage)?;
    let begun = Instant::now();
    loop {
        let connections = proxy(stage, index)?.connections();
        if let Some((number, request)) = connections.choose(&mut drill.random) {
            return Ok((index, *number, request.clone()));
        }
        if begun.elapsed() > PATIENCE {
            bail!("{} has no connection", identity(stage, index));
        }
        stage.step().await?;
    }
}

async fn one_connection(drill: &mut Drill, stage: &mut Stage, mode: Mode) -> Result<Act> {
    let (index, number, request) = choose_connection(drill, stage).await?;
    let target = format!("{}: {request}", identity(stage, index));
    let before = proxy(stage, index)?.swallowed();
    proxy(stage, index)?.set(number, mode);
    stage.run_for(drill.args.fault_time).await?;
    let proxy = proxy(stage, index)?;
    proxy.restore();
    Ok(Act { target, observed: format!("{} bytes swallowed", proxy.swallowed() - before) })
}

async fn all_connections(drill: &mut Drill, stage: &mut Stage, mode: Mode) -> Result<Act> {
    let index = choose(drill, stage)?;
    let before = proxy(stage, index)?.swallowed();
    proxy(stage, index)?.set_all(mode);
    stage.run_for(drill.args.fault_time).await?;
    let proxy = proxy(stage, index)?;
    let connections = proxy.connections().len();
    proxy.restore();
    let observed = match mode {
        Mode::Delay(delay) => {
            format!("{} ms more in each direction on {connections} connections", delay.as_millis())
        }
        _ => format!("{} bytes swallowed", proxy.swallowed() - before),
    };
    Ok(Act { target: identity(stage, index), observed })
}

/// A webhook of the load's namespace, for the fault time.
async fn webhook(drill: &Drill, stage: &mut Stage, kind: FaultKind, observed: String) -> Result<Act> {
    let target = stage.ground.namespace.clone();
    let fault = TimedFault::of_webhook(&target, kind, drill.args.fault_time);
    stage.ground.inject(&fault).await?;
    stage.run_for(drill.args.fault_time).await?;
    Ok(Act { target: format!("namespace {target}"), observed })
}

fn duration(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}

async fn cut_answer(drill: &mut Drill, stage: &mut Stage) -> Result<Act> {
    let index = choose(drill, stage)?;
    proxy(stage, index)?.cut_next_answer();
    let begun = Instant::now();
    loop {
        if let Some(request) = proxy(stage, index)?.cut() {
            let target = format!("{}: {request}", identity(stage, index));
            return Ok(Act { target, observed: "closed after half of the next bytes".into() });
        }
        if begun.elapsed() > PATIENCE {
            bail!("{} has got no answer", identity(stage, index));
        }
        stage.step().await?;
    }
}
