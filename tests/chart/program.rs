//! The rendered container, started as a process on an embedded API server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use nix::sys::signal::Signal;
use rcgen::CertifiedKey;
use serde_json::{Value, json};
use tempfile::TempDir;
use yardmaster_embedded::ApiServerConfig;

use crate::binary::{Background, until, yardmaster};
use crate::cluster::Cluster;
use crate::render::{NAMESPACE, ValueSet, only, value_sets};
use crate::tools::helms;
use crate::{NEWEST, yaml};

/// The environment that a kubelet would give the container.
fn environment(container: &Value) -> BTreeMap<String, String> {
    let value = |variable: &Value| {
        let source = &variable["valueFrom"];
        if let Some(secret) = source.get("secretKeyRef") {
            assert!(secret["name"].is_string() && secret["key"].is_string(), "{secret}");
            return "authorization=secret".to_owned();
        }
        match source.pointer("/fieldRef/fieldPath").and_then(Value::as_str) {
            Some("metadata.name") => "replica-1".to_owned(),
            Some("metadata.namespace") => NAMESPACE.to_owned(),
            Some(other) => panic!("{other} is not known here"),
            None => variable["value"].as_str().unwrap().to_owned(),
        }
    };
    let variables = container["env"].as_array().unwrap();
    variables
        .iter()
        .map(|variable| (variable["name"].as_str().unwrap().to_owned(), value(variable)))
        .collect()
}

/// Puts the files of mounted volumes that variables name into a folder: certificates and a key.
fn mount(container: &Value, environment: &mut BTreeMap<String, String>, folder: &Path) {
    let mounts: Vec<&str> = container["volumeMounts"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|m| m["mountPath"].as_str())
        .collect();
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for file in environment.values_mut() {
        let Some(mounted) = mounts.iter().find_map(|mount| file.strip_prefix(&format!("{mount}/"))) else {
            continue;
        };
        let text = if mounted.ends_with(".key") { signing_key.serialize_pem() } else { cert.pem() };
        let path = folder.join(mounted);
        std::fs::write(&path, text).unwrap();
        *file = path.to_str().unwrap().to_owned();
    }
}

/// The arguments that a kubelet would give the container.
fn arguments(container: &Value, environment: &BTreeMap<String, String>) -> Vec<String> {
    let expand = |argument: &Value| {
        let argument = argument.as_str().unwrap().to_owned();
        environment.iter().fold(argument, |text, (name, value)| text.replace(&format!("$({name})"), value))
    };
    container["args"].as_array().unwrap().iter().map(expand).collect()
}

fn flag<'a>(arguments: &'a [String], name: &str) -> &'a str {
    let prefix = format!("--{name}=");
    arguments
        .iter()
        .find_map(|argument| argument.strip_prefix(&prefix))
        .unwrap_or_else(|| panic!("no {name}"))
}

/// The status code of a page, if there is an answer.
fn get(at: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(at).ok()?;
    // Another program may have the port by now, and say nothing.
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

async fn create_namespaces(cluster: &Cluster, names: [&str; 2]) {
    let namespaces: Api<Namespace> = Api::all(cluster.jobs.clone().into_client());
    for name in names {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        match namespaces.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.unwrap()),
        }
    }
}

/// Starts the container of a Deployment, asks it as its probes do, has it run a Job, and ends it.
async fn run(set: &ValueSet, deployment: &Value) {
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mut environment = environment(container);
    let mut arguments = arguments(container, &environment);
    let gates = if arguments.iter().any(|argument| argument.starts_with("--feature-gates=")) {
        ["GenericWorkload", "WorkloadWithJob"].map(|gate| (gate.to_owned(), true)).into()
    } else {
        BTreeMap::new()
    };
    let cluster = Cluster::with(ApiServerConfig { feature_gates: gates, ..ApiServerConfig::default() }).await;
    create_namespaces(&cluster, [NAMESPACE, flag(&arguments, "lease-namespace")]).await;

    // The port of the pod may be another program's here.
    let port = container["ports"][0]["containerPort"].as_u64().unwrap();
    assert!(flag(&arguments, "listen").ends_with(&format!(":{port}")), "{set}");
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for argument in arguments.iter_mut().filter(|argument| argument.starts_with("--listen=")) {
        *argument = format!("--listen={at}");
    }

    // The Secret with the certificate is not here.
    arguments.retain(|argument| !argument.starts_with("--tls-"));

    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    mount(container, &mut environment, directory.path());
    let mut command = yardmaster();
    command.args(&arguments).envs(&environment);
    command.env("YARDMASTER_KUBECONFIG", cluster.write_kubeconfig(directory.path()));
    command.stdout(std::process::Stdio::null()).stderr(File::create(&log).unwrap());
    let mut replica = Background::start(&mut command);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let request = &container[probe]["httpGet"];
        assert_eq!(request["port"], container["ports"][0]["name"], "{set}");
        let path = request["path"].as_str().unwrap();
        until(&format!("{set}: {probe}"), || {
            let ended = replica.0.try_wait().unwrap();
            assert!(ended.is_none(), "{set}: {ended:?}, {}", log_of(&log));
            get(at, path) == Some(200)
        });
    }

    let managed_by = flag(&arguments, "controller-name");
    cluster
        .create("tried", json!({"managedBy": managed_by, "completions": 3, "parallelism": 3}), "10ms")
        .await;
    cluster.assert_exact("tried", 3).await;

    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    let asked = Instant::now();
    replica.signal(Signal::SIGTERM);
    let code = replica.exit_code();
    assert_eq!(code, Some(0), "{set}: {}", log_of(&log));
    assert!(asked.elapsed() < grace, "{set}: ended after {:?}", asked.elapsed());
    cluster.end().await;
}

fn log_of(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rendered_container_runs_jobs() {
    let Some(helm) = helms().pop() else { return };
    for set in value_sets() {
        let objects = set.objects(&helm, NEWEST, &[]);
        run(&set, only(&objects, "Deployment")).await;
    }
}

#[test]
fn defaults_are_those_of_the_program() {
    let help = yardmaster().args(["controller", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let values = yaml("charts/yardmaster/values.yaml");
    let kebab = |name: &str| -> String {
        let letters = name.chars().flat_map(|c| {
            let dash = c.is_uppercase().then_some('-');
            dash.into_iter().chain(c.to_lowercase())
        });
        letters.collect()
    };
    // Settings with another form in the chart: the pod knows its namespace, gates and address have other
    // flags, and machines read the logs.
    let other = [
        "name",
        "leaseNamespace",
        "defaultOptions",
        "featureGates",
        "listenAddress",
        "port",
        "logFormat",
        "logLevel",
    ];
    let settings = values["controller"].as_object().unwrap();
    for (name, value) in settings.iter().filter(|(name, _)| !other.contains(&&***name)) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let flag = format!("--{} ", kebab(name));
        let (_, after) = help.split_once(&flag).unwrap_or_else(|| panic!("no {flag}in\n{help}"));
        if value == "false" {
            assert!(!after.trim_start().starts_with('<'), "{name} is no switch, which is off by default");
            continue;
        }
        let (_, default) = after.split_once("[default: ").unwrap();
        assert!(default.starts_with(&format!("{value}]")), "{name}: {value}, not {}", &default[..20]);
    }
}
