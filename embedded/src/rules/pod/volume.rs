//! Volumes of a pod.

use std::collections::HashSet;

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::{environment, list, security, text};

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// The maximum lifetime of a token plus one, in seconds.
const TOKEN_SECONDS_BEYOND: i64 = (1 << 32) + 1;

/// The required field of each kind of source.
const REQUIRED: [(&str, &str); 7] = [
    ("configMap", "name"),
    ("secret", "secretName"),
    ("persistentVolumeClaim", "claimName"),
    ("hostPath", "path"),
    ("nfs", "server"),
    ("nfs", "path"),
    ("csi", "driver"),
];

/// Checks the volumes of a pod. Returns the names of the valid ones.
pub(super) fn validate_all<'v>(
    causes: &mut Causes,
    path: &Path<'_>,
    volumes: &'v [Value],
) -> HashSet<&'v str> {
    let mut known = HashSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let before = causes.len();
        validate_source(causes, &path, volume);
        let name = text(&volume["name"]);
        let name_path = path.child("name");
        if name.is_empty() {
            causes.required(&name_path, "");
        } else {
            causes.invalid_each(&name_path, name, names::dns_label(name));
        }
        if known.contains(name) {
            causes.duplicate_str(&name_path, name);
        }
        if causes.len() == before {
            known.insert(name);
        }
    }
    known
}

fn validate_source(causes: &mut Causes, path: &Path<'_>, volume: &Value) {
    let fields = volume.as_object().into_iter().flatten();
    let mut sources =
        fields.filter(|(field, value)| *field != "name" && !value.is_null()).map(|(field, _)| field);
    if sources.next().is_none() {
        causes.required(path, "must specify a volume type");
    }
    for extra in sources {
        causes.forbidden(&path.child(extra), "may not specify more than 1 volume type");
    }
    for (kind, field) in REQUIRED {
        if !volume[kind].is_null() && text(&volume[kind][field]).is_empty() {
            causes.required(&path.child(kind).child(field), "");
        }
    }
    for kind in ["configMap", "secret", "projected", "downwardAPI"] {
        let source_path = path.child(kind);
        file_mode(causes, &source_path.child("defaultMode"), &volume[kind]["defaultMode"]);
        match kind {
            "projected" => projections(causes, &source_path, list(&volume[kind]["sources"])),
            "downwardAPI" => downward_files(causes, &source_path, &volume[kind]["items"]),
            _ => key_paths(causes, &source_path.child("items"), &volume[kind]["items"]),
        }
    }
    let (host, host_path) = (&volume["hostPath"], path.child("hostPath"));
    if !text(&host["path"]).is_empty() {
        no_backsteps(causes, &host_path.child("path"), text(&host["path"]));
        security::one_of(causes, &host_path, host, "type", &HOST_PATH_TYPES);
    }
    if !volume["nfs"].is_null() && !text(&volume["nfs"]["path"]).starts_with('/') {
        let detail = "must be an absolute path";
        causes.invalid_str(&path.child("nfs").child("path"), text(&volume["nfs"]["path"]), detail);
    }
    if text(&volume["emptyDir"]["sizeLimit"]).starts_with('-') {
        let detail = "SizeLimit field must be a valid resource quantity";
        causes.forbidden(&path.child("emptyDir").child("sizeLimit"), detail);
    }
}

fn file_mode(causes: &mut Causes, path: &Path<'_>, mode: &Value) {
    if mode.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        causes.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// Checks the sources of a projected volume, whose files must have different paths.
fn projections(causes: &mut Causes, path: &Path<'_>, sources: &[Value]) {
    let mut taken = HashSet::new();
    let all_sources = path.child("sources");
    for (index, source) in sources.iter().enumerate() {
        let source_path = all_sources.index(index);
        for kind in ["secret", "configMap", "downwardAPI"] {
            let (source, path_of_kind) = (&source[kind], source_path.child(kind));
            if source.is_null() {
                continue;
            }
            if kind == "downwardAPI" {
                downward_files(causes, &path_of_kind, &source["items"]);
            } else {
                if text(&source["name"]).is_empty() {
                    causes.required(&path_of_kind.child("name"), "");
                }
                key_paths(causes, &path_of_kind.child("items"), &source["items"]);
            }
            for given in list(&source["items"]).iter().map(|item| text(&item["path"])) {
                if !given.is_empty() && !taken.insert(given) {
                    let shown = if kind == "downwardAPI" { given } else { text(&source["name"]) };
                    causes.invalid_str(path, shown, "conflicting duplicate paths");
                }
            }
        }
        let token = &source["serviceAccountToken"];
        if !token.is_null() {
            let path = source_path.child("serviceAccountToken");
            let (path, seconds) = (path.child("expirationSeconds"), &token["expirationSeconds"]);
            match seconds.as_i64().unwrap_or_default() {
                ..600 => causes.invalid(&path, seconds, "may not specify a duration less than 10 minutes"),
                TOKEN_SECONDS_BEYOND.. => {
                    causes.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
                }
                _ => {}
            }
        }
        if !token.is_null() {
            file_path(causes, &path.child("path"), text(&token["path"]));
        }
        let bundle = &source["clusterTrustBundle"];
        if !bundle.is_null() {
            file_path(causes, &source_path.child("clusterTrustBundle").child("path"), text(&bundle["path"]));
        }
        let certificate = source_path.child("podCertificate");
        for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
            match text(&source["podCertificate"][field]) {
                "" => {}
                given => local_path(causes, &certificate.child(field), given),
            }
        }
    }
}

/// Checks the files of a downwardAPI volume. As in Kubernetes, the path of a cause does not name the item.
fn downward_files(causes: &mut Causes, path: &Path<'_>, items: &Value) {
    for item in list(items) {
        file_path(causes, &path.child("path"), text(&item["path"]));
        let [field, resource] = ["fieldRef", "resourceFieldRef"].map(|kind| &item[kind]);
        environment::file_source(causes, path, field, resource);
        file_mode(causes, &path.child("mode"), &item["mode"]);
    }
}

/// A path that must be given.
fn file_path(causes: &mut Causes, path: &Path<'_>, given: &str) {
    if given.is_empty() {
        causes.required(path, "");
    }
    local_path(causes, path, given);
}

fn key_paths(causes: &mut Causes, path: &Path<'_>, items: &Value) {
    for (index, item) in list(items).iter().enumerate() {
        let path = path.index(index);
        if text(&item["key"]).is_empty() {
            causes.required(&path.child("key"), "");
        }
        file_path(causes, &path.child("path"), text(&item["path"]));
        file_mode(causes, &path.child("mode"), &item["mode"]);
    }
}

/// Refuses paths that leave their directory, and names that volumes reserve.
fn local_path(causes: &mut Causes, path: &Path<'_>, given: &str) {
    relative_path(causes, path, given);
    if given.starts_with("..") && !given.starts_with("../") {
        causes.invalid_str(path, given, "must not start with '..'");
    }
}

/// Refuses absolute paths and paths that leave their directory.
pub(super) fn relative_path(causes: &mut Causes, path: &Path<'_>, given: &str) {
    if given.starts_with('/') {
        causes.invalid_str(path, given, "must be a relative path");
    }
    no_backsteps(causes, path, given);
}

pub(super) fn no_backsteps(causes: &mut Causes, path: &Path<'_>, given: &str) {
    if given.split('/').any(|part| part == "..") {
        causes.invalid_str(path, given, "must not contain '..'");
    }
}
