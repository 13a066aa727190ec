//! Ports of the machine that containers take for themselves (`hostPort`).

use super::pod::{PodSpec, Slot};

/// The address of all addresses of the machine.
const ANY: &str = "0.0.0.0";

/// A port of the machine that leads to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    /// An address of the machine.
    pub(super) address: String,
    /// `tcp`, `udp` or `sctp`.
    pub(super) protocol: String,
    /// The port of the machine.
    pub(super) number: u16,
    /// The port of the container.
    pub(super) inside: u16,
}

impl HostPort {
    /// Whether two pods cannot have both.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let overlap = self.address == other.address || self.address == ANY || other.address == ANY;
        overlap && self.number == other.number && self.protocol == other.protocol
    }
}

/// The ports of a pod's containers. In the network of the machine, each port of a container is one of the machine.
pub(super) fn of(spec: &PodSpec) -> Vec<HostPort> {
    let lasting = spec.slots().filter(|slot| matches!(slot, Slot::Main(_)) || spec.is_sidecar(*slot));
    let ports = lasting.flat_map(|slot| &spec.container(slot).ports);
    let taken = ports.filter_map(|port| {
        let own = spec.host_network.then_some(port.container_port);
        let number = port.host_port.filter(|number| *number > 0).or(own)?;
        let address = port.host_ip.as_deref().filter(|address| !address.is_empty()).unwrap_or(ANY);
        Some(HostPort {
            address: address.to_owned(),
            protocol: port.protocol.as_deref().unwrap_or("TCP").to_lowercase(),
            number: u16::try_from(number).ok()?,
            inside: u16::try_from(port.container_port).ok()?,
        })
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_of_the_machine_are_those_that_containers_name() {
        let spec = |is_of_host: bool| {
            serde_json::from_value::<PodSpec>(json!({
                "hostNetwork": is_of_host,
                "initContainers": [{"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]}],
                "containers": [{"name": "c", "ports": [
                    {"containerPort": 80, "hostPort": 8080},
                    {"containerPort": 53, "hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP"},
                    {"containerPort": 9},
                ]}],
            }))
            .unwrap()
        };
        let port = |address: &str, protocol: &str, number, inside| HostPort {
            address: address.into(),
            protocol: protocol.into(),
            number,
            inside,
        };
        let named = [port(ANY, "tcp", 8080, 80), port("10.0.0.1", "udp", 53, 53)];
        assert_eq!(of(&spec(false)), named);
        assert_eq!(of(&spec(true))[2], port(ANY, "tcp", 9, 9));
    }

    #[test]
    fn an_address_of_all_excludes_each() {
        let port = |address: &str, protocol: &str, number| HostPort {
            address: address.into(),
            protocol: protocol.into(),
            number,
            inside: 1,
        };
        let taken = port("10.0.0.1", "tcp", 80);
        for (other, excludes) in [
            (port(ANY, "tcp", 80), true),
            (port("10.0.0.1", "tcp", 80), true),
            (port("10.0.0.2", "tcp", 80), false),
            (port(ANY, "udp", 80), false),
            (port(ANY, "tcp", 81), false),
        ] {
            assert_eq!((taken.excludes(&other), other.excludes(&taken)), (excludes, excludes), "{other:?}");
        }
    }
}
