//! The other kinds of `core/v1` that Jobs and their clients use.

use serde_json::{Map, Value, json};

use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, as_object, child, default_text, default_to, object_at};
use super::{Cause, Strategy, Subresource, names};

/// Maximum size of the data of a ConfigMap or Secret, in bytes.
const DATA_SIZE_MAX: usize = 1024 * 1024;
/// The label with a namespace's name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer in a namespace's spec, which keeps the namespace until its content is gone.
const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Keeps the part of an object that a write to this subresource cannot change.
pub(super) fn keep_other_part(subresource: Subresource, old: &Value, new: &mut Value) {
    let kept = if subresource == Subresource::Status { "spec" } else { "status" };
    match &old[kept] {
        Value::Null => drop(as_object(new).remove(kept)),
        value => new[kept] = value.clone(),
    }
}

pub(super) fn validated(object: &Value, rule: MetadataRule, rules: impl FnOnce(&mut Causes)) -> Vec<Cause> {
    let mut causes = Causes::default();
    metadata::validate(&mut causes, object, rule);
    rules(&mut causes);
    causes.into_vec()
}

pub(super) fn validated_update(old: &Value, new: &Value, rules: impl FnOnce(&mut Causes)) -> Vec<Cause> {
    let mut causes = Causes::default();
    metadata::validate_update(&mut causes, old, new, |_| {}, rules);
    causes.into_vec()
}

/// Kinds for which only metadata is validated. `status` is writable only through its subresource.
#[derive(Clone, Copy, Debug)]
pub struct MetadataStrategy {
    /// Whether objects of the kind live in a namespace.
    pub namespaced: bool,
    /// Whether a client may set `status` on creation, as kubelets do for nodes.
    pub status_on_create: bool,
}

impl MetadataStrategy {
    fn rule(self) -> MetadataRule {
        MetadataRule { namespaced: self.namespaced, name: names::dns_subdomain }
    }
}

impl Strategy for MetadataStrategy {
    fn prepare_create(&self, object: &mut Value) {
        if !self.status_on_create && !object["status"].is_null() {
            object["status"] = json!({});
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        validated(object, self.rule(), |_| {})
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        keep_other_part(subresource, old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        validated_update(old, new, |_| {})
    }
}

/// The rules of namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn default_object(&self, object: &mut Value) {
        let name = object["metadata"]["name"].clone();
        if name.as_str().is_some_and(|name| !name.is_empty()) {
            object_at(as_object(object).entry("metadata").or_insert(Value::Null), "labels")
                .insert(NAMESPACE_NAME_LABEL.into(), name);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        // A generated name is not known before this point.
        self.default_object(object);
        object["status"] = json!({ "phase": "Active" });
        let finalizers = child(object_at(object, "spec"), "finalizers");
        match finalizers {
            Value::Array(list) if list.iter().any(|known| known == NAMESPACE_FINALIZER) => {}
            Value::Array(list) => list.push(NAMESPACE_FINALIZER.into()),
            absent => *absent = json!([NAMESPACE_FINALIZER]),
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        validated(object, MetadataRule { namespaced: false, name: names::dns_label }, |_| {})
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        keep_other_part(subresource, old, new);
        metadata::keep(old, new, "spec");
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        validated_update(old, new, |_| {})
    }
}

/// The rules of ConfigMaps and Secrets: keys with data of limited size, optionally immutable.
#[derive(Clone, Copy, Debug)]
pub struct DataStrategy {
    /// Whether the kind is Secret, which has a type and whose text in `stringData` is moved to `data`.
    pub secret: bool,
}

const DATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };

impl Strategy for DataStrategy {
    fn default_object(&self, object: &mut Value) {
        if self.secret {
            let secret = as_object(object);
            default_text(secret, "type", "Opaque");
            if let Some(Value::Object(texts)) = secret.remove("stringData") {
                let data = as_object(child(secret, "data"));
                data.extend(texts.into_iter().map(|(key, text)| (key, encoded(&text))));
            }
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        validated(object, DATA_RULE, |causes| {
            data(causes, object);
            if self.secret {
                required_keys(causes, object);
            }
        })
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        validated_update(old, new, |causes| {
            if self.secret {
                causes.immutable(&Path::root("type"), &new["type"], &old["type"]);
            }
            if old["immutable"] == true {
                let detail = "field is immutable when `immutable` is set";
                if new["immutable"] != true {
                    causes.forbidden(&Path::root("immutable"), detail);
                }
                for field in ["data", "binaryData"] {
                    if new[field] != old[field] {
                        causes.forbidden(&Path::root(field), detail);
                    }
                }
            }
            data(causes, new);
        })
    }
}

fn encoded(text: &Value) -> Value {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default()).into()
}

fn data(causes: &mut Causes, object: &Value) {
    let mut size = 0;
    for field in ["data", "binaryData"] {
        let path = Path::root(field);
        for (key, value) in object[field].as_object().into_iter().flatten() {
            causes.invalid_each(&path.key(key), key, names::config_key(key));
            size += value.as_str().map_or(0, str::len);
        }
    }
    if size > DATA_SIZE_MAX {
        // Kubernetes reports the whole object, whose empty path it prints like this.
        causes.too_long(&Path::root("[]"), DATA_SIZE_MAX);
    }
}

/// Checks the keys that a type of Secret requires.
fn required_keys(causes: &mut Causes, secret: &Value) {
    let (data, path) = (&secret["data"], Path::root("data"));
    let keys: &[&str] = match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        // Either key is enough.
        "kubernetes.io/basic-auth" if data["username"].is_null() && data["password"].is_null() => {
            &["username", "password"]
        }
        _ => &[],
    };
    for key in keys.iter().filter(|key| data[**key].is_null()) {
        causes.required(&path.key(key), "");
    }
}

/// The rules of Services, sufficient for headless services of Indexed Jobs. No addresses are assigned.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn default_object(&self, object: &mut Value) {
        let spec = object_at(object, "spec");
        default_text(spec, "type", "ClusterIP");
        default_text(spec, "sessionAffinity", "None");
        default_text(spec, "internalTrafficPolicy", "Cluster");
        default_to(spec, "ipFamilies", json!(["IPv4"]));
        default_text(spec, "ipFamilyPolicy", "SingleStack");
        if spec.get("clusterIP").is_some_and(|ip| *ip == "None") {
            default_to(spec, "clusterIPs", json!(["None"]));
        }
        for port in child(spec, "ports").as_array_mut().into_iter().flatten() {
            let port: &mut Map<String, Value> = as_object(port);
            default_text(port, "protocol", "TCP");
            if port.get("targetPort").is_none_or(|target| target.is_null() || *target == 0 || *target == "") {
                let number = port.get("port").cloned().unwrap_or_default();
                port.insert("targetPort".into(), number);
            }
        }
        if spec.get("ports").is_some_and(Value::is_null) {
            spec.remove("ports");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({ "loadBalancer": {} });
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        validated(object, MetadataRule { namespaced: true, name: names::dns_label }, |causes| {
            metadata::labels(causes, &Path::root("spec").child("selector"), &object["spec"]["selector"]);
        })
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        keep_other_part(subresource, old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        validated_update(old, new, |_| {})
    }
}
