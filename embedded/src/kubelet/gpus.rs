//! The GPUs of this machine: each is one container's at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::node::{self, NVIDIA_GPU};
use super::pod::Container;
use super::quantity;

/// The numbers of the GPUs that no container has.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpus(Arc<Mutex<BTreeSet<u32>>>);

/// The GPUs of a container. Dropping this gives them back.
#[derive(Debug)]
pub(super) struct OwnGpus {
    numbers: Vec<u32>,
    all: Gpus,
}

impl Gpus {
    /// The GPUs that NVIDIA's driver has made devices for.
    pub(super) fn of_this_machine() -> Self {
        let count = node::allocatable(NVIDIA_GPU).and_then(|count| count.parse().ok()).unwrap_or_default();
        Self::numbered(count)
    }

    fn numbered(count: u32) -> Self {
        Self(Arc::new(Mutex::new((0..count).collect())))
    }

    /// The GPUs that a container asks for; `None` as long as there are fewer.
    pub(super) fn take(&self, container: &Container) -> Option<OwnGpus> {
        let limit = container.resources.limits.as_ref().and_then(|limits| limits.get(NVIDIA_GPU));
        // A cast keeps within the range, and no machine has that many.
        let asked = limit.and_then(|limit| quantity::parse(&limit.0)).unwrap_or_default() as usize;
        let mut free = self.0.lock();
        if free.len() < asked {
            return None;
        }
        let numbers = std::iter::from_fn(|| free.pop_first()).take(asked).collect();
        Some(OwnGpus { numbers, all: self.clone() })
    }
}

impl OwnGpus {
    /// Their numbers, as NVIDIA's tools count.
    pub(super) fn numbers(&self) -> Vec<String> {
        self.numbers.iter().map(u32::to_string).collect()
    }
}

impl Drop for OwnGpus {
    fn drop(&mut self) {
        self.all.0.lock().extend(self.numbers.drain(..));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn each_gpu_is_one_containers_at_a_time() {
        let gpus = Gpus::numbered(4);
        let container = |count: &str| -> Container {
            serde_json::from_value(json!({"name": "c", "resources": {"limits": {NVIDIA_GPU: count}}}))
                .unwrap()
        };
        let first = gpus.take(&container("1")).unwrap();
        let second = gpus.take(&container("2")).unwrap();
        assert_eq!(
            (first.numbers(), second.numbers()),
            (vec!["0".to_owned()], vec!["1".to_owned(), "2".to_owned()])
        );
        assert!(gpus.take(&container("2")).is_none());
        drop(first);
        assert_eq!(gpus.take(&container("2")).unwrap().numbers(), ["0", "3"]);
        assert!(gpus.take(&Container::default()).unwrap().numbers().is_empty());
    }
}
