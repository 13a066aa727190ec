//! The network of a namespace whose pods find each other by name.

use std::collections::HashMap;
use std::net::IpAddr;

use bollard::errors::Error;
use bollard::models::{EndpointSettings, NetworkCreateRequest, NetworkingConfig};
use bollard::query_parameters::ListNetworksOptionsBuilder;

use super::super::setup::SetupError;
use super::{Engine, OWNER_LABEL, is_absent, said};
use crate::host_names::interfaces;

/// Reason of a pod that gets no network.
const FAILED: &str = "FailedCreatePodSandBox";

/// A pod's place in a network.
#[derive(Clone, Debug)]
pub(in crate::kubelet) struct Network {
    name: String,
    /// The names by which others find the pod.
    aliases: Vec<String>,
}

impl Network {
    /// How a container takes this place.
    pub(super) fn config(&self) -> NetworkingConfig {
        let settings =
            EndpointSettings { aliases: Some(self.aliases.clone()), ..EndpointSettings::default() };
        NetworkingConfig { endpoints_config: Some(HashMap::from([(self.name.clone(), settings)])) }
    }

    pub(super) fn mode(&self) -> String {
        self.name.clone()
    }
}

impl Engine {
    /// A place in the network of a namespace, which is made unless it is there.
    ///
    /// # Errors
    /// If the engine does not make it, which may pass.
    pub(in crate::kubelet) async fn network(
        &self,
        namespace: &str,
        aliases: Vec<String>,
    ) -> Result<Network, SetupError> {
        let fits = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let owner: String = self.0.owner.chars().map(fits).collect();
        let name = format!("yardmaster-{owner}-{namespace}");
        let mut networks = self.0.networks.lock().await;
        if !networks.contains(&name) {
            let labels = HashMap::from([(OWNER_LABEL.to_owned(), self.0.owner.clone())]);
            let request = NetworkCreateRequest {
                name: name.clone(),
                driver: Some("bridge".into()),
                labels: Some(labels),
                ..NetworkCreateRequest::default()
            };
            match self.0.docker.create_network(request).await {
                Ok(_) => {}
                // An attempt whose answer was lost has made it: its name is ours.
                Err(error) if said(&error).contains("already exists") => {}
                Err(error) => {
                    let message = format!("the network of namespace {namespace}: {}", said(&error));
                    return Err(SetupError::waiting(FAILED, message));
                }
            }
            networks.insert(name.clone());
        }
        Ok(Network { name, aliases })
    }

    /// The address that this host has in a network: in that of a pod, or in the usual one. Returns nothing if
    /// containers do not reach this host. An engine without root has its networks in a namespace of its own,
    /// and some engines are in a virtual machine.
    pub(in crate::kubelet) async fn host_in(&self, network: Option<&Network>) -> Option<IpAddr> {
        if !self.0.is_of_host {
            return None;
        }
        let usual = if self.0.is_podman() { "podman" } else { "bridge" };
        let name = network.map_or(usual, |network| &network.name);
        let mut hosts = self.0.hosts.lock().await;
        if let Some(known) = hosts.get(name) {
            return Some(*known);
        }
        let found = match self.0.docker.inspect_network(name, None).await {
            Ok(found) => found.ipam.and_then(|ipam| ipam.config).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(network = name, error = said(&error), "a network is not known");
                return None;
            }
        };
        let gateways = found.into_iter().filter_map(|config| config.gateway?.parse().ok());
        // Docker sets up its networks before containers, and Podman with the first.
        let is_here = |address: &IpAddr| self.0.is_podman() || interfaces().contains(address);
        let host = gateways.filter(is_here).min_by_key(IpAddr::is_ipv6)?;
        hosts.insert(name.to_owned(), host);
        Some(host)
    }

    /// Removes the networks with this label whose owner is such a one. Nothing is in them any more.
    pub(super) async fn remove_networks(&self, label: &str, is_one: impl Fn(&str) -> bool) {
        let filters = HashMap::from([("label", vec![label])]);
        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        let found = match self.0.docker.list_networks(Some(options)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = said(&error), "networks that may be left were not looked for");
                return;
            }
        };
        for network in found {
            let owner = network.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
            if let (Some(name), true) = (&network.name, owner.is_some_and(|owner| is_one(owner))) {
                self.remove_network(name).await;
            }
        }
    }

    async fn remove_network(&self, name: &str) {
        match self.0.docker.remove_network(name).await {
            Ok(()) => {}
            Err(error) if is_absent(&error) => {}
            Err(Error::DockerResponseServerError { message, .. }) => {
                tracing::warn!(network = name, message, "a network was not removed");
            }
            Err(error) => tracing::warn!(network = name, error = said(&error), "a network was not removed"),
        }
    }
}
