//! The memory that the containers of a template ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::job::memory::MemoryAmount;

/// The most containers whose memory is known. A pod in use has fewer, while a template of 16 KiB may name a thousand.
pub(super) const MOST_CONTAINERS: usize = 64;

/// The memory that a container asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::job) struct MemoryAsked {
    /// `resources.limits.memory`.
    pub(in crate::job) limit: Option<MemoryAmount>,
    /// `resources.requests.memory`.
    pub(in crate::job) request: Option<MemoryAmount>,
    /// `spec.resources.limits.memory`, which none of the pod's containers may exceed.
    pub(in crate::job) pod_limit: Option<MemoryAmount>,
    /// `spec.resources.requests.memory`, which its containers may not exceed together.
    pub(in crate::job) pod_request: Option<MemoryAmount>,
}

/// The memory that a template asks for: for the pod, and for the first [`MOST_CONTAINERS`] containers that ask for any.
#[derive(Debug, Default)]
pub(super) struct TemplateMemory {
    of_pod: MemoryAsked,
    /// Names, limits and requests.
    of_containers: Vec<(Box<str>, Option<MemoryAmount>, Option<MemoryAmount>)>,
}

impl TemplateMemory {
    /// Reads a template. Nothing is known of one that cannot be read.
    pub(super) fn read(template: &RawValue) -> Self {
        let WithResources { spec } = serde_json::from_str(template.get()).unwrap_or_default();
        let (pod_limit, pod_request) = asked(spec.resources.as_ref());
        let of_pod = MemoryAsked { pod_limit, pod_request, ..MemoryAsked::default() };
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let of_containers = containers.filter_map(|container| {
            let (limit, request) = asked(container.resources.as_ref());
            let asks = limit.is_some() || request.is_some();
            asks.then(|| ((&*container.name).into(), limit, request))
        });
        Self { of_pod, of_containers: of_containers.take(MOST_CONTAINERS).collect() }
    }

    /// The memory that the container of this name asks for.
    pub(super) fn of(&self, container: &str) -> MemoryAsked {
        let found = self.of_containers.iter().find(|(name, ..)| **name == *container);
        found.map_or(self.of_pod, |(_, limit, request)| MemoryAsked {
            limit: *limit,
            request: *request,
            ..self.of_pod
        })
    }
}

/// Limit and request of memory.
fn asked(resources: Option<&ResourceLists<'_>>) -> (Option<MemoryAmount>, Option<MemoryAmount>) {
    let memory = |list: Option<&BTreeMap<Cow<'_, str>, Value>>| {
        let amount = list?.get("memory")?;
        MemoryAmount::parse(amount.as_str().map_or_else(|| amount.to_string(), str::to_owned).as_str())
    };
    let Some(ResourceLists { limits, requests }) = resources else { return (None, None) };
    (memory(limits.as_ref()), memory(requests.as_ref()))
}

/// A template reduced to the resources of its containers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WithResources<'a> {
    #[serde(borrow)]
    spec: ContainersWithResources<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainersWithResources<'a> {
    #[serde(borrow)]
    containers: Vec<ContainerWithResources<'a>>,
    #[serde(borrow)]
    init_containers: Option<Vec<ContainerWithResources<'a>>>,
    #[serde(borrow)]
    resources: Option<ResourceLists<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerWithResources<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    resources: Option<ResourceLists<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceLists<'a> {
    #[serde(borrow)]
    limits: Option<BTreeMap<Cow<'a, str>, Value>>,
    #[serde(borrow)]
    requests: Option<BTreeMap<Cow<'a, str>, Value>>,
}
