//! Ports of containers that probes and hooks ask: the engine publishes them on this machine, since its networks may be out of
//! reach.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{PortBinding, PortMap};

use super::super::action;
use super::super::pod::{PodSpec, Slot};
use super::{Engine, said};

/// Where they are published: nobody else reaches this machine there.
const HERE: &str = "127.0.0.1";

/// What the engine is asked to publish for these containers of a pod; `None` if that is nothing.
pub(super) fn bindings(spec: &PodSpec, slots: impl Iterator<Item = Slot>) -> Option<PortMap> {
    if spec.host_network {
        return None;
    }
    let asked = slots.map(|slot| spec.container(slot));
    let ports =
        asked.flat_map(|container| action::all(container).filter_map(|action| action.port(container)));
    // The engine chooses a free port.
    let binding = || Some(vec![PortBinding { host_ip: Some(HERE.into()), host_port: Some(String::new()) }]);
    let map: HashMap<_, _> = ports.map(|port| (format!("{port}/tcp"), binding())).collect();
    (!map.is_empty()).then_some(map)
}

/// The ports that are exposed for this.
pub(super) fn exposed(bindings: Option<&PortMap>) -> Option<Vec<String>> {
    bindings.map(|bindings| bindings.keys().cloned().collect())
}

impl Engine {
    /// Where the ports of a container are reached on this machine.
    pub(super) async fn published(&self, id: &str) -> BTreeMap<u16, u16> {
        let found = match self.0.docker.inspect_container(id, None).await {
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
            let here = bindings?.into_iter().find_map(|binding| binding.host_port?.parse().ok())?;
            Some((port, here))
        });
        published.collect()
    }
}
