//! The fields of a pod that this host can never give it, as its spec alone says. The decision comes before anything of the
//! pod starts: a process would otherwise find the host's own file where it expects one of its pod.

use std::collections::HashSet;
use std::path::{Component, Path};

use super::mounting::{self, Mounting, is_found};
use super::pod::{Container, PodSpec, SecurityContext, Slot, VolumeMount};
use super::volumes;

/// Reason of a pod whose volume cannot be given.
pub(super) const FAILED_MOUNT: &str = "FailedMount";
/// Reason of a container that is given in a way that this kubelet cannot follow.
pub(super) const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// Reason of a container without a program.
pub(super) const CREATE_ERROR: &str = "CreateContainerError";
/// The action of a rule that restarts the whole pod.
const RESTART_ALL: &str = "RestartAllContainers";
/// Fields that name the user of a container.
const RUN_AS_USER: &str = "runAsUser";
const RUN_AS_NON_ROOT: &str = "runAsNonRoot";

/// A field of a pod that this kubelet cannot follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The field below `spec`, such as `containers[0].command`.
    pub(super) field: String,
    /// Machine-readable reason, such as `FailedMount`.
    pub(super) reason: &'static str,
    /// The problem, and what to write in its place.
    pub(super) message: String,
}

/// The refusals of a pod whatever runs its containers: its volumes, in their order, and rules of its containers.
pub(super) fn of_containers(spec: &PodSpec) -> Vec<Refusal> {
    let refusal = |(index, volume)| {
        let (kind, message) = volumes::unsupported(volume)?;
        Some(Refusal { field: format!("volumes[{index}].{kind}"), reason: FAILED_MOUNT, message })
    };
    let rules = spec.slots().flat_map(|slot| {
        let rules = spec.container(slot).restart_policy_rules.iter().enumerate();
        rules.filter(|(_, rule)| rule.action == RESTART_ALL).map(move |(index, _)| Refusal {
            field: format!("{}.restartPolicyRules[{index}].action", slot.field()),
            reason: CONFIG_ERROR,
            message: format!(
                "the local kubelet restarts no containers together: {RESTART_ALL} is not supported"
            ),
        })
    });
    spec.volumes.iter().enumerate().filter_map(refusal).chain(rules).collect()
}

/// All refusals of a pod whose containers are processes, in the order of its fields, one for each field.
pub(super) fn of_processes(spec: &PodSpec, mounting: &Mounting) -> Vec<Refusal> {
    let mut refusals = of_containers(spec);
    refusals.extend(image_volumes(spec));
    for slot in spec.slots() {
        let container = spec.container(slot);
        let refuse = |field: &str, reason, message| {
            let field = format!("{}.{field}", slot.field());
            Refusal { field, reason, message }
        };
        refusals.extend(command(container).err().map(|message| refuse("command", CREATE_ERROR, message)));
        let own = &container.security_context;
        refusals.extend(user(own, &spec.security_context).map(|(field, message)| {
            let context = if own.names(field) { format!("{}.", slot.field()) } else { String::new() };
            Refusal { field: format!("{context}securityContext.{field}"), reason: CONFIG_ERROR, message }
        }));
        let outside = starts_outside(spec, container, mounting);
        refusals.extend(outside.map(|message| refuse("workingDir", CONFIG_ERROR, message)));
        for (index, mount) in container.volume_mounts.iter().enumerate() {
            let field = format!("volumeMounts[{index}].mountPath");
            let message = match mounting {
                Mounting::AtPaths => mounting::unmountable(mount),
                Mounting::ByVariable { why } => not_mounted(spec, container, mount, why),
            };
            refusals.extend(message.map(|message| refuse(&field, FAILED_MOUNT, message)));
        }
    }
    let mut fields = HashSet::new();
    refusals.retain(|refusal| fields.insert(refusal.field.clone()));
    refusals
}

/// The volumes of a pod that are images.
fn image_volumes(spec: &PodSpec) -> impl Iterator<Item = Refusal> {
    let images = spec.volumes.iter().enumerate().filter(|(_, volume)| volume.image.is_some());
    images.map(|(index, volume)| Refusal {
        field: format!("volumes[{index}].image"),
        reason: FAILED_MOUNT,
        message: format!(
            "volume {:?}: images are not pulled here, so there is none to mount: start Docker or Podman",
            volume.name
        ),
    })
}

/// The program and its first arguments.
///
/// # Errors
///
/// A text that says why there is none.
pub(super) fn command(container: &Container) -> Result<(&String, &[String]), String> {
    container.command.split_first().ok_or_else(|| {
        format!(
            "container {:?} has no command: images are not pulled here, so the image's entrypoint is unknown; start \
             Docker or Podman, or write the program into command",
            container.name
        )
    })
}

/// Why a container cannot have its user, and the field that says which: processes can only run as that of this process.
fn user(container: &SecurityContext, pod: &SecurityContext) -> Option<(&'static str, String)> {
    let ours = rustix::process::geteuid().as_raw();
    let non_root = container.run_as_non_root.or(pod.run_as_non_root).unwrap_or(false);
    match container.run_as_user.or(pod.run_as_user) {
        Some(user) if user != i64::from(ours) => {
            let text =
                format!("the local kubelet runs containers as its own user, {ours}, only, not as {user}");
            Some((RUN_AS_USER, text))
        }
        _ if non_root && ours == 0 => {
            let text = "container has runAsNonRoot and the local kubelet runs as root";
            Some((RUN_AS_NON_ROOT, text.to_owned()))
        }
        _ => None,
    }
}

/// Why a container would start in a folder of this host that its pod does not name: it would write there.
fn starts_outside(spec: &PodSpec, container: &Container, mounting: &Mounting) -> Option<String> {
    let given = container.working_dir.as_deref().filter(|given| !given.is_empty())?;
    let path = Path::new(given);
    if path.is_relative() && path.components().any(|part| part == Component::ParentDir) {
        return Some(format!(
            "{given} may leave the pod's own folder: write it without `..`, or as a path of this machine"
        ));
    }
    if *mounting == Mounting::AtPaths {
        return None;
    }
    let within = |mount: &&VolumeMount| path.starts_with(&mount.mount_path);
    let VolumeMount { name, .. } =
        container.volume_mounts.iter().filter(within).find(|mount| !is_found(spec, mount))?;
    Some(format!(
        "{given} is the host's own, not that of volume {name:?}: leave workingDir out, and begin with `cd ${}`",
        volumes::variable(name)
    ))
}

/// Why a container would not find its volume. It finds the volume by the variable with its path. It also finds
/// a path of this host that has the same name in the container. The token of its account is no
/// reason: every pod has it, and few use it.
fn not_mounted(spec: &PodSpec, container: &Container, mount: &VolumeMount, why: &str) -> Option<String> {
    let variable = volumes::variable(&mount.name);
    let is_access = spec.volume(mount).is_some_and(|volume| volume.is_access);
    if is_access || is_found(spec, mount) || uses(container, &variable) {
        return None;
    }
    let VolumeMount { name, mount_path, .. } = mount;
    Some(format!(
        "volume {name:?} cannot be mounted at {mount_path} ({why}): processes see the host's own {mount_path}; \
         use the folder in ${variable}, such as with an env of the value $({variable})"
    ))
}

/// Whether a container's command, arguments or environment name a variable.
fn uses(container: &Container, variable: &str) -> bool {
    let values = container.env.iter().filter_map(|variable| variable.value.as_ref());
    container.command.iter().chain(&container.args).chain(values).any(|text| names(text, variable))
}

fn names(text: &str, variable: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices(variable)
        .any(|(at, found)| !text[..at].ends_with(is_part) && !text[at + found.len()..].starts_with(is_part))
}

impl SecurityContext {
    /// Whether it has this field.
    fn names(&self, field: &str) -> bool {
        match field {
            RUN_AS_USER => self.run_as_user.is_some(),
            _ => self.run_as_non_root.is_some(),
        }
    }
}

impl Slot {
    /// The field of the container below `spec`.
    pub(super) fn field(self) -> String {
        match self {
            Self::Init(index) => format!("initContainers[{index}]"),
            Self::Main(index) => format!("containers[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::super::service_account;
    use super::*;

    fn fields(spec: Value) -> Vec<String> {
        let without_mounts = Mounting::ByVariable { why: "a test".into() };
        let refusals = of_processes(&serde_json::from_value(spec).unwrap(), &without_mounts).into_iter();
        refusals.map(|refusal| refusal.field).collect()
    }

    #[test]
    fn a_volume_can_be_mounted_where_processes_do_not_need_the_hosts_own() {
        let spec = |path: &str, directory: &str| {
            let mount = json!({"name": "v", "mountPath": path});
            let container =
                json!({"name": "c", "command": ["ls"], "workingDir": directory, "volumeMounts": [mount]});
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [container]})
        };
        let refused = |path: &str, directory: &str| {
            let spec = serde_json::from_value(spec(path, directory)).unwrap();
            let refusals = of_processes(&spec, &Mounting::AtPaths).into_iter();
            refusals.map(|refusal| refusal.field).collect::<Vec<_>>()
        };
        for path in ["/data", "data", "/etc", "/processes", "/var/lib/a"] {
            assert_eq!(refused(path, "/data/below"), [""; 0], "{path}");
        }
        for path in ["/", "/proc", "/proc/self", "/a/../proc", "/a/.."] {
            assert_eq!(refused(path, ""), ["containers[0].volumeMounts[0].mountPath"], "{path}");
        }
        assert_eq!(refused("/data", "../other"), ["containers[0].workingDir"]);
    }

    /// The refusals of a container with this command that mounts a volume.
    fn mounts(volume: Value, mount: Value, command: &str) -> Vec<String> {
        let (mut volume, mut mount) = (volume, mount);
        volume["name"] = json!("work-dir");
        mount["name"] = json!("work-dir");
        fields(json!({
            "volumes": [volume],
            "containers": [{"name": "c", "command": ["sh", "-c", command], "volumeMounts": [mount]}],
        }))
    }

    #[test]
    fn a_container_finds_a_volume_by_its_variable_or_where_the_host_has_it() {
        let at = |path: &str| json!({"mountPath": path});
        let host = || json!({"hostPath": {"path": "/data"}});
        let refused = ["containers[0].volumeMounts[0].mountPath"];
        assert_eq!(mounts(json!({"emptyDir": {}}), at("/volume"), "ls /volume"), refused);
        assert_eq!(mounts(json!({"emptyDir": {}}), at("/volume"), "ls $YARDMASTER_VOLUME_WORK_DIR"), [""; 0]);
        for other in ["$YARDMASTER_VOLUME_WORK_DIR_2", "$MY_YARDMASTER_VOLUME_WORK_DIR"] {
            assert_eq!(mounts(json!({"emptyDir": {}}), at("/volume"), &format!("ls {other}")), refused);
        }
        assert_eq!(mounts(json!({"emptyDir": {}}), at(service_account::PATH), "ls"), refused);
        assert_eq!(mounts(host(), at("/data/"), "ls"), [""; 0]);
        assert_eq!(mounts(host(), at("/other"), "ls"), refused);
        assert_eq!(mounts(host(), json!({"mountPath": "/data", "subPath": "a"}), "ls"), refused);
        assert_eq!(mounts(host(), json!({"mountPath": "/data/a", "subPath": "a"}), "ls"), [""; 0]);
        let by_expression = json!({"mountPath": "/data", "subPathExpr": "$(A)"});
        assert_eq!(mounts(host(), by_expression, "ls"), refused);
    }

    #[test]
    fn the_token_that_every_pod_has_needs_no_mount() {
        let spec = json!({"containers": [{"name": "c", "command": ["true"]}]});
        let mut spec: PodSpec = serde_json::from_value(spec).unwrap();
        service_account::mount(&mut spec, service_account::PROCESS_MODE);
        assert_eq!(of_processes(&spec, &Mounting::ByVariable { why: "a test".into() }), []);
    }

    #[test]
    fn everything_that_can_never_start_is_named() {
        let other = i64::from(rustix::process::geteuid().as_raw()) + 1;
        let found = fields(json!({
            "securityContext": {"runAsUser": other},
            "volumes": [{"name": "a", "nfs": {"server": "s", "path": "/"}}, {"name": "b", "emptyDir": {}}],
            "initContainers": [{"name": "i", "image": "busybox"}],
            "containers": [{
                "name": "c", "command": ["true"],
                "env": [{"name": "B", "value": "$(YARDMASTER_VOLUME_B)"}],
                "volumeMounts": [{"name": "b", "mountPath": "/b"}],
            }],
        }));
        assert_eq!(found, ["volumes[0].nfs", "initContainers[0].command", "securityContext.runAsUser"]);
        let own = json!({"name": "c", "command": ["true"], "securityContext": {"runAsUser": other}});
        let found = fields(json!({"containers": [own]}));
        assert_eq!(found, ["containers[0].securityContext.runAsUser"]);
    }

    #[test]
    fn only_an_engine_has_the_images_of_volumes() {
        let spec = json!({
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "i", "image": {"reference": "a"}}],
            "containers": [{"name": "c", "command": ["true"]}],
        });
        assert_eq!(fields(spec.clone()), ["volumes[1].image"]);
        assert_eq!(of_containers(&serde_json::from_value(spec).unwrap()), []);
    }

    #[test]
    fn containers_are_not_restarted_together() {
        let rules = |action: &str| {
            let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [1]}});
            let container = json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule]});
            let spec = serde_json::from_value(json!({"containers": [container]})).unwrap();
            of_containers(&spec).into_iter().map(|refusal| refusal.field).collect::<Vec<_>>()
        };
        assert_eq!(rules("RestartAllContainers"), ["containers[0].restartPolicyRules[0].action"]);
        assert_eq!(rules("Restart"), [""; 0]);
    }

    #[test]
    fn a_container_starts_in_no_folder_of_the_host_that_its_pod_does_not_name() {
        let starts = |directory: &str, volume: Value| {
            fields(json!({
                "volumes": [{"name": "v", "emptyDir": {}}, volume],
                "containers": [{
                    "name": "c", "command": ["ls", "$(YARDMASTER_VOLUME_V)"], "workingDir": directory,
                    "volumeMounts": [{"name": "v", "mountPath": "/volume"}, {"name": "h", "mountPath": "/data"}],
                }],
            }))
        };
        let host = || json!({"name": "h", "hostPath": {"path": "/data"}});
        for (directory, is_refused) in [
            ("", false),
            ("below", false),
            ("./below", false),
            ("..", true),
            ("below/../../..", true),
            ("/data", false),
            ("/data/below", false),
            ("/volumes", false),
            ("/volume", true),
            ("/volume/", true),
            ("/volume/below", true),
            ("/volume/../etc", true),
        ] {
            let refused: &[&str] = if is_refused { &["containers[0].workingDir"] } else { &[] };
            assert_eq!(starts(directory, host()), refused, "{directory}");
        }
    }
}
