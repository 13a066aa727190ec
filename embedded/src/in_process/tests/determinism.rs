//! The same requests get the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::client::{Client, JSON, MERGE, Watcher, job, pod};
use super::{LEASES, PODS};
use crate::protobuf;
use crate::rules::openapi::hash;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const STEPS: usize = 200;

/// A session of mixed requests, and all that the server has sent.
struct Session {
    client: Client,
    watches: Vec<Watcher>,
    transcript: Vec<u8>,
    /// How often each method got each status.
    codes: BTreeMap<(String, u16), usize>,
    random: SmallRng,
    token: Option<String>,
}

impl Session {
    fn new(seed: u64) -> Self {
        Self {
            client: Client::new(seed),
            watches: Vec::new(),
            transcript: Vec::new(),
            codes: BTreeMap::new(),
            // The requests are always the same.
            random: SmallRng::seed_from_u64(7),
            token: None,
        }
    }

    async fn open_watches(&mut self) {
        let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
        for (path, accept) in [
            (format!("{PODS}?watch=true"), JSON),
            (format!("{PODS}?watch=true&labelSelector=app=a"), PROTOBUF),
            (format!("{PODS}?watch=true&labelSelector=app%21=a&allowWatchBookmarks=true"), JSON),
            (format!("{PODS}?watch=true&fieldSelector=status.phase=Running"), table),
            (format!("{JOBS}?watch=true"), PROTOBUF),
            ("/apis/batch/v1/jobs?watch=true&labelSelector=app=b".to_owned(), JSON),
            (format!("{LEASES}?watch=true&timeoutSeconds=90"), JSON),
        ] {
            self.watches.push(self.client.watch(&path, accept).await);
        }
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        accept: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) {
        let answer = self.client.send(method, path, accept, content_type, body).await;
        *self.codes.entry((method.to_owned(), answer.code)).or_default() += 1;
        if path.contains("limit=") && answer.code == 200 {
            self.token = answer.json()["metadata"]["continue"].as_str().map(str::to_owned);
        }
        let head = format!("\n{method} {path}\n{} {:?}\n", answer.code, answer.headers);
        self.transcript.extend_from_slice(head.as_bytes());
        self.transcript.extend_from_slice(&answer.body);
        for (number, watch) in self.watches.iter_mut().enumerate() {
            for chunk in watch.chunks() {
                self.transcript.extend_from_slice(format!("\nwatch {number}: ").as_bytes());
                self.transcript.extend_from_slice(&chunk);
            }
        }
    }

    /// Sends a random request to a random object.
    async fn step(&mut self) {
        let number = self.random.random_range(0..12);
        let app = ["a", "b", "c"][self.random.random_range(0..3)];
        let (a_pod, a_job) = (format!("{PODS}/p{number}"), format!("{JOBS}/j{}", number % 4));
        match self.random.random_range(0..16) {
            0..=2 => self.send("POST", PODS, JSON, JSON, pod(&format!("p{number}"), app).to_string()).await,
            3 => {
                let mut generated = pod("", app);
                generated["metadata"] = json!({"generateName": "generated-", "labels": {"app": app}});
                for field in ["kind", "apiVersion"] {
                    generated.as_object_mut().unwrap().remove(field);
                }
                let mut body = BytesMut::new();
                protobuf::write_object(&mut body, "v1", "Pod", generated.to_string().as_bytes()).unwrap();
                self.send("POST", PODS, JSON, PROTOBUF, body).await;
            }
            4 => {
                let mut new = job(&format!("j{}", number % 4));
                new["metadata"]["labels"] = json!({"app": app});
                self.send("POST", JOBS, PARTIAL, JSON, new.to_string()).await;
            }
            5 => {
                let patch = json!({"metadata": {"labels": {"app": app}, "finalizers": ["example.com/f"]}});
                self.send("PATCH", &a_pod, PARTIAL, STRATEGIC, patch.to_string()).await;
            }
            6 | 7 => {
                let phase = ["Running", "Succeeded", "Failed"][number % 3];
                let patch = json!({"status": {"phase": phase, "conditions": [
                    {"type": "Ready", "status": "True"}, {"type": app, "status": "False"},
                ]}});
                let accept = if number % 2 == 0 { PARTIAL } else { JSON };
                self.send("PATCH", &format!("{a_pod}/status"), accept, STRATEGIC, patch.to_string()).await;
            }
            8 => {
                let mut status =
                    json!({"active": number, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}});
                status["startTime"] = "2026-01-01T00:00:00Z".into();
                let patch = json!({"status": status}).to_string();
                self.send("PATCH", &format!("{a_job}/status"), JSON, MERGE, patch).await;
            }
            9 => {
                let policy = ["Background", "Foreground", "Orphan"][number % 3];
                self.send("DELETE", &format!("{a_job}?propagationPolicy={policy}"), JSON, JSON, "").await;
            }
            10 => {
                let mut options =
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
                options["propagationPolicy"] = ["Background", "Foreground"][number % 2].into();
                self.send("DELETE", &a_pod, JSON, JSON, options.to_string()).await;
            }
            11 => {
                let release = r#"[{"op":"remove","path":"/metadata/finalizers"}]"#;
                let path = if number % 2 == 0 { a_pod } else { a_job };
                self.send("PATCH", &path, JSON, "application/json-patch+json", release).await;
            }
            12 => {
                let more = self.token.take().map(|token| format!("&continue={token}")).unwrap_or_default();
                self.send("GET", &format!("{PODS}?limit=3{more}"), JSON, "", "").await;
            }
            13 => {
                // Two managers apply the same field, and sometimes force it.
                let manager = self.random.random_range(0..2);
                let lease = json!({
                    "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": format!("l{}", number % 3)},
                    "spec": {"holderIdentity": app},
                });
                let path = format!(
                    "{LEASES}/l{}?fieldManager=m{manager}&force={}",
                    number % 3,
                    self.random.random_bool(0.3)
                );
                self.send("PATCH", &path, JSON, APPLY, lease.to_string()).await;
            }
            14 => {
                let mut wrong = pod(&format!("p{number}"), app);
                wrong["spec"]["containers"] = json!([{"name": "A"}, {"name": "A", "image": "i", "x": 1}]);
                wrong["spec"]["restartPolicy"] = "Sometimes".into();
                self.send("POST", PODS, JSON, JSON, wrong.to_string()).await;
            }
            _ => self.send("GET", &format!("{PODS}?labelSelector=app+in+(a,b)"), JSON, "", "").await,
        }
    }

    async fn play(mut self) -> Self {
        self.open_watches().await;
        for _ in 0..STEPS {
            self.step().await;
            self.client.clock.advance(1);
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        self.send("GET", "/apis", JSON, "", "").await;
        self.send("GET", "/openapi/v3", JSON, "", "").await;
        self
    }

    fn digest(&self) -> String {
        format!("{:016x} {}", hash(&self.transcript), self.transcript.len())
    }
}

fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    let at = at.or((one.len() != other.len()).then(|| one.len().min(other.len())))?;
    let shown = |bytes: &[u8]| {
        let end = bytes.len().min(at + 200);
        String::from_utf8_lossy(&bytes[at.saturating_sub(300).min(end)..end]).into_owned()
    };
    let mut text = String::new();
    write!(text, "at {at}:\n{}\n\n--- and ---\n\n{}", shown(one), shown(other)).unwrap();
    Some(text)
}

#[tokio::test(start_paused = true)]
async fn two_servers_answer_with_the_same_bytes() {
    let (one, other) = (Session::new(1).play().await, Session::new(1).play().await);
    if let Some(difference) = difference(&one.transcript, &other.transcript) {
        panic!("{difference}");
    }
    // Not all requests are refused: the session has answers of every kind.
    for (method, code, least) in [
        ("POST", 201, 20),
        ("POST", 409, 3),
        ("POST", 422, 3),
        ("PATCH", 200, 20),
        ("PATCH", 201, 1),
        ("PATCH", 404, 3),
        ("PATCH", 409, 1),
        ("DELETE", 200, 5),
        ("GET", 200, 10),
    ] {
        let count = one.codes.get(&(method.to_owned(), code)).copied().unwrap_or_default();
        assert!(count >= least, "{method} {code}: {:?}", one.codes);
    }
    let text = String::from_utf8_lossy(&one.transcript);
    for number in 0..7 {
        assert!(text.contains(&format!("\nwatch {number}: ")), "watch {number} got nothing");
    }
    for kind in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"] {
        assert!(text.contains(&format!("\"type\":\"{kind}\"")), "{kind}");
    }
    assert!(one.watches[6].has_ended() && !one.watches[0].has_ended());
}

#[tokio::test(start_paused = true)]
async fn watches_hear_of_a_write_in_the_order_in_which_they_began_to_wait() {
    let client = Client::new(1);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60 {
        let selector = if number % 2 == 0 { "" } else { "&labelSelector=app=a" };
        let mut watch = client.watch(&format!("{PODS}?watch=true{selector}"), JSON).await;
        let heard = Arc::clone(&heard);
        tasks.spawn(async move {
            while let Some(events) = watch.wait().await {
                heard.lock().unwrap().push((number, events.len()));
            }
            heard.lock().unwrap().push((number, 0));
        });
    }
    let settle = async || {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut *heard.lock().unwrap())
    };
    assert!(settle().await.is_empty());
    // Watches of all pods and watches of a label are two queues.
    let order: Vec<usize> =
        [1, 0].iter().flat_map(|parity| (0..60).filter(move |number| number % 2 == *parity)).collect();
    let expected = |events| order.iter().map(|number| (*number, events)).collect::<Vec<_>>();
    for name in ["p", "q"] {
        client.post(PODS, &pod(name, "a")).await;
        assert_eq!(settle().await, expected(1));
    }
    let snapshot = client.server.snapshot();
    client.server.restore(&snapshot);
    let ended = settle().await;
    assert_eq!(ended.len(), 60);
    assert!(tasks.len() == 60 && ended.iter().all(|(_, events)| *events == 0));
}

#[tokio::test(start_paused = true)]
async fn another_seed_gives_other_uids_and_nothing_else() {
    let mut all = Vec::new();
    for seed in [1, 2] {
        let client = Client::new(seed);
        let mut generated = pod("", "a");
        generated["metadata"] = json!({"generateName": "g-"});
        let mut stored: Value = client.post(PODS, &generated).await.json();
        let metadata = stored["metadata"].as_object_mut().unwrap();
        all.push((metadata.remove("uid").unwrap(), metadata.remove("name").unwrap(), stored));
    }
    let [one, other] = all.as_slice() else { unreachable!() };
    assert!(one.0 != other.0 && one.1 != other.1);
    assert_eq!(one.2, other.2);
}

/// Prints a digest of the session, for the test below, which runs this one in a process of its own.
#[tokio::test(start_paused = true)]
#[ignore = "a part of another test"]
async fn digest() {
    println!("digest {}", Session::new(1).play().await.digest());
}

#[tokio::test(start_paused = true)]
async fn another_process_answers_with_the_same_bytes() {
    let here = Session::new(1).play().await.digest();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_process::tests::determinism::digest", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("digest {here}\n")), "here {here}\n{text}");
}

/// Time for each request, in the profile of the build:
/// `cargo test --release -p yardmaster-embedded cost -- --ignored --nocapture`.
#[tokio::test(start_paused = true)]
#[ignore = "a measurement"]
async fn cost() {
    const COUNT: u32 = 2_000;
    drop(Client::new(1));
    let began = std::time::Instant::now();
    let client = Client::new(1);
    println!("a new server: {:?}", began.elapsed());
    let mut watches = Vec::new();
    for app in 0..8 {
        watches.push(client.watch(&format!("{PODS}?watch=true&labelSelector=app=a{app}"), PROTOBUF).await);
    }
    let status = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}"#;
    let labels = r#"{"metadata":{"labels":{"x":"y"},"finalizers":["example.com/f"]}}"#;
    for (what, method, accept, content_type, body) in [
        ("create a pod", "POST", PARTIAL, JSON, ""),
        ("GET a pod", "GET", JSON, "", ""),
        ("patch a pod", "PATCH", PARTIAL, MERGE, labels),
        ("patch a pod's status", "PATCH", PARTIAL, STRATEGIC, status),
        ("delete a pod", "DELETE", JSON, JSON, ""),
    ] {
        let bodies: Vec<(String, Bytes)> = (0..COUNT)
            .map(|number| match method {
                "POST" => (PODS.to_owned(), pod(&format!("p{number}"), "a1").to_string().into()),
                _ if what.ends_with("status") => (format!("{PODS}/p{number}/status"), body.into()),
                _ => (format!("{PODS}/p{number}"), body.into()),
            })
            .collect();
        let began = std::time::Instant::now();
        for (path, body) in bodies {
            let answer = client.send(method, &path, accept, content_type, body).await;
            assert!(matches!(answer.code, 200 | 201), "{what}: {}", answer.text());
        }
        println!("{what}: {:?}", began.elapsed() / COUNT);
        let began = std::time::Instant::now();
        let bytes: usize = watches.iter_mut().flat_map(Watcher::chunks).map(|chunk| chunk.len()).sum();
        println!("    its event on a watch: {:?}, {bytes} bytes in all", began.elapsed() / COUNT);
        if method == "POST" {
            let began = std::time::Instant::now();
            let snapshot = client.server.snapshot();
            println!("    a snapshot of {COUNT} pods: {:?}", began.elapsed());
            let other = Client::new(1);
            let began = std::time::Instant::now();
            other.server.restore(&snapshot);
            println!("    its restore: {:?}", began.elapsed());
        }
    }
}
