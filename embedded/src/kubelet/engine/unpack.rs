//! The files of an image in a folder, for an engine that does not mount images, or no part of one.

use std::io;
use std::path::PathBuf;

use bollard::models::ContainerCreateBody;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio_util::io::{StreamReader, SyncIoBridge};
use tokio_util::sync::CancellationToken;

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

    /// Writes the files of an image into a folder. If the future is dropped, as when the pod or the kubelet stops, writing
    /// ends soon.
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
        // The thread that writes cannot be ended. So its archive ends with this future.
        let dropped = CancellationToken::new();
        let _guard = dropped.clone().drop_guard();
        let files = self.0.docker.export_container(container.id()).take_until(dropped.cancelled_owned());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{UnixListener, UnixStream};

    use super::super::test_engine::{at, reply, request};
    use super::*;

    /// An empty file of an archive.
    fn entry(name: &str) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        header.set_mode(0o600);
        header.set_size(0);
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_data(&mut header, name, io::empty()).unwrap();
        archive.get_ref().clone()
    }

    /// Answers one request as an engine whose container has files without end.
    async fn answer(mut connection: UnixStream) -> io::Result<()> {
        if !request(&mut connection).await.contains("/export") {
            return connection
                .write_all(reply("201 Created", r#"{"Id":"c","Warnings":[]}"#).as_bytes())
                .await;
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
        for number in 0.. {
            connection.write_all(&entry(&format!("{number}"))).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    #[tokio::test]
    async fn unpacking_ends_with_the_pod_that_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, files) = (folder.path().join("engine"), folder.path().join("files"));
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            loop {
                tokio::spawn(answer(listener.accept().await.unwrap().0));
            }
        });
        std::fs::create_dir(&files).unwrap();
        let count = || std::fs::read_dir(&files).unwrap().count();
        let pod = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let (engine, image) = (at(&socket), LocalImage::default());
        let has_begun = async {
            while count() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = engine.unpack(&image, &pod, "v", files.clone()) => panic!("{ended:?}"),
            () = has_begun => {}
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let written = count();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(count(), written);
    }
}
