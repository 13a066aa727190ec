//! Plays what Kubernetes' e2e tests of Jobs and other controllers ask of a cluster, each conversation in a namespace of its
//! own, against `yardmaster cluster`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{PAUSE, Request};
use crate::binary::{self, Background};

/// Limit for a step: a failed pod is replaced after ten seconds, and the next one after twenty.
const PATIENCE: Duration = Duration::from_secs(120);
/// Tests that are played at once.
const AT_ONCE: usize = 4;
/// The variable with a part of the names of those that are played.
const ONLY: &str = "YARDMASTER_CONVERSATIONS";

/// The runtime of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Containers,
    ProcessesWithMounts,
    /// Volumes that no container uses are left out, since these processes have none at their paths.
    Processes,
}

impl Runtime {
    /// Flags of `cluster`.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Containers => &["--runtime", "containers"],
            Self::ProcessesWithMounts => &["--runtime", "processes", "--volumes", "paths"],
            Self::Processes => &["--runtime", "processes", "--volumes", "variables"],
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(rename = "about")]
    _about: String,
    /// The fields that all Jobs have.
    template: Value,
    /// Shell scripts of containers, by what they do.
    behaviours: BTreeMap<String, String>,
    tests: Vec<Test>,
}

/// A property of the runtime without which a test has another outcome.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Need {
    /// Containers use their volume at its path.
    Mounts,
    /// SIGTERM does not end the first process of a container, so the exit code of a deleted pod is that of SIGKILL.
    Containers,
}

/// An e2e test, or a conversation with another controller.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    test: String,
    needs: Option<Need>,
    steps: Vec<Step>,
}

/// The creation of a Job, or another request. A GET is repeated until its answer is as it must be; in paths and bodies,
/// `{NAME}` is what an earlier step has kept.
#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    Create(Creation),
    Ask(Question),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    asks: String,
    /// The name of the Job.
    job: String,
    /// The behaviour of its container.
    runs: String,
    /// Whether its pods share one folder of the machine.
    #[serde(default)]
    shares_data: bool,
    /// Fields to merge into its metadata, its spec and its container.
    #[serde(default)]
    metadata: Value,
    spec: Value,
    #[serde(default)]
    container: Value,
}

#[derive(Deserialize)]
struct Question {
    #[serde(flatten)]
    request: Value,
    /// Parts of the answer for later steps, as JSON pointers.
    #[serde(default)]
    keep: BTreeMap<String, String>,
    /// Fields to merge into a body that was kept.
    #[serde(default)]
    body_with: Value,
    /// How long the answer must stay as it is.
    #[serde(default)]
    stays_ms: u64,
    /// Time before the next step.
    #[serde(default)]
    pause_ms: u64,
    /// If the request is refused, as after a conflict: the number of steps before it from which the client begins again.
    #[serde(default)]
    back: usize,
}

/// Plays all e2e tests of Jobs that the runtime can play. `prepare` makes the command of the cluster complete.
pub(crate) fn play(runtime: Runtime, prepare: impl Fn(&mut Command)) {
    play_scripts(&[script(&data("e2e/jobs.json"))], runtime, prepare);
}

/// Plays the conversations with other controllers, with pods as processes.
pub(crate) fn play_integrations() {
    let files = std::fs::read_dir(data("integrations")).unwrap().map(|file| file.unwrap().path());
    let scripts: Vec<_> = files.map(|file| script(&file)).collect();
    assert!(scripts.len() >= 6);
    play_scripts(&scripts, Runtime::Processes, |_| {});
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn script(file: &Path) -> Script {
    let script = serde_json::from_slice(&std::fs::read(file).unwrap());
    script.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn play_scripts(scripts: &[Script], runtime: Runtime, prepare: impl Fn(&mut Command)) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("kubeconfig");
    let mut command = binary::yardmaster();
    command.args(["cluster", "--write-kubeconfig", config.to_str().unwrap()]).args(runtime.flags());
    prepare(&mut command);
    let mut cluster = Background::start(&mut command);
    let errors = cluster.0.stderr.take().unwrap();
    let errors = std::thread::spawn(move || std::io::read_to_string(errors));
    let _listening = Background::line(cluster.0.stdout.take().unwrap(), "KUBECONFIG");
    let runtime_of_tests = tokio::runtime::Runtime::new().unwrap();
    let wrong = runtime_of_tests.block_on(play_all(scripts, runtime, &config));
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0), "{}", errors.join().unwrap().unwrap());
    assert!(wrong.is_empty(), "{} tests fail:\n{}", wrong.len(), wrong.join("\n"));
}

async fn play_all(scripts: &[Script], runtime: Runtime, kubeconfig: &Path) -> Vec<String> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig).unwrap(), &options);
    let mut config = config.await.unwrap();
    config.proxy_url = None;
    let client = kube::Client::try_from(config).unwrap();
    let only = std::env::var(ONLY).unwrap_or_default();
    let fits = |(_, test): &(&Script, &Test)| match test.needs {
        None => true,
        Some(Need::Mounts) => runtime != Runtime::Processes,
        Some(Need::Containers) => runtime == Runtime::Containers,
    };
    let tests = scripts.iter().flat_map(|script| script.tests.iter().map(move |test| (script, test)));
    let tests = tests.filter(fits).filter(|(_, test)| test.test.contains(&only));
    let played = tests.enumerate().map(|(number, (script, test))| {
        let player = Player {
            script,
            client: client.clone(),
            runtime,
            namespace: format!("job-{number}"),
            data: tempfile::tempdir().unwrap().keep(),
            kept: BTreeMap::new(),
        };
        async move { player.play(test).await.err().map(|why| format!("{}: {why}", test.test)) }
    });
    futures::stream::iter(played).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Plays one test.
struct Player<'a> {
    script: &'a Script,
    client: kube::Client,
    runtime: Runtime,
    namespace: String,
    /// A folder of this machine that pods share.
    data: std::path::PathBuf,
    kept: BTreeMap<String, Value>,
}

impl Player<'_> {
    async fn play(mut self, test: &Test) -> Result<(), String> {
        let namespace = json!({"metadata": {"name": self.namespace}});
        let create = Request::create("a namespace".into(), "/api/v1/namespaces".into(), namespace);
        create.ask(&self.client).await?;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", self.namespace);
        let account = Question::plain(json!({"asks": "its account", "path": account}));
        self.ask(&account).await?;
        let (mut next, deadline) = (0, Instant::now() + PATIENCE);
        while let Some(step) = test.steps.get(next) {
            next += 1;
            match step {
                Step::Create(creation) => {
                    let request =
                        Request::create(creation.asks.clone(), self.path("jobs"), self.job(creation));
                    request.ask(&self.client).await.map_err(|why| format!("{}: {why}", creation.asks))?;
                }
                Step::Ask(question) => match self.ask(question).await {
                    Err(_) if question.back > 0 && Instant::now() < deadline => {
                        next -= question.back + 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    outcome => outcome?,
                },
            }
        }
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        let delete =
            Question::plain(json!({"asks": "delete the namespace", "method": "DELETE", "path": path}));
        self.ask(&delete).await?;
        let gone = Question::plain(json!({"asks": "is the namespace gone", "path": path, "status": 404}));
        self.ask(&gone).await?;
        std::fs::remove_dir_all(&self.data).map_err(|error| error.to_string())
    }

    fn job(&self, creation: &Creation) -> Value {
        let mut job = self.script.template.clone();
        let labels = json!({"labels": {"job": creation.job}});
        json_patch::merge(&mut job, &json!({"metadata": {"name": creation.job}, "spec": creation.spec}));
        json_patch::merge(&mut job["metadata"], &or_empty(&creation.metadata));
        json_patch::merge(&mut job["spec"]["template"]["metadata"], &labels);
        let pod = &mut job["spec"]["template"]["spec"];
        if creation.shares_data {
            pod["volumes"][0] =
                json!({"name": "data", "hostPath": {"path": self.data, "type": "DirectoryOrCreate"}});
        }
        let container = &mut pod["containers"][0];
        // Kubernetes reads `$(` in a command as the beginning of a variable.
        let behaviour = &self.script.behaviours[&creation.runs];
        container["command"] = json!(["/bin/sh", "-c", behaviour]);
        json_patch::merge(container, &or_empty(&creation.container));
        if self.runtime == Runtime::Processes {
            container.as_object_mut().unwrap().remove("volumeMounts");
            pod.as_object_mut().unwrap().remove("volumes");
        }
        job
    }

    /// The whole path of one that begins with a resource of the namespace.
    fn path(&self, path: &str) -> String {
        let namespace = &self.namespace;
        match path.split(['/', '?']).next() {
            Some("jobs" | "cronjobs") => format!("/apis/batch/v1/namespaces/{namespace}/{path}"),
            Some("pods") => format!("/api/v1/namespaces/{namespace}/{path}"),
            _ => path.to_owned(),
        }
    }

    async fn ask(&mut self, question: &Question) -> Result<(), String> {
        let mut request: Request = serde_json::from_value(self.filled(&question.request)).unwrap();
        request.path = self.path(&request.path);
        if !request.body.is_null() {
            json_patch::merge(&mut request.body, &or_empty(&question.body_with));
        }
        let (deadline, mut holds_since) = (Instant::now() + PATIENCE, None);
        let answer = loop {
            match request.ask(&self.client).await {
                Ok(answer) => {
                    let since = *holds_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= Duration::from_millis(question.stays_ms) {
                        break answer;
                    }
                }
                Err(why) if holds_since.is_some() || request.method != "GET" || Instant::now() > deadline => {
                    return Err(format!("{}: {} {}: {why}", request.asks, request.method, request.path));
                }
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        };
        for (name, pointer) in &question.keep {
            let part = answer.pointer(pointer).ok_or_else(|| format!("no {pointer} in {answer}"))?;
            self.kept.insert(name.clone(), part.clone());
        }
        tokio::time::sleep(Duration::from_millis(question.pause_ms)).await;
        Ok(())
    }

    /// A request with what earlier steps have kept.
    fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let mut text = text.clone();
                for (name, kept) in &self.kept {
                    let place = format!("{{{name}}}");
                    if text == place {
                        return kept.clone();
                    }
                    text = text.replace(&place, kept.as_str().unwrap_or_default());
                }
                text.into()
            }
            Value::Array(elements) => elements.iter().map(|element| self.filled(element)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(field, value)| (field.clone(), self.filled(value))).collect()
            }
            other => other.clone(),
        }
    }
}

impl Question {
    fn plain(request: Value) -> Self {
        Self { request, keep: BTreeMap::new(), body_with: Value::Null, stays_ms: 0, pause_ms: 0, back: 0 }
    }
}

/// A merge patch that changes nothing, in place of none.
fn or_empty(patch: &Value) -> Value {
    if patch.is_null() { json!({}) } else { patch.clone() }
}
