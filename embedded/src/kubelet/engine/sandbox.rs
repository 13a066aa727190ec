//! The sandbox of a pod: the container that holds the namespaces that its other containers share.

use std::collections::BTreeMap;

use bollard::body_full;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::TryStreamExt as _;

use super::super::environment::Variables;
use super::super::host_ports;
use super::super::pod::{PodKey, PodSpec};
use super::super::setup::SetupError;
use super::container::Container;
use super::spec::extra_hosts;
use super::{Engine, Network, Recipe, is_absent, pause, ports, said};

/// Reason of a pod whose sandbox cannot be made.
const FAILED: &str = "FailedCreatePodSandBox";
/// The image of sandboxes, which is made here. Podman gives no tag to what it imports.
const IMAGE: &str = "localhost/yardmaster-pause-1";

/// The sandbox of a pod. Dropping it removes its container.
#[derive(Debug)]
pub(in crate::kubelet) struct Sandbox(Container);

impl Sandbox {
    /// The ID of its container.
    pub(super) fn id(&self) -> &str {
        self.0.id()
    }

    /// Where the ports of its containers are reached on this machine.
    pub(in crate::kubelet) async fn published(&self) -> BTreeMap<u16, u16> {
        self.0.published().await
    }

    /// Ends what is left in its namespaces.
    pub(in crate::kubelet) async fn remove(self) {
        self.0.remove().await;
    }
}

impl Engine {
    /// The sandbox of a pod, if it needs one: one container alone has its namespaces to itself.
    ///
    /// # Errors
    /// If the engine does not start it, which may pass.
    pub(in crate::kubelet) async fn sandbox(
        &self,
        key: &PodKey,
        spec: &PodSpec,
        network: Option<&Network>,
    ) -> Result<Option<Sandbox>, SetupError> {
        if !is_needed(spec) {
            return Ok(None);
        }
        let failed = |error: bollard::errors::Error| {
            SetupError::waiting(FAILED, format!("Failed to create pod sandbox: {}", said(&error)))
        };
        self.0.has_sandbox_image.get_or_try_init(|| self.make_image()).await?;
        let PodKey { namespace, name, uid } = key;
        let host = |is_wanted: bool| is_wanted.then(|| "host".to_owned());
        let bindings = ports::bindings(spec, spec.slots());
        let recipe = Recipe {
            name: format!("yardmaster_POD_{name}_{namespace}_{uid}"),
            body: ContainerCreateBody {
                hostname: (!spec.host_network).then(|| spec.host_name(name)),
                image: Some(IMAGE.into()),
                entrypoint: Some(vec![pause::PATH.into()]),
                labels: Some(self.labels(uid)),
                exposed_ports: ports::exposed(bindings.as_ref()),
                host_config: Some(HostConfig {
                    network_mode: host(spec.host_network).or_else(|| network.map(Network::mode)),
                    pid_mode: host(spec.host_pid),
                    ipc_mode: host(spec.host_ipc).or_else(|| Some("shareable".into())),
                    readonly_rootfs: Some(true),
                    extra_hosts: Some(extra_hosts(spec)),
                    port_bindings: bindings,
                    ..HostConfig::default()
                }),
                networking_config: network.map(Network::config),
                ..ContainerCreateBody::default()
            },
            stop_signal: "SIGKILL".into(),
            sources: Vec::new(),
            image_id: String::new(),
            variables: Variables::new(),
        };
        let container = self.create(&recipe).await.map_err(failed)?;
        self.0.docker.start_container(container.id(), None).await.map_err(failed)?;
        Ok(Some(Sandbox(container)))
    }

    /// Makes the image of sandboxes unless it is there.
    async fn make_image(&self) -> Result<(), SetupError> {
        match self.0.docker.inspect_image(IMAGE).await {
            Err(error) if is_absent(&error) => {}
            _ => return Ok(()),
        }
        let refused = |why: String| SetupError::refused(FAILED, format!("the image of pod sandboxes: {why}"));
        let files = pause::files(&self.0.architecture).map_err(refused)?;
        let options = CreateImageOptionsBuilder::default().from_src("-").repo(IMAGE).build();
        let made = self.0.docker.create_image(Some(options), Some(body_full(files.into())), None);
        made.try_for_each(async |_| Ok(())).await.map_err(|error| refused(said(&error)))
    }
}

/// Whether containers of the pod run beside each other, or the pod waits for ports of the machine before any of them starts.
fn is_needed(spec: &PodSpec) -> bool {
    spec.containers.len() > 1
        || !spec.host_network && !host_ports::of(spec).is_empty()
        || spec.share_process_namespace
        || spec.slots().any(|slot| spec.is_sidecar(slot))
}
