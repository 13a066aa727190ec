//! Defaults of a pod spec (`SetDefaults_PodSpec` and those of its parts).

use serde_json::{Map, Value, json};

use super::super::metadata::{as_object, default_text, default_to};
use super::super::quantity::Quantity;

/// Mode of files in volumes created from other objects: 0644.
const FILE_MODE: i32 = 0o644;
const GRACE_PERIOD_SECONDS: i64 = 30;
const TOKEN_EXPIRATION_SECONDS: i64 = 60 * 60;

/// Elements of the list at `field`.
fn each<'a>(
    object: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().map(as_object)
}

/// The object at `field`, if there is one.
fn part<'a>(object: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

/// The defaults of a pod spec, in a pod or a template.
pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    each(spec, "volumes").for_each(default_volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, list).for_each(default_container);
    }
    default_text(spec, "restartPolicy", "Always");
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "schedulerName", "default-scheduler");
    default_to(spec, "terminationGracePeriodSeconds", GRACE_PERIOD_SECONDS);
    default_to(spec, "securityContext", json!({}));
    mirror_service_account(spec);
}

/// `serviceAccount` is the deprecated name of `serviceAccountName`; both are shown.
fn mirror_service_account(spec: &mut Map<String, Value>) {
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .filter_map(|field| spec.get(*field)?.as_str())
        .find(|name| !name.is_empty())
        .map(str::to_owned);
    if let Some(name) = name {
        spec.insert("serviceAccountName".into(), name.as_str().into());
        spec.insert("serviceAccount".into(), name.into());
    }
}

/// `podIP` is the legacy form of the first of `podIPs`, and takes precedence if they differ.
pub(super) fn mirror_pod_ip(status: &mut Map<String, Value>) {
    let first = status.get("podIPs").and_then(|ips| ips[0]["ip"].as_str()).unwrap_or_default();
    let own = status.get("podIP").and_then(Value::as_str).unwrap_or_default();
    if own.is_empty() && !first.is_empty() {
        let first = first.to_owned();
        status.insert("podIP".into(), first.into());
    } else if own != first {
        let ips = json!([{ "ip": own }]);
        status.insert("podIPs".into(), ips);
    }
}

/// The defaults that only pods get, not templates (`SetDefaults_Pod`).
pub(super) fn default_pod_only(spec: &mut Map<String, Value>) {
    default_to(spec, "enableServiceLinks", true);
    let host_network = spec.get("hostNetwork").is_some_and(|value| *value == true);
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            default_requests(container);
            if host_network {
                for port in each(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or_default();
                    if port.get("hostPort").is_none_or(|host| host.is_null() || *host == 0) {
                        port.insert("hostPort".into(), number);
                    }
                }
            }
        }
    }
}

/// A limit without a request is also the request.
fn default_requests(container: &mut Map<String, Value>) {
    let Some(resources) = part(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = as_object(resources.entry("requests").or_insert(Value::Null));
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn default_pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

fn default_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull_policy = default_pull_policy(image);
    default_text(container, "imagePullPolicy", pull_policy);
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    round_amounts(container);
    for port in each(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(source) = part(variable, "valueFrom") {
            default_field_ref(source);
            if let Some(file) = part(source, "fileKeyRef") {
                default_to(file, "optional", false);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = part(container, probe) {
            default_probe(probe);
        }
    }
    drop_stop_signal(container);
    if let Some(lifecycle) = part(container, "lifecycle") {
        for handler in ["postStart", "preStop"] {
            if let Some(handler) = part(lifecycle, handler) {
                default_http_get(handler);
            }
        }
    }
}

/// Removes the field of a feature gate that is off (`ContainerStopSignals`), and parents that are then empty.
fn drop_stop_signal(container: &mut Map<String, Value>) {
    if let Some(lifecycle) = part(container, "lifecycle")
        && lifecycle.remove("stopSignal").is_some()
        && lifecycle.is_empty()
    {
        container.remove("lifecycle");
    }
}

/// Requests and limits are whole thousandths: smaller parts are rounded up.
fn round_amounts(container: &mut Map<String, Value>) {
    let Some(resources) = part(container, "resources") else { return };
    for field in ["requests", "limits"] {
        for amount in part(resources, field).into_iter().flat_map(|amounts| amounts.values_mut()) {
            if let Some(exact) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) {
                *amount = exact.in_milli().to_string().into();
            }
        }
    }
}

/// Whether the image has neither tag nor digest, or the tag `latest`. A name that no image can have has no
/// tag.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    let (name, tag) = last.split_once(':').unwrap_or((last, "latest"));
    let possible = !name.chars().any(|c| c.is_uppercase() || c.is_whitespace());
    possible && tag == "latest"
}

fn default_probe(probe: &mut Map<String, Value>) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(field).is_none_or(|given| given.is_null() || *given == 0) {
            probe.insert(field.into(), value.into());
        }
    }
    default_http_get(probe);
    if let Some(grpc) = part(probe, "grpc") {
        default_to(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Map<String, Value>) {
    if let Some(http) = part(handler, "httpGet") {
        default_text(http, "path", "/");
        default_text(http, "scheme", "HTTP");
    }
}

fn default_field_ref(source: &mut Map<String, Value>) {
    if let Some(reference) = part(source, "fieldRef") {
        default_text(reference, "apiVersion", "v1");
    }
}

/// Defaults of texts in sources of volumes.
const SOURCE_TEXTS: [(&str, &str, &str); 9] = [
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("scaleIO", "fsType", "xfs"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
];

fn default_volume(volume: &mut Map<String, Value>) {
    if !volume.iter().any(|(field, value)| field != "name" && !value.is_null()) {
        volume.insert("emptyDir".into(), json!({}));
    }
    for kind in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = part(volume, kind) {
            default_to(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(source) = part(volume, "downwardAPI") {
        each(source, "items").for_each(default_field_ref);
    }
    if let Some(source) = part(volume, "hostPath") {
        default_to(source, "type", "");
    }
    for (kind, field, value) in SOURCE_TEXTS {
        if let Some(source) = part(volume, kind) {
            default_text(source, field, value);
        }
    }
    if let Some(source) = part(volume, "azureDisk") {
        default_to(source, "readOnly", false);
    }
    if let Some(source) = part(volume, "image") {
        let image = source.get("reference").and_then(Value::as_str).unwrap_or_default();
        let pull_policy = default_pull_policy(image);
        default_text(source, "pullPolicy", pull_policy);
    }
    for source in part(volume, "projected").into_iter().flat_map(|projected| each(projected, "sources")) {
        if let Some(token) = part(source, "serviceAccountToken") {
            default_to(token, "expirationSeconds", TOKEN_EXPIRATION_SECONDS);
        }
        if let Some(downward) = part(source, "downwardAPI") {
            each(downward, "items").for_each(default_field_ref);
        }
    }
    if let Some(ephemeral) =
        part(volume, "ephemeral").and_then(|ephemeral| part(ephemeral, "volumeClaimTemplate"))
        && let Some(claim) = part(ephemeral, "spec")
    {
        default_to(claim, "volumeMode", "Filesystem");
    }
}
