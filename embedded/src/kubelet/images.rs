//! The images of a pod's containers and volumes, and the Events about them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::engine::{self, Engine, Found, ImageRequest, ImageSource, LocalImage, Pulled};
use super::events::Subject;
use super::pod::{Container, Slot, Volume, VolumeMount};
use super::setup::{PodSetup, SetupError};
use super::volumes;
use super::worker::Worker;

/// The image volumes of a pod that are ready, by the volumes' names.
pub(super) type ImageVolumes = Mutex<BTreeMap<String, ImageVolume>>;

/// A volume with the files of an image.
#[derive(Clone, Debug)]
pub(super) struct ImageVolume {
    image: LocalImage,
    /// Its files, if they are unpacked.
    folder: Option<PathBuf>,
}

/// Provides an image of a pod: it is pulled if its policy asks for that. Events say so, as those of a kubelet.
pub(super) async fn provide(
    worker: &Worker,
    engine: &Engine,
    request: ImageRequest<'_>,
    subject: Subject<'_>,
) -> Result<LocalImage, SetupError> {
    let (name, asked, events) = (request.name, Instant::now(), &worker.context.events);
    let pull = match engine.find_image(request).await? {
        Found::Present(image) => {
            let note =
                format!("Container image {name:?} already present on machine and can be accessed by the pod");
            events.tell(subject, false, "Pulled", &note).await;
            return Ok(image);
        }
        Found::Absent(pull) => pull,
    };
    events.tell(subject, false, "Pulling", &format!("Pulling image {name:?}")).await;
    let secrets = worker.client.pull_secrets(&worker.pod.spec).await;
    let Pulled { image, took } = pull.run(&secrets, worker.context.pulls.as_ref()).await?;
    let note = format!(
        "Successfully pulled image {name:?} in {} ({} including waiting). Image size: {} bytes.",
        go_duration(took),
        go_duration(asked.elapsed()),
        image.size
    );
    events.tell(subject, false, "Pulled", &note).await;
    Ok(image)
}

/// Publishes that a container waits for an image, and why. Returns `false` if it waits for something else.
pub(super) async fn report_wait(worker: &Worker, slot: Slot, reason: &str, message: &str) -> bool {
    let Some(told) = engine::events_of_wait(reason, message) else { return false };
    let (events, subject) = (&worker.context.events, Subject::container(&worker.key, &worker.pod.spec, slot));
    for (is_warning, reason, note) in told {
        events.tell(subject, is_warning, reason, &note).await;
    }
    true
}

/// The sources of a container's mounts of image volumes, by the names of the volumes. The first container that mounts one provides it.
pub(super) async fn sources(
    worker: &Worker,
    engine: &Engine,
    container: &Container,
    setup: &PodSetup,
) -> Result<BTreeMap<String, ImageSource>, SetupError> {
    let mut sources = BTreeMap::new();
    for volume in &worker.pod.spec.volumes {
        let Some(source) = &volume.image else { continue };
        let Some(is_part) = is_part_mounted(container, volume) else { continue };
        // The containers of a pod wait for each other here, so that nothing is unpacked twice.
        let mut ready = setup.images.lock().await;
        let found = match ready.entry(volume.name.clone()) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let request = ImageRequest {
                    name: source.reference.as_deref().unwrap_or_default(),
                    policy: source.pull_policy.as_deref(),
                };
                let image = provide(worker, engine, request, Subject::pod(&worker.key)).await?;
                place.insert(ImageVolume { image, folder: None })
            }
        };
        let source = match &found.folder {
            _ if engine.mounts_images(is_part) => ImageSource::Image(found.image.id.clone()),
            Some(folder) => ImageSource::Folder(folder.clone()),
            None => {
                let folder = unpack(worker, engine, volume, &found.image).await?;
                found.folder = Some(folder.clone());
                ImageSource::Folder(folder)
            }
        };
        sources.insert(volume.name.clone(), source);
    }
    Ok(sources)
}

/// Whether a container mounts a part of a volume; `None` if it does not mount it.
fn is_part_mounted(container: &Container, volume: &Volume) -> Option<bool> {
    let mounts = container.volume_mounts.iter().filter(|mount| mount.name == volume.name);
    mounts.map(VolumeMount::is_part).reduce(|one, other| one || other)
}

/// Writes the files of an image into the folder of a volume.
async fn unpack(
    worker: &Worker,
    engine: &Engine,
    volume: &Volume,
    image: &LocalImage,
) -> Result<PathBuf, SetupError> {
    let (folder, name) = (worker.folder.clone(), volume.name.clone());
    let made = tokio::task::spawn_blocking(move || {
        let volumes = folder.volumes()?;
        volumes.remove(&name)?;
        volumes.enter_or_create(&name)?.set_mode(volumes::READ_BY_ALL)
    });
    let unusable = |error| volumes::unusable(&format!("volume {:?}", volume.name), &error);
    made.await.unwrap_or_else(|panic| Err(panic.into())).map_err(unusable)?;
    let path = worker.folder.volume_path(&volume.name);
    engine.unpack(image, &worker.key, &volume.name, path.clone()).await?;
    Ok(path)
}

/// A duration as Go prints it, in whole milliseconds.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{millis}ms"),
        _ => {}
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let whole = match (hours, minutes) {
        (0, 0) => String::new(),
        (0, _) => format!("{minutes}m"),
        _ => format!("{hours}h{minutes}m"),
    };
    let fraction = format!("{:03}", millis % 1_000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{whole}{}{point}{fraction}s", millis / 1_000 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (millis, expected) in [
            (0, "0s"),
            (7, "7ms"),
            (1_000, "1s"),
            (1_250, "1.25s"),
            (60_005, "1m0.005s"),
            (3_600_000, "1h0m0s"),
            (3_725_100, "1h2m5.1s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
    }
}
