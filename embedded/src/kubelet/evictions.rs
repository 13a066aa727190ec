//! Evicts pods whose `emptyDir` volumes have grown beyond their limits, as a kubelet does.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio::time::{MissedTickBehavior, interval};

use super::pod::PodSpec;
use super::pod_folder::PodFolder;
use super::quantity;

/// How often volumes are measured. A kubelet does it as often.
const PERIOD: Duration = Duration::from_secs(10);
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
    fn verdict(&self) -> Option<String> {
        let (limit, bytes) = &self.limit;
        let text = || format!("Usage of EmptyDir volume {:?} exceeds the limit {limit:?}. ", self.name);
        (usage(&self.folder) as f64 > *bytes).then(text)
    }
}

/// Resolves when a volume of a pod has outgrown its limit, with the reason in the words of a kubelet. If no volume has a limit,
/// never.
pub(super) async fn outgrown(spec: &PodSpec, pod: &PodFolder) -> String {
    let limited: Vec<_> = limited(spec, pod).collect();
    if limited.is_empty() {
        return std::future::pending().await;
    }
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let volumes = limited.clone();
        let measured = tokio::task::spawn_blocking(move || volumes.iter().find_map(Limited::verdict));
        if let Ok(Some(why)) = measured.await {
            return why;
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

/// Bytes of the disk that the files of a folder take. A file with several names counts once.
fn usage(folder: &Path) -> u64 {
    let (mut bytes, mut folders, mut counted) = (0, vec![folder.to_owned()], HashSet::new());
    while let Some(folder) = folders.pop() {
        // Files may vanish meanwhile.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            }
            if found.nlink() == 1 || counted.insert(identity(&found)) {
                bytes += found.blocks() * BLOCK;
            }
        }
    }
    bytes
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
        let used = usage(folder.path());
        assert!((1 << 20..1 << 21).contains(&used), "{used}");
        let limited = |limit: &str| Limited {
            name: "v".into(),
            folder: folder.path().to_owned(),
            limit: (limit.into(), quantity::parse(limit).unwrap()),
        };
        assert_eq!(limited("2Mi").verdict(), None);
        let expected = "Usage of EmptyDir volume \"v\" exceeds the limit \"512Ki\". ";
        assert_eq!(limited("512Ki").verdict().as_deref(), Some(expected));
    }
}
