//! `bystanders`: what changes of pods that none of its Jobs has cost the API server beside controllers, which all watch pods.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Request, header};
use serde::Serialize;
use serde_json::{Value, json};
use yardmaster::job::names::{CONTROLLER_UID_LABEL, JOB_NAME_LABEL};

use crate::fleet::Fleet;
use crate::ground::{Ground, Reading, Storage};
use crate::replicas::Replica;
use crate::report::{round, write_text};
use crate::stage::{CommonArgs, Setup};

/// Concurrent writes.
const AT_ONCE: usize = 24;
/// Time for controllers to have everything listed, and for shards to be balanced.
const BALANCED: Duration = Duration::from_secs(5);

/// Flags of `bystanders`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BystandersArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Command that starts another controller, which has a turn as well. It must read KUBECONFIG.
    #[arg(long, value_name = "CMD")]
    reference: Option<String>,
    /// Numbers of replicas, a turn each; 0: no controller.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1,2,4")]
    numbers_of_replicas: Vec<usize>,
    /// Number of pods.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pods: u32,
    /// Patches of their status in each turn.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    patches: u32,
    /// The pods are those of a Job of another controller, not of no Job.
    #[arg(long)]
    of_foreign_job: bool,
    /// Number of turns of each; every second round in reverse.
    #[arg(long, value_name = "N", default_value_t = 2)]
    rounds: u32,
}

/// The controllers that run in a turn.
#[derive(Clone, Copy, Debug)]
enum Beside<'a> {
    Replicas(usize),
    Reference(&'a str),
}

/// The figures of a turn.
#[derive(Clone, Debug, Serialize)]
struct Turn {
    beside: String,
    patches_per_s: f64,
    api_server_cpu_s: f64,
    /// Of all replicas together.
    controller_cpu_s: f64,
}

impl BystandersArgs {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let mut turns = Vec::new();
        let replicas = self.numbers_of_replicas.iter().copied().map(Beside::Replicas);
        let mut order: Vec<Beside<'_>> =
            replicas.chain(self.reference.as_deref().map(Beside::Reference)).collect();
        for _ in 0..self.rounds {
            for beside in &order {
                let turn = self.turn(*beside).await?;
                let Turn { beside, patches_per_s, api_server_cpu_s, controller_cpu_s } = &turn;
                println!(
                    "{beside}: {patches_per_s:.0} patches/s, {api_server_cpu_s:.2} s of CPU of the API server, \
                     {controller_cpu_s:.2} s of controllers"
                );
                turns.push(turn);
            }
            order.reverse();
        }
        if let Some(file) = &self.common.report {
            write_text(file, &serde_json::to_string_pretty(&turns)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn turn(&self, beside: Beside<'_>) -> Result<Turn> {
        let kubeconfig = self.common.kubeconfig.as_deref().context("--kubeconfig: none is given")?;
        let ground = Ground::prepare(Some(kubeconfig), Storage::Memory).await?;
        let turn = self.measure(&ground, beside).await;
        ground.end().await?;
        turn
    }

    async fn measure(&self, ground: &Ground, beside: Beside<'_>) -> Result<Turn> {
        let client = ground.client("load-tests").await?;
        let path = ground.path("/api/v1", "pods");
        let job = match self.of_foreign_job {
            true => {
                let job = foreign_job().to_string().into_bytes();
                let request = Request::post(ground.path("/apis/batch/v1", "jobs")).body(job)?;
                Some(client.request::<Value>(request).await?)
            }
            false => None,
        };
        let create = |number| {
            let pod = pod(number, job.as_ref()).to_string().into_bytes();
            let (client, request) = (client.clone(), Request::post(&path).body(pod));
            async move { anyhow::Ok(client.request::<Value>(request?).await.map(drop)?) }
        };
        stream::iter(0..self.pods).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let mut fleet = Fleet::new(self.common.recipe(ground, Setup::default())?);
        match beside {
            Beside::Replicas(number) => fleet.grow(number)?,
            Beside::Reference(command) => {
                let log = ground.directory.path().join("reference.log");
                fleet.adopt(Replica::foreign(command, &ground.kubeconfig, &log)?);
            }
        }
        fleet.ready().await?;
        tokio::time::sleep(BALANCED).await;
        fleet.begin_counting().await;
        let before = Reading::of(&client).await?;
        let begun = Instant::now();
        let patch = |number: u32| {
            let uri = format!("{path}/bystander-{}/status", number % self.pods.max(1));
            let request = Request::patch(uri)
                .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
                .body(status(number).to_string().into_bytes());
            let client = client.clone();
            async move { anyhow::Ok(client.request::<Value>(request?).await.map(drop)?) }
        };
        stream::iter(0..self.patches).map(patch).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let wall = begun.elapsed().as_secs_f64();
        let after = Reading::of(&client).await?;
        fleet.check()?;
        let costs = fleet.end().await;
        Ok(Turn {
            beside: match beside {
                Beside::Replicas(number) => format!("{number} replicas"),
                Beside::Reference(_) => "reference".into(),
            },
            patches_per_s: round(f64::from(self.patches) / wall),
            api_server_cpu_s: after.since(&before).cpu_s,
            controller_cpu_s: round(costs.iter().map(|cost| cost.usage.cpu_s).sum()),
        })
    }
}

/// A Job that another controller looks after.
fn foreign_job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "foreign"},
        "spec": {"managedBy": "load-tests.example/controller", "template": {"spec": spec("Never")}},
    })
}

/// A pod of this Job, or of none, that no scheduler takes.
fn pod(number: u32, job: Option<&Value>) -> Value {
    let mut metadata = json!({"name": format!("bystander-{number}")});
    if let Some(job) = job {
        let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
        metadata["labels"] = json!({CONTROLLER_UID_LABEL: uid, JOB_NAME_LABEL: name});
        metadata["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec("Always")})
}

fn spec(restart_policy: &str) -> Value {
    json!({
        "schedulerName": "yardmaster-simulated",
        "restartPolicy": restart_policy,
        "containers": [{"name": "serve", "image": "registry.example/serve:1"}],
    })
}

/// A kubelet's report, unlike the one before.
fn status(number: u32) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": number.to_string()}]}})
}
