//! Amounts of resources, and what a pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Given;

use super::super::pod::{PodSpec, Slot};
use crate::rules::quantity::Quantity;

/// The resource that each pod takes one of.
pub(super) const PODS: &str = "pods";

/// Amounts of resources by their names, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kubelet) struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    /// The amounts of a list of the API.
    pub(super) fn of(list: &BTreeMap<String, Given>) -> Self {
        let amount = |(name, quantity): (&String, &Given)| (name.clone(), thousandths(&quantity.0));
        Self(list.iter().map(amount).collect())
    }

    /// The demand of a pod, as Kubernetes counts it. Containers that run beside each other count together, and a
    /// container that runs before them counts if it asks for more. A demand of the pod as a whole comes first.
    pub(super) fn of_pod(spec: &PodSpec) -> Self {
        let (mut beside, mut most) = (Self::default(), Self::default());
        for slot in spec.slots() {
            let asked = Self::asked(&spec.container(slot).resources);
            if matches!(slot, Slot::Main(_)) || spec.is_sidecar(slot) {
                beside.add(&asked);
            } else {
                let mut then = beside.clone();
                then.add(&asked);
                most.raise_to(&then);
            }
        }
        most.raise_to(&beside);
        let whole = spec.resources.as_ref().map(Self::asked).unwrap_or_default();
        most.0.extend(whole.0);
        most.0.insert(PODS.into(), thousandths("1"));
        most
    }

    /// A limit counts where there is no request.
    fn asked(resources: &ResourceRequirements) -> Self {
        let mut asked = resources.limits.as_ref().map(Self::of).unwrap_or_default();
        asked.0.extend(resources.requests.as_ref().map(Self::of).unwrap_or_default().0);
        asked
    }

    /// All but one resource.
    pub(super) fn without(&self, name: &str) -> Self {
        let others = self.0.iter().filter(|(other, _)| *other != name);
        Self(others.map(|(name, amount)| (name.clone(), *amount)).collect())
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*amount),
                None => drop(self.0.insert(name.clone(), *amount)),
            }
        }
    }

    /// The reverse of [`Self::add`].
    pub(super) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if let Some(sum) = self.0.get_mut(name) {
                *sum = sum.saturating_sub(*amount);
            }
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let highest = self.0.entry(name.clone()).or_default();
            *highest = (*highest).max(*amount);
        }
    }

    /// Whether a total has no more of a resource than is taken.
    pub(super) fn exhausts(&self, total: &Self, name: &str) -> bool {
        self.amount(name) >= total.amount(name)
    }

    fn amount(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The resources of which a total has not this much beside what is taken of it.
    pub(super) fn lacking(&self, taken: &Self, total: &Self) -> Vec<String> {
        let lacks = |(name, asked): &(&String, &u64)| {
            **asked > 0 && taken.amount(name).saturating_add(**asked) > total.amount(name)
        };
        self.0.iter().filter(lacks).map(|(name, _)| name.clone()).collect()
    }
}

/// A quantity of the API in thousandths, rounded up. An amount beyond all measure is the largest.
fn thousandths(quantity: &str) -> u64 {
    // The API server refuses what is no quantity.
    Quantity::parse(quantity).map_or(0, |amount| amount.thousandths())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn asked(spec: Value) -> Vec<(String, u64)> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let all = Amounts::of_pod(&spec).0.into_iter();
        all.filter(|(name, _)| name != PODS).collect()
    }

    #[test]
    fn containers_that_run_beside_each_other_ask_together() {
        let cpu = |amount: &str| json!({"name": "c", "resources": {"requests": {"cpu": amount}}});
        let sidecar = |amount: &str| {
            let mut container = cpu(amount);
            container["restartPolicy"] = "Always".into();
            container
        };
        let cpus = |amount: u64| vec![("cpu".to_owned(), amount)];
        assert_eq!(asked(json!({"containers": [cpu("1"), cpu("500m")]})), cpus(1500));
        assert_eq!(asked(json!({"initContainers": [cpu("4")], "containers": [cpu("1")]})), cpus(4000));
        assert_eq!(
            asked(json!({"initContainers": [sidecar("1"), cpu("2")], "containers": [cpu("1")]})),
            cpus(3000)
        );
        assert_eq!(
            asked(json!({"initContainers": [cpu("2"), sidecar("1")], "containers": [cpu("3")]})),
            cpus(4000)
        );
        let whole = json!({"resources": {"requests": {"cpu": "3"}}, "containers": [cpu("1")]});
        assert_eq!(asked(whole), cpus(3000));
        for exact in ["700m", "350m", "1400m", "0.7"] {
            let millis = if exact == "0.7" { 700 } else { exact.trim_end_matches('m').parse().unwrap() };
            assert_eq!(asked(json!({"containers": [cpu(exact)]})), cpus(millis), "{exact}");
        }
        let limit = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]});
        assert_eq!(asked(limit), cpus(2000));
    }
}
