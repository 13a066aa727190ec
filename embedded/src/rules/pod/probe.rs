//! Probes and lifecycle handlers of a container.

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::{list, text};

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];

/// Checks lifecycle and probes of a main container or sidecar, whose pod has this grace period, in seconds.
pub(super) fn validate_all(causes: &mut Causes, path: &Path<'_>, container: &Value, grace: Option<i64>) {
    let lifecycle_path = path.child("lifecycle");
    for moment in ["postStart", "preStop"] {
        let handler = &container["lifecycle"][moment];
        if !handler.is_null() {
            let path = lifecycle_path.child(moment);
            if validate_handler(causes, &path, handler) == Some("sleep") {
                sleep(causes, &path.child("sleep"), &handler["sleep"], grace);
            }
        }
    }
    for kind in PROBES {
        let probe = &container[kind];
        if !probe.is_null() {
            validate_probe(causes, &path.child(kind), kind, probe);
        }
    }
}

/// Refuses lifecycle and probes for an init container that ends before other containers start.
pub(super) fn forbid_all(causes: &mut Causes, path: &Path<'_>, container: &Value) {
    for field in ["lifecycle"].iter().chain(&PROBES) {
        if !container[*field].is_null() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            causes.forbidden(&path.child(field), detail);
        }
    }
}

fn validate_probe(causes: &mut Causes, path: &Path<'_>, kind: &str, probe: &Value) {
    validate_handler(causes, path, probe);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        causes.non_negative(&path.child(field), &probe[field]);
    }
    let grace = &probe["terminationGracePeriodSeconds"];
    if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.invalid(&path.child("terminationGracePeriodSeconds"), grace, "must be greater than 0");
    }
    if kind == "readinessProbe" {
        if !grace.is_null() {
            let detail = "must not be set for readinessProbes";
            causes.invalid(&path.child("terminationGracePeriodSeconds"), grace, detail);
        }
    } else if probe["successThreshold"] != 1 {
        causes.invalid(&path.child("successThreshold"), &probe["successThreshold"], "must be 1");
    }
}

/// The rules of one kind of handler.
type HandlerRule = fn(&mut Causes, &Path<'_>, &Value);

/// Checks that there is exactly one kind of handler, and returns it. Further ones are reported but not
/// validated.
fn validate_handler(causes: &mut Causes, path: &Path<'_>, handler: &Value) -> Option<&'static str> {
    let rules: [(&str, HandlerRule); 5] = [
        ("exec", exec),
        ("httpGet", http_get),
        ("tcpSocket", tcp_socket),
        ("grpc", grpc),
        ("sleep", |_, _, _| {}),
    ];
    let mut given = rules.into_iter().filter(|(kind, _)| !handler[*kind].is_null());
    let Some((first, rule)) = given.next() else {
        causes.required(path, "must specify a handler type");
        return None;
    };
    rule(causes, &path.child(first), &handler[first]);
    for (extra, _) in given {
        causes.forbidden(&path.child(extra), "may not specify more than 1 handler type");
    }
    Some(first)
}

/// A handler cannot sleep for longer than the pod's grace period.
fn sleep(causes: &mut Causes, path: &Path<'_>, action: &Value, grace: Option<i64>) {
    let seconds = action["seconds"].as_i64().unwrap_or(0);
    if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        causes.invalid(path, &seconds.into(), &detail);
    }
}

fn exec(causes: &mut Causes, path: &Path<'_>, action: &Value) {
    if list(&action["command"]).is_empty() {
        causes.required(&path.child("command"), "");
    }
}

fn http_get(causes: &mut Causes, path: &Path<'_>, action: &Value) {
    if text(&action["path"]).is_empty() {
        causes.required(&path.child("path"), "");
    }
    port(causes, &path.child("port"), &action["port"]);
    if !SCHEMES.contains(&text(&action["scheme"])) {
        causes.not_supported(&path.child("scheme"), &action["scheme"], &SCHEMES);
    }
    for name in list(&action["httpHeaders"]).iter().map(|header| text(&header["name"])) {
        causes.invalid_each(&path.child("httpHeaders"), name, names::header_name(name));
    }
}

fn tcp_socket(causes: &mut Causes, path: &Path<'_>, action: &Value) {
    port(causes, &path.child("port"), &action["port"]);
}

fn grpc(causes: &mut Causes, path: &Path<'_>, action: &Value) {
    port(causes, &path.child("port"), &action["port"]);
}

/// A port by number or by name.
fn port(causes: &mut Causes, path: &Path<'_>, port: &Value) {
    match port {
        Value::String(name) => causes.invalid_each(path, name, names::port_name(name)),
        number => port_number(causes, path, number.as_i64().unwrap_or(0)),
    }
}

/// Port numbers: 1 to 65535.
pub(super) fn port_number(causes: &mut Causes, path: &Path<'_>, number: i64) {
    if !(1..=65535).contains(&number) {
        causes.invalid(path, &number.into(), "must be between 1 and 65535, inclusive");
    }
}
