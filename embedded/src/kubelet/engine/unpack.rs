//! The files of an image in a folder, for an engine that does not mount images, or no part of one.

use std::io;
use std::path::PathBuf;

use bollard::models::ContainerCreateBody;
use futures::TryStreamExt as _;
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::super::environment::Variables;
use super::super::pod::PodKey;
use super::super::setup::SetupError;
use super::{Engine, LocalImage, Recipe, said};

/// Reason of a container that cannot have its volume.
const CREATE_ERROR: &str = "CreateContainerError";
/// The Docker Engine API since which images can be mounted.
const MOUNTS_IMAGES: (usize, usize) = (1, 48);

impl Engine {
    /// Whether the engine mounts images, and parts of them.
    pub(in crate::kubelet) fn mounts_images(&self, is_part: bool) -> bool {
        let version = self.0.docker.client_version();
        let of_docker = (version.major_version, version.minor_version) >= MOUNTS_IMAGES;
        if self.0.is_podman() { !is_part } else { of_docker }
    }

    /// Writes the files of an image into a folder.
    ///
    /// # Errors
    /// If that fails, which may pass.
    pub(in crate::kubelet) async fn unpack(
        &self,
        image: &LocalImage,
        pod: &PodKey,
        volume: &str,
        folder: PathBuf,
    ) -> Result<(), SetupError> {
        let failed = |why: String| {
            SetupError::waiting(CREATE_ERROR, format!("failed to mount image volume {volume:?}: {why}"))
        };
        let PodKey { namespace, name, uid } = pod;
        // It never starts, so it does not matter whether there is such a program.
        let recipe = Recipe {
            name: format!("yardmaster_IMAGE_{volume}_{name}_{namespace}_{uid}"),
            body: ContainerCreateBody {
                image: Some(image.id.clone()),
                entrypoint: Some(vec!["none".into()]),
                labels: Some(self.labels(uid)),
                ..ContainerCreateBody::default()
            },
            stop_signal: String::new(),
            sources: Vec::new(),
            image_id: String::new(),
            variables: Variables::new(),
        };
        let container = self.create(&recipe).await.map_err(|error| failed(said(&error)))?;
        let files = self.0.docker.export_container(container.id());
        let files = StreamReader::new(files.map_err(|error| io::Error::other(said(&error))));
        let mut files = SyncIoBridge::new(Box::pin(files));
        let unpacked = tokio::task::spawn_blocking(move || {
            let mut archive = tar::Archive::new(&mut files);
            archive.set_preserve_ownerships(rustix::process::geteuid().is_root());
            archive.unpack(folder)
        });
        let unpacked = unpacked.await.unwrap_or_else(|panic| Err(panic.into()));
        container.remove().await;
        unpacked.map_err(|error| failed(error.to_string()))
    }
}
