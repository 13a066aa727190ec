//! Security settings of pods and containers.

use std::collections::HashSet;

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::go_value;
use super::{list, text, volume};

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const PROC_MOUNTS: [&str; 2] = ["Default", "Unmasked"];
const FS_GROUP_POLICIES: [&str; 2] = ["Always", "OnRootMismatch"];
const GROUPS_POLICIES: [&str; 2] = ["Merge", "Strict"];
const SELINUX_POLICIES: [&str; 2] = ["MountOption", "Recursive"];
const APP_ARMOR_PATH_MAX: usize = 4095;
const SYSCTL_MAX: usize = 253;
const SYSCTL_PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// Checks the security context of a pod.
pub(super) fn pod(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let context = &spec["securityContext"];
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        user_id(causes, &path.child(field), &context[field]);
    }
    for (index, group) in list(&context["supplementalGroups"]).iter().enumerate() {
        user_id(causes, &path.child("supplementalGroups").index(index), group);
    }
    if spec["hostPID"] == true && spec["shareProcessNamespace"] == true {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        causes.invalid(&path.child("shareProcessNamespace"), &spec["shareProcessNamespace"], detail);
    }
    sysctls(causes, &path.child("sysctls"), spec);
    one_of(causes, path, context, "fsGroupChangePolicy", &FS_GROUP_POLICIES);
    seccomp(causes, &path.child("seccompProfile"), &context["seccompProfile"]);
    app_armor(causes, &path.child("appArmorProfile"), &context["appArmorProfile"]);
    one_of(causes, path, context, "supplementalGroupsPolicy", &GROUPS_POLICIES);
    one_of(causes, path, context, "seLinuxChangePolicy", &SELINUX_POLICIES);
}

/// Checks the security context of a container.
pub(super) fn container(causes: &mut Causes, path: &Path<'_>, context: &Value) {
    for field in ["runAsUser", "runAsGroup"] {
        user_id(causes, &path.child(field), &context[field]);
    }
    one_of(causes, path, context, "procMount", &PROC_MOUNTS);
    seccomp(causes, &path.child("seccompProfile"), &context["seccompProfile"]);
    if context["allowPrivilegeEscalation"] == false {
        let mut refuse = |with: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {with}");
            causes.invalid_of(path, "core.SecurityContext", context, &detail);
        };
        if context["privileged"] == true {
            refuse("`privileged` to true");
        }
        for _ in list(&context["capabilities"]["add"]).iter().filter(|name| *name == "CAP_SYS_ADMIN") {
            refuse("`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    app_armor(causes, &path.child("appArmorProfile"), &context["appArmorProfile"]);
}

/// User and group ids: 0 to 2^31 - 1.
fn user_id(causes: &mut Causes, path: &Path<'_>, id: &Value) {
    if id.as_i64().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
        causes.invalid(path, id, "must be between 0 and 2147483647, inclusive");
    }
}

/// Refuses a given value that is not among the supported ones.
pub(super) fn one_of(causes: &mut Causes, path: &Path<'_>, object: &Value, field: &str, supported: &[&str]) {
    if object[field].as_str().is_some_and(|given| !supported.contains(&given)) {
        causes.not_supported(&path.child(field), &object[field], supported);
    }
}

fn profile_type(causes: &mut Causes, path: &Path<'_>, profile: &Value, name: &str) {
    match text(&profile["type"]) {
        "" => causes.required(&path.child("type"), &format!("type is required when {name} is set")),
        _ => one_of(causes, path, profile, "type", &PROFILE_TYPES),
    }
}

fn seccomp(causes: &mut Causes, path: &Path<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    profile_type(causes, path, profile, "seccompProfile");
    let local = &profile["localhostProfile"];
    let path = path.child("localhostProfile");
    match (profile["type"] == "Localhost", local.as_str()) {
        (true, None) => causes.required(&path, "must be set when seccomp type is Localhost"),
        (true, Some(given)) => volume::relative_path(causes, &path, given),
        (false, None) => {}
        (false, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            causes.invalid_of(&path, "core.SeccompProfile", profile, detail);
        }
    }
}

fn app_armor(causes: &mut Causes, path: &Path<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let local_path = path.child("localhostProfile");
    let required = "must be set when AppArmor type is Localhost";
    match (text(&profile["type"]), profile["localhostProfile"].as_str()) {
        ("Localhost", None) => causes.required(&local_path, required),
        ("Localhost", Some(given)) => {
            if given.trim() != given {
                causes.invalid_str(&local_path, given, "must not be padded with whitespace");
            } else if given.is_empty() {
                causes.required(&local_path, required);
            }
            if given.len() > APP_ARMOR_PATH_MAX {
                causes.too_long(&local_path, APP_ARMOR_PATH_MAX);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(given)) => {
            let shown = go_value::json(&given.into());
            causes.invalid_shown(&local_path, &shown, "can only be set when AppArmor type is Localhost");
        }
        _ => profile_type(causes, path, profile, "appArmorProfile"),
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: u8| edge(Some(b)) || matches!(b, b'-' | b'_');
    name.len() <= SYSCTL_MAX
        && name
            .split(['.', '/'])
            .all(|part| edge(part.bytes().next()) && edge(part.bytes().last()) && part.bytes().all(inner))
}

fn sysctls(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let mut known = HashSet::new();
    for (index, sysctl) in list(&spec["securityContext"]["sysctls"]).iter().enumerate() {
        let (path, name) = (path.index(index), text(&sysctl["name"]));
        let path = path.child("name");
        if name.is_empty() {
            causes.required(&path, "");
        } else if !is_sysctl(name) {
            let detail =
                format!("must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_PATTERN}");
            causes.invalid_str(&path, name, &detail);
        } else if known.contains(name) {
            causes.duplicate_str(&path, name);
        }
        known.insert(name);
        let of_host = |field: &str, heads: &[&str]| {
            spec[field] == true && heads.iter().any(|head| name.starts_with(head))
        };
        if of_host("hostNetwork", &["net."]) {
            causes.invalid_str(&path, name, "may not be specified when 'hostNetwork' is true");
        } else if of_host("hostIPC", &["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."]) {
            causes.invalid_str(&path, name, "may not be specified when 'hostIPC' is true");
        }
    }
}
