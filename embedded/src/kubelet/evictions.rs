//! Evicts pods whose `emptyDir` volumes have grown beyond their limits, as a kubelet does.

use std::collections::HashSet;
use std::fs::{Metadata, ReadDir};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio::time::{MissedTickBehavior, interval};

use super::pod::PodSpec;
use super::pod_folder::PodFolder;
use super::quantity;
use super::worker::Worker;

/// How often volumes are measured. A kubelet does it as often.
const PERIOD: Duration = Duration::from_secs(10);
/// Reason of the Event about a volume that cannot be measured.
const UNMEASURED: &str = "VolumeNotMeasured";
/// Bytes of a block in which file systems count.
const BLOCK: u64 = 512;

/// A volume with a limit.
#[derive(Clone, Debug)]
struct Limited {
    name: String,
    folder: PathBuf,
    /// The limit as the pod has it, and its bytes.
    limit: (String, f64),
}

impl Limited {
    /// Why the pod is evicted, if the volume has outgrown its limit.
    fn verdict(&self, used: &Usage) -> Option<String> {
        let (limit, bytes) = &self.limit;
        let text = || format!("Usage of EmptyDir volume {:?} exceeds the limit {limit:?}. ", self.name);
        (used.bytes as f64 > *bytes).then(text)
    }

    /// Why the limit does not hold for all of the volume, if so.
    fn doubt(&self, used: &Usage) -> Option<String> {
        let folder = used.unread.as_ref()?;
        Some(format!(
            "the limit of EmptyDir volume {:?} does not count {}, which belongs to another user",
            self.name,
            folder.display()
        ))
    }
}

/// The disk that a volume takes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    /// A folder that this user may not read, if there is one. An engine without root gives the users of its
    /// containers numbers of their own.
    unread: Option<PathBuf>,
}

/// Resolves when a volume of a pod has outgrown its limit, with the reason in the words of a kubelet. If no
/// volume has a limit, never. An Event says once that a volume cannot be measured.
pub(super) async fn outgrown(worker: &Worker) -> String {
    let limited: Vec<_> = limited(&worker.pod.spec, &worker.folder).collect();
    if limited.is_empty() {
        return std::future::pending().await;
    }
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_told = false;
    loop {
        ticks.tick().await;
        let volumes = limited.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let used: Vec<_> = volumes.iter().map(|volume| (volume, usage(&volume.folder, read))).collect();
            let verdict = used.iter().find_map(|(volume, used)| volume.verdict(used));
            (verdict, used.iter().find_map(|(volume, used)| volume.doubt(used)))
        });
        let (verdict, doubt) = measured.await.unwrap_or_default();
        if let Some(why) = verdict {
            return why;
        }
        if let Some(doubt) = doubt.filter(|_| !is_told) {
            is_told = true;
            worker.context.events.warn(&worker.key, UNMEASURED, &doubt).await;
        }
    }
}

fn limited(spec: &PodSpec, pod: &PodFolder) -> impl Iterator<Item = Limited> {
    spec.volumes.iter().filter_map(|volume| {
        let Quantity(limit) = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let bytes = quantity::parse(limit).filter(|bytes| *bytes > 0.0)?;
        let folder = pod.volume_path(&volume.name);
        Some(Limited { name: volume.name.clone(), folder, limit: (limit.clone(), bytes) })
    })
}

/// The disk that the files of a folder take. A file with several names counts once.
fn usage(folder: &Path, read: impl Fn(&Path) -> std::io::Result<ReadDir>) -> Usage {
    let (mut used, mut folders, mut counted) = (Usage::default(), vec![folder.to_owned()], HashSet::new());
    while let Some(folder) = folders.pop() {
        let entries = match read(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                used.unread.get_or_insert(folder);
                continue;
            }
            // It has vanished meanwhile.
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            }
            if found.nlink() == 1 || counted.insert(identity(&found)) {
                used.bytes += found.blocks() * BLOCK;
            }
        }
    }
    used
}

fn read(folder: &Path) -> std::io::Result<ReadDir> {
    std::fs::read_dir(folder)
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_volume_is_as_large_as_its_files_whatever_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("below")).unwrap();
        std::fs::write(path("below/file"), vec![1; 1 << 20]).unwrap();
        // Some file systems give it blocks only then.
        std::fs::File::open(path("below/file")).unwrap().sync_all().unwrap();
        std::fs::hard_link(path("below/file"), path("again")).unwrap();
        std::os::unix::fs::symlink("/", path("link")).unwrap();
        let used = usage(folder.path(), read);
        assert!((1 << 20..1 << 21).contains(&used.bytes), "{used:?}");
        let limited = |limit: &str| Limited {
            name: "v".into(),
            folder: folder.path().to_owned(),
            limit: (limit.into(), quantity::parse(limit).unwrap()),
        };
        assert_eq!(limited("2Mi").verdict(&used), None);
        let expected = "Usage of EmptyDir volume \"v\" exceeds the limit \"512Ki\". ";
        assert_eq!(limited("512Ki").verdict(&used).as_deref(), Some(expected));
    }

    #[test]
    fn a_folder_of_another_user_makes_the_limit_doubtful() {
        let folder = tempfile::tempdir().unwrap();
        let hidden = folder.path().join("hidden");
        std::fs::create_dir(&hidden).unwrap();
        let limited =
            Limited { name: "v".into(), folder: folder.path().to_owned(), limit: ("1Mi".into(), 1e6) };
        let with = |kind: ErrorKind| {
            usage(folder.path(), |path| if path == hidden { Err(kind.into()) } else { read(path) })
        };
        let doubt = limited.doubt(&with(ErrorKind::PermissionDenied)).unwrap();
        assert!(doubt.contains("\"v\" does not count") && doubt.contains("/hidden, which"), "{doubt}");
        assert_eq!(limited.doubt(&with(ErrorKind::NotFound)), None, "it is gone");
    }
}
