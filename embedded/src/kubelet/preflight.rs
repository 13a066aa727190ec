//! The obstacles of pods, found before any of them is created. With an obstacle, a pod can never run on this
//! host, unless something is added to the cluster.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize as _;
use serde_json::Value;

use super::environment::Variables;
use super::mounting::{self, Mounting};
use super::pod::{Container, PodSpec, Slot, Volume};
use super::scheduling::{self, NodeView};
use super::workspace::Workspace;
use super::{host_path, lookup, node, quantity, refusals};
use crate::admission::pods::is_system_class;
use crate::controllers::ROOT_CERTIFICATES;

/// Why a pod can never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The local kubelet does not offer this; the text also says what it offers in its place.
    Unsupported(String),
    /// This host has no such program or directory, as the text says.
    NotOnHost(String),
    /// The system gives a program no word or variable of that length.
    TooLong(usize),
    /// The pod needs an object of this kind and name.
    Object(&'static str, String),
    /// The pod asks for more of a resource than this machine has.
    Resource {
        /// Name of the resource, such as `memory`.
        name: String,
        /// The demands of this and of earlier containers.
        asked: String,
        /// The supply, if there is any.
        there: Option<String>,
    },
}

/// A field below `spec` of a pod, such as `containers[0].command`, with what it stands in the way of.
pub type Finding = (String, Obstacle);

/// The runtime of the containers of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// This host, as processes that work in these folders and find their volumes so.
    Processes(Workspace, Mounting),
    /// A container engine.
    Containers,
}

/// The machine that pods would run on.
#[derive(Clone, Debug)]
pub struct Machine {
    node: NodeView,
    runtime: Runtime,
}

impl Machine {
    /// A machine whose node has this name, and these labels beside its own.
    #[must_use]
    pub fn new(node: &str, runtime: Runtime, labels: &[(String, String)]) -> Self {
        let labels = node::labels(node, labels.iter().cloned().collect());
        Self { node: NodeView::labelled(node, labels), runtime }
    }
}

/// All obstacles to pods with this `spec`, which is valid and has its defaults, one for each field.
pub fn obstacles(spec: &Value, machine: &Machine) -> Vec<Finding> {
    // A valid spec can be read.
    let spec = PodSpec::deserialize(spec).unwrap_or_default();
    let (refused, programs) = match &machine.runtime {
        Runtime::Processes(workspace, mounting) => {
            (refusals::of_processes(&spec, mounting), programs(&spec, *workspace, mounting))
        }
        Runtime::Containers => (refusals::of_containers(&spec), Vec::new()),
    };
    let refused = refused.into_iter();
    let mut found: Vec<Finding> =
        refused.map(|refusal| (refusal.field, Obstacle::Unsupported(refusal.message))).collect();
    found.extend(elsewhere(&spec, &machine.node));
    found.extend(paths(&spec));
    found.extend(programs);
    found.extend(words(&spec));
    found.extend(objects(&spec));
    found.extend(resources(&spec));
    let mut fields = HashSet::new();
    found.retain(|(field, _)| fields.insert(field.clone()));
    found
}

/// No kubelet runs the pods of another node, and none allocates devices.
fn elsewhere(spec: &PodSpec, own: &NodeView) -> Vec<Finding> {
    let other = spec.node_name.as_deref().filter(|node| !node.is_empty() && *node != own.name());
    let node = other.map(|node| {
        let text = format!("there is no node {node}, only {}", own.name());
        ("nodeName".to_owned(), Obstacle::Unsupported(text))
    });
    let selected = scheduling::unmet(spec, own).map(|(field, wanted)| {
        let text = format!("this machine has no {wanted}: --node-label KEY=VALUE gives it a label");
        (field.to_owned(), Obstacle::Unsupported(text))
    });
    let claims = (!spec.resource_claims.is_empty())
        .then(|| ("resourceClaims".to_owned(), Obstacle::Unsupported("no device is allocated here".into())));
    node.into_iter().chain(selected).chain(claims).collect()
}

fn paths(spec: &PodSpec) -> Vec<Finding> {
    let volumes = spec.volumes.iter().enumerate();
    let problem = volumes.filter_map(|(index, volume)| {
        let problem = host_path::check(volume.host_path.as_ref()?).err()?;
        Some((format!("volumes[{index}].hostPath"), Obstacle::NotOnHost(problem)))
    });
    problem.collect()
}

/// Programs and directories that are not there. The first container to start may make those of the others.
fn programs(spec: &PodSpec, workspace: Workspace, mounting: &Mounting) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, slot) in spec.slots().enumerate() {
        let container = spec.container(slot);
        let Ok((program, _)) = refusals::command(container) else { continue };
        let is_path = program.contains('/');
        if program.contains("$(") || is_path && place > 0 {
            continue;
        }
        let Some(environment) = path_variable(container) else { continue };
        if *mounting == Mounting::AtPaths && may_be_mounted(container, program, &environment) {
            continue;
        }
        if let Some(text) = missing_directory(container, workspace).filter(|_| place == 0) {
            found.push((format!("{}.workingDir", slot.field()), Obstacle::NotOnHost(text)));
            continue;
        }
        // A new folder holds no program, nor does a directory that is not there.
        let own = || (workspace == Workspace::OfPod).then(|| PathBuf::from("/dev/null"));
        let directory = working_dir(container).map(PathBuf::from).or_else(own);
        if let Err(error) = lookup::locate(program, &environment, directory.as_deref()) {
            found.push((format!("{}.command", slot.field()), Obstacle::NotOnHost(error.to_string())));
        }
    }
    found
}

/// Whether the program or the directory of a container may be in a volume.
fn may_be_mounted(container: &Container, program: &str, environment: &Variables) -> bool {
    let searched = environment.get("PATH").map(String::as_str).unwrap_or_default();
    let directory = container.working_dir.as_deref().unwrap_or_default();
    let mut paths = searched.split(':').chain([program, directory]).map(Path::new);
    let targets: Vec<_> = container.volume_mounts.iter().map(mounting::target).collect();
    paths.any(|path| targets.iter().any(|target| path.starts_with(target)))
}

/// Bytes of a word or a variable of a program, at most: `MAX_ARG_STRLEN` of Linux without the zero that ends it.
pub const WORD_MAX: usize = (128 << 10) - 1;

/// Words and variables that are too long for a program.
fn words(spec: &PodSpec) -> Vec<Finding> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    spec.slots().flat_map(|slot| words_of(&slot.field(), spec.container(slot))).collect()
}

fn words_of(field: &str, container: &Container) -> Vec<Finding> {
    let word = |list: &'static str| {
        move |(index, word): (usize, &String)| (format!("{list}[{index}]"), length_at_least(word))
    };
    let variable = |(index, variable): (usize, &core::EnvVar)| {
        let value = length_at_least(variable.value.as_deref().unwrap_or_default());
        (format!("env[{index}].value"), variable.name.len() + "=".len() + value)
    };
    let command = container.command.iter().enumerate().map(word("command"));
    let args = container.args.iter().enumerate().map(word("args"));
    let all = command.chain(args).chain(container.env.iter().enumerate().map(variable));
    let too_long = all.filter(|(_, length)| *length > WORD_MAX);
    too_long.map(|(below, length)| (format!("{field}.{below}"), Obstacle::TooLong(length))).collect()
}

/// Length of a text, whatever its variables are. The name of a variable has no space, as a command of a shell has.
fn length_at_least(text: &str) -> usize {
    let mut pieces = text.split("$(");
    let first = pieces.next().map_or(0, str::len);
    let rest = pieces.map(|piece| match piece.split_once(')') {
        Some((name, rest)) if !name.contains(char::is_whitespace) => rest.len(),
        _ => piece.len(),
    });
    (first + rest.sum::<usize>()).saturating_sub(text.matches("$$").count())
}

fn working_dir(container: &Container) -> Option<&str> {
    container.working_dir.as_deref().filter(|directory| directory.starts_with('/'))
}

/// Why the directory in which a container starts is not there. A new folder of a pod has none in it.
fn missing_directory(container: &Container, workspace: Workspace) -> Option<String> {
    let given = container.working_dir.as_deref()?;
    let path = Path::new(given);
    let is_inside = path.components().any(|part| matches!(part, Component::Normal(_)));
    if path.is_absolute() || workspace == Workspace::OfHost {
        return (!given.is_empty() && !path.is_dir())
            .then(|| format!("there is no directory {given} on this machine"));
    }
    is_inside.then(|| format!("there is no directory {given} in the new folder of a pod"))
}

/// `PATH` of a container; `None` if its value is not known yet. An `envFrom` that has one is not expected.
fn path_variable(container: &Container) -> Option<Variables> {
    let given = container.env.iter().rev().find(|variable| variable.name == "PATH");
    let path = match given {
        Some(core::EnvVar { value: Some(value), .. }) if !value.contains("$(") => value.clone(),
        Some(_) => return None,
        None => std::env::var("PATH").unwrap_or_default(),
    };
    Some(Variables::from([("PATH".to_owned(), path)]))
}

const CONFIG_MAP: &str = "ConfigMap";
const CLAIM: &str = "PersistentVolumeClaim";
const ACCOUNT: &str = "ServiceAccount";
const CLASS: &str = "PriorityClass";
const SECRET: &str = "Secret";
/// Why a file of a projected volume is not given.
const NOT_ISSUED: &str = "nobody issues it here, so the file would be missing: leave it out";

/// The objects without which a pod waits.
fn objects(spec: &PodSpec) -> Vec<Finding> {
    let volumes = spec.volumes.iter().enumerate();
    let of_volumes = volumes.flat_map(|(index, volume)| of_volume(&format!("volumes[{index}]"), volume));
    let account = spec.service_account_name.as_deref().filter(|name| !matches!(*name, "" | "default"));
    let account =
        account.map(|name| ("serviceAccountName".to_owned(), Obstacle::Object(ACCOUNT, name.to_owned())));
    let class = spec.priority_class_name.as_deref().filter(|name| !name.is_empty() && !is_system_class(name));
    let class = class.map(|name| ("priorityClassName".to_owned(), Obstacle::Object(CLASS, name.to_owned())));
    of_volumes
        .chain(account)
        .chain(class)
        .chain(spec.slots().flat_map(|slot| of_container(&slot.field(), spec.container(slot))))
        .collect()
}

fn of_volume(field: &str, volume: &Volume) -> Vec<Finding> {
    let map = volume.config_map.as_ref();
    let map = map.and_then(|map| needs(field, "configMap.name", CONFIG_MAP, &map.name, map.optional));
    let secret = volume.secret.as_ref().and_then(|secret| {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        needs(field, "secret.secretName", SECRET, name, secret.optional)
    });
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = sources.enumerate().flat_map(|(index, source)| {
        let field = format!("{field}.projected.sources[{index}]");
        let (map, secret) = (source.config_map.as_ref(), source.secret.as_ref());
        let issued = not_issued(source)
            .map(|kind| (format!("{field}.{kind}"), Obstacle::Unsupported(NOT_ISSUED.into())));
        let map = map.and_then(|map| needs(&field, "configMap.name", CONFIG_MAP, &map.name, map.optional));
        let secret =
            secret.and_then(|secret| needs(&field, "secret.name", SECRET, &secret.name, secret.optional));
        map.into_iter().chain(secret).chain(issued)
    });
    let claim = volume.persistent_volume_claim.as_ref();
    let claim = claim
        .and_then(|claim| needs(field, "persistentVolumeClaim.claimName", CLAIM, &claim.claim_name, None));
    map.into_iter().chain(secret).chain(projected).chain(claim).collect()
}

/// The sources of a projected volume whose issuer is not there.
fn not_issued(source: &core::VolumeProjection) -> Option<&'static str> {
    match source {
        core::VolumeProjection { cluster_trust_bundle: Some(bundle), .. }
            if bundle.optional != Some(true) =>
        {
            Some("clusterTrustBundle")
        }
        core::VolumeProjection { pod_certificate: Some(_), .. } => Some("podCertificate"),
        _ => None,
    }
}

fn of_container(field: &str, container: &Container) -> Vec<Finding> {
    let whole = container.env_from.iter().enumerate().flat_map(|(index, source)| {
        let field = format!("{field}.envFrom[{index}]");
        let (map, secret) = (source.config_map_ref.as_ref(), source.secret_ref.as_ref());
        let map = map.and_then(|map| needs(&field, "configMapRef.name", CONFIG_MAP, &map.name, map.optional));
        let secret =
            secret.and_then(|secret| needs(&field, "secretRef.name", SECRET, &secret.name, secret.optional));
        map.into_iter().chain(secret)
    });
    let sources = container.env.iter().map(|variable| variable.value_from.as_ref()).enumerate();
    let keys = sources.filter_map(|(index, source)| {
        let (field, source) = (format!("{field}.env[{index}].valueFrom"), source?);
        let (map, secret) = (source.config_map_key_ref.as_ref(), source.secret_key_ref.as_ref());
        let map =
            map.and_then(|map| needs(&field, "configMapKeyRef.name", CONFIG_MAP, &map.name, map.optional));
        map.or_else(|| {
            let secret = secret?;
            needs(&field, "secretKeyRef.name", SECRET, &secret.name, secret.optional)
        })
    });
    whole.chain(keys).collect()
}

fn needs(
    field: &str,
    below: &str,
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
) -> Option<Finding> {
    let is_there = kind == CONFIG_MAP && name == ROOT_CERTIFICATES;
    let is_needed = !optional.unwrap_or(false) && !name.is_empty() && !is_there;
    is_needed.then(|| (format!("{field}.{below}"), Obstacle::Object(kind, name.to_owned())))
}

/// Requests that no moment of this machine can meet. Main containers and sidecars run together, other init
/// containers alone.
fn resources(spec: &PodSpec) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut together: BTreeMap<&str, f64> = BTreeMap::new();
    let whole = spec.resources.iter().map(|resources| ("resources".to_owned(), resources, false));
    let containers = spec.slots().map(|slot| {
        let joins = matches!(slot, Slot::Main(_)) || spec.is_sidecar(slot);
        (format!("{}.resources", slot.field()), &spec.container(slot).resources, joins)
    });
    for (field, resources, joins) in whole.chain(containers) {
        for (list, name, amount) in asked(resources) {
            // An init container runs beside the sidecars before it.
            let beside = together.entry(name).or_default();
            let sum = *beside + amount;
            if joins {
                *beside = sum;
            }
            let Some(there) = capacity(name) else { continue };
            if sum > there {
                let shown = |amount: f64| if name == "memory" { bytes(amount) } else { format!("{amount}") };
                let there = (there > 0.0).then(|| shown(there));
                let obstacle = Obstacle::Resource { name: name.to_owned(), asked: shown(sum), there };
                found.push((format!("{field}.{list}[{name}]"), obstacle));
            }
        }
    }
    found
}

/// A demand of a container: the list with the amount, the resource, and the amount. As in Kubernetes, a limit
/// counts where there is no request.
fn asked(resources: &core::ResourceRequirements) -> Vec<(&'static str, &str, f64)> {
    let mut asked: Vec<(&'static str, &str, f64)> = Vec::new();
    for (list, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, Quantity(amount)) in amounts.iter().flatten() {
            if asked.iter().all(|(_, known, _)| known != name) {
                asked.push((list, name.as_str(), quantity::parse(amount).unwrap_or_default()));
            }
        }
    }
    asked
}

/// How much of a resource this machine has; `None` if that is not measured.
fn capacity(resource: &str) -> Option<f64> {
    match resource {
        "cpu" | "memory" => quantity::parse(&node::allocatable(resource)?),
        "ephemeral-storage" => quantity::parse(&node::storage(&std::env::temp_dir())?),
        // Other devices, and huge pages, are none.
        _ => {
            Some(node::allocatable(resource).and_then(|amount| quantity::parse(&amount)).unwrap_or_default())
        }
    }
}

fn bytes(amount: f64) -> String {
    format!("{:.1}Gi", amount / f64::from(1 << 30))
}

#[cfg(test)]
mod tests;
