//! The layers of an image that arrive during its pull, as an engine tells of them.

use std::collections::HashMap;

use bollard::models::CreateImageInfo;

use super::super::pulls::PullSize;

/// The sizes of layers, by their IDs.
#[derive(Debug, Default)]
pub(super) struct Layers(HashMap<String, PullSize>);

impl Layers {
    /// Records what an engine tells. Returns the size of all layers if that has changed.
    pub(super) fn apply(&mut self, told: &CreateImageInfo) -> Option<PullSize> {
        let layer = self.0.entry(told.id.clone()?).or_default();
        let before = *layer;
        match (told.status.as_deref(), &told.progress_detail) {
            (Some("Downloading"), Some(detail)) => {
                // Podman names no size with -1.
                let bytes = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
                let done = bytes(detail.current).unwrap_or_default();
                *layer = PullSize { done, total: bytes(detail.total).unwrap_or_default().max(done) };
            }
            (Some("Download complete" | "Pull complete"), _) => layer.done = layer.total,
            // Docker counts the bytes of a layer once more while it unpacks it.
            _ => {}
        }
        if *layer == before {
            return None;
        }
        let sum = |all: PullSize, one: &PullSize| PullSize {
            done: all.done.saturating_add(one.done),
            total: all.total.saturating_add(one.total),
        };
        Some(self.0.values().fold(PullSize::default(), sum))
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    fn told(id: &str, status: &str, detail: Option<(i64, i64)>) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: detail
                .map(|(current, total)| ProgressDetail { current: Some(current), total: Some(total) }),
            ..CreateImageInfo::default()
        }
    }

    #[test]
    fn the_bytes_of_all_layers_are_counted_once() {
        let mut layers = Layers::default();
        for (id, status, detail, expected) in [
            ("latest", "Pulling from library/a", None, None),
            ("a", "Pulling fs layer", None, None),
            ("a", "Downloading", Some((10, 100)), Some((10, 100))),
            ("b", "Downloading", Some((5, -1)), Some((15, 105))),
            ("a", "Download complete", None, Some((105, 105))),
            ("a", "Extracting", Some((50, 100)), None),
            ("a", "Pull complete", None, None),
            ("c", "Already exists", None, None),
        ] {
            let found = layers.apply(&told(id, status, detail));
            assert_eq!(found.map(|size| (size.done, size.total)), expected, "{id} {status}");
        }
        assert_eq!(layers.apply(&CreateImageInfo::default()), None);
    }
}
