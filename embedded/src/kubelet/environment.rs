//! The environment of a container: `env`, `envFrom` and the downward API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::client::PodClient;
use super::pod::{Container, Pod};
use super::quantity;
use super::setup::SetupError;
use super::status::LOCAL_IP;

/// Environment variables by name: a later value replaces an earlier one.
pub(super) type Variables = BTreeMap<String, String>;

/// The variables that the container's `envFrom` and `env` define, on top of `given`.
///
/// As in Kubernetes, `env` overrides `envFrom`, and `$(NAME)` in a value refers to a variable defined before
/// it.
pub(super) async fn resolve(
    client: &PodClient,
    pod: &Pod,
    container: &Container,
    given: Variables,
) -> Result<Variables, SetupError> {
    let mut variables = given;
    for source in &container.env_from {
        variables.extend(bulk(client, source).await?);
    }
    for variable in &container.env {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => value_from(client, pod, container, source).await?,
            (value, None) => Some(expand(value.as_deref().unwrap_or_default(), &variables)),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

async fn bulk(client: &PodClient, source: &core::EnvFromSource) -> Result<Variables, SetupError> {
    let data = if let Some(reference) = &source.config_map_ref {
        client.config_map(&reference.name, reference.optional.unwrap_or(false)).await?
    } else if let Some(reference) = &source.secret_ref {
        client.secret(&reference.name, reference.optional.unwrap_or(false)).await?
    } else {
        None
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let data = data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (format!("{prefix}{key}"), text(&value))).collect())
}

/// The value of a reference; `None` if it is optional and has no target.
async fn value_from(
    client: &PodClient,
    pod: &Pod,
    container: &Container,
    source: &core::EnvVarSource,
) -> Result<Option<String>, SetupError> {
    if let Some(reference) = &source.field_ref {
        return field(pod, &reference.field_path).map(Some);
    }
    if let Some(reference) = &source.resource_field_ref {
        return resource(pod, container, reference).map(Some);
    }
    let (kind, name, key, optional, data) = if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional.unwrap_or(false);
        let data = client.config_map(&reference.name, optional).await?;
        ("ConfigMap", &reference.name, &reference.key, optional, data)
    } else if let Some(reference) = &source.secret_key_ref {
        let optional = reference.optional.unwrap_or(false);
        let data = client.secret(&reference.name, optional).await?;
        ("Secret", &reference.name, &reference.key, optional, data)
    } else {
        return Err(SetupError::refused(
            "CreateContainerConfigError",
            "an environment variable takes its value from a source that the local kubelet does not offer",
        ));
    };
    match data.and_then(|data| data.get(key).map(|value| text(value))) {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None => {
            let namespace = client.namespace();
            Err(SetupError::missing(format!("couldn't find key {key} in {kind} {namespace}/{name}")))
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a downward API field such as `metadata.labels['app']`.
pub(super) fn field(pod: &Pod, path: &str) -> Result<String, SetupError> {
    let metadata = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(unsupported(path)),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => text(&metadata.name),
        "metadata.namespace" => text(&metadata.namespace),
        "metadata.uid" => text(&metadata.uid),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => text(&pod.spec.node_name),
        "spec.serviceAccountName" => pod.spec.account().to_owned(),
        "status.podIP" | "status.podIPs" | "status.hostIP" | "status.hostIPs" => LOCAL_IP.into(),
        _ => return Err(unsupported(path)),
    })
}

fn unsupported(path: &str) -> SetupError {
    SetupError::refused("CreateContainerConfigError", format!("fieldPath {path:?} is not supported"))
}

/// A map in the file format of the downward API: `key="value"` lines.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={value:?}");
    map.into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
}

/// The value of a `resourceFieldRef`: a whole number of divisors, rounded up.
///
/// As in Kubernetes, an unset limit defaults to the capacity of the node.
pub(super) fn resource(
    pod: &Pod,
    container: &Container,
    reference: &core::ResourceFieldSelector,
) -> Result<String, SetupError> {
    let refuse = |message: String| SetupError::refused("CreateContainerConfigError", message);
    let container = match &reference.container_name {
        None => container,
        Some(name) => {
            let mut all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
            all.find(|container| container.name == *name)
                .ok_or_else(|| refuse(format!("container {name} not found")))?
        }
    };
    let (list, name) = reference
        .resource
        .split_once('.')
        .ok_or_else(|| refuse(format!("unsupported container resource: {}", reference.resource)))?;
    let resources = match list {
        "limits" => &container.resources.limits,
        "requests" => &container.resources.requests,
        _ => return Err(refuse(format!("unsupported container resource: {}", reference.resource))),
    };
    let set = resources.as_ref().and_then(|list| list.get(name));
    let amount = match set {
        Some(Quantity(amount)) => amount.clone(),
        None if list == "limits" => super::node::allocatable(name).unwrap_or_default(),
        None => "0".into(),
    };
    let parse = |text: &str| {
        quantity::parse(text).ok_or_else(|| refuse(format!("{text:?} is not a quantity of {name}")))
    };
    let amount = if amount.is_empty() { 0.0 } else { parse(&amount)? };
    let divisor = match reference.divisor.as_ref().map(|Quantity(divisor)| divisor.as_str()) {
        None | Some("" | "0") => 1.0,
        Some(divisor) => parse(divisor)?,
    };
    // Decimal fractions are inexact in binary: 700m / 1m must give 700, not 701.
    let divisors = (amount / divisor * 1e6).round() / 1e6;
    Ok(format!("{:.0}", divisors.ceil()))
}

/// Replaces `$(NAME)` by variables. `$$` is an escaped dollar; references to unknown variables stay
/// unchanged.
pub(super) fn expand(text: &str, variables: &Variables) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut tail = text;
    while let Some(dollar) = tail.find('$') {
        expanded.push_str(&tail[..dollar]);
        tail = &tail[dollar + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            expanded.push('$');
            tail = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            tail = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(tail);
    expanded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn expansion_follows_kubernetes() {
        let variables = Variables::from([("A".into(), "1".into()), ("B".into(), "$(A)".into())]);
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(MISSING)", "$(MISSING)"),
            ("$A ${A}", "$A ${A}"),
            ("$(A", "$(A"),
            ("ends in $", "ends in $"),
            ("$()", "$()"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u",
                "labels": {"app": "a", "b": "say \"hi\""},
                "annotations": {"batch.kubernetes.io/job-completion-index": "7"}
            },
            "spec": {
                "nodeName": "node",
                "containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "250m"}}}]
            }
        }))
        .unwrap()
    }

    #[test]
    fn downward_api_fields_follow_the_pod() {
        for (path, expected) in [
            ("metadata.name", "p"),
            ("metadata.labels['app']", "a"),
            ("metadata.labels['none']", ""),
            ("metadata.labels", "app=\"a\"\nb=\"say \\\"hi\\\"\""),
            ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "7"),
            ("spec.nodeName", "node"),
            ("spec.serviceAccountName", "default"),
            ("status.podIP", "127.0.0.1"),
        ] {
            assert_eq!(field(&pod(), path).unwrap(), expected, "{path}");
        }
        assert!(field(&pod(), "spec.containers").is_err());
    }

    #[test]
    fn resources_are_given_in_divisors() {
        let pod = pod();
        let value = |resource: &str, divisor: Option<&str>| {
            let reference = core::ResourceFieldSelector {
                resource: resource.into(),
                divisor: divisor.map(|divisor| Quantity(divisor.into())),
                container_name: None,
            };
            resource_of(&pod, &reference)
        };
        fn resource_of(pod: &Pod, reference: &core::ResourceFieldSelector) -> String {
            resource(pod, &pod.spec.containers[0], reference).unwrap()
        }
        assert_eq!(value("limits.memory", None), "1073741824");
        assert_eq!(value("limits.memory", Some("1Mi")), "1024");
        assert_eq!(value("requests.cpu", None), "1");
        assert_eq!(value("requests.cpu", Some("1m")), "250");
        assert_eq!(value("requests.memory", None), "0");
        assert_ne!(value("limits.cpu", None), "0");
    }
}
