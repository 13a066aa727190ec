//! Ports of containers that the engine publishes on this machine. The pod names some (`hostPort`). Probes and hooks ask
//! others, since the networks of the engine may be out of reach.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::{PortBinding, PortMap};

use super::super::pod::{PodSpec, Slot};
use super::super::{action, host_ports};
use super::{Engine, said};

/// Where those are published that only this machine asks.
const HERE: &str = "127.0.0.1";

/// The ports that the engine is to publish for these containers of a pod; `None` without any.
pub(super) fn bindings(spec: &PodSpec, slots: impl Iterator<Item = Slot>) -> Option<PortMap> {
    if spec.host_network {
        return None;
    }
    let asked = slots.map(|slot| spec.container(slot));
    let ports =
        asked.flat_map(|container| action::all(container).filter_map(|action| action.port(container)));
    // The engine chooses a free port.
    let binding = || PortBinding { host_ip: Some(HERE.into()), host_port: Some(String::new()) };
    let asked: BTreeSet<_> = ports.collect();
    let asked = asked.into_iter().map(|port| (format!("{port}/tcp"), binding()));
    // A pod that names ports of the machine has a sandbox, so these are asked for once.
    let named = host_ports::of(spec).into_iter().map(|port| {
        let binding = PortBinding { host_ip: Some(port.address), host_port: Some(port.number.to_string()) };
        (format!("{}/{}", port.inside, port.protocol), binding)
    });
    let mut map = PortMap::new();
    for (port, binding) in asked.chain(named) {
        map.entry(port).or_insert_with(|| Some(Vec::new())).get_or_insert_default().push(binding);
    }
    (!map.is_empty()).then_some(map)
}

/// The ports that are exposed for this.
pub(super) fn exposed(bindings: Option<&PortMap>) -> Option<Vec<String>> {
    bindings.map(|bindings| bindings.keys().cloned().collect())
}

impl Engine {
    /// Where the ports of a container are reached on this machine.
    pub(super) async fn published(&self, id: &str) -> BTreeMap<u16, u16> {
        let found = match self.inspect_container(id).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(
                    container = id,
                    error = said(&error),
                    "the ports of a container are not known"
                );
                return BTreeMap::new();
            }
        };
        let ports = found.network_settings.and_then(|network| network.ports).unwrap_or_default();
        let published = ports.into_iter().filter_map(|(port, bindings)| {
            let port = port.split('/').next()?.parse().ok()?;
            let bindings = bindings?;
            let is_here = |binding: &&PortBinding| binding.host_ip.as_deref() == Some(HERE);
            let binding = bindings.iter().find(is_here).or(bindings.first())?;
            Some((port, binding.host_port.as_ref()?.parse().ok()?))
        });
        published.collect()
    }
}
