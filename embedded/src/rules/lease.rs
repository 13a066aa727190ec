//! `coordination.k8s.io/v1` Lease.

use serde_json::Value;

use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, object_at};
use super::{Cause, Strategy, Subresource, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };

/// Fields of coordinated leader election, a disabled alpha feature.
const GATED: [&str; 2] = ["preferredHolder", "strategy"];

/// The rules of leases.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    fn prepare_create(&self, object: &mut Value) {
        drop_gated(object);
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate(&mut causes, object, METADATA_RULE);
        validate_spec(&mut causes, &object["spec"]);
        causes.into_vec()
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        drop_gated(new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate_update(
            &mut causes,
            old,
            new,
            |_| {},
            |causes| validate_spec(causes, &new["spec"]),
        );
        causes.into_vec()
    }
}

fn drop_gated(lease: &mut Value) {
    let spec = object_at(lease, "spec");
    for field in GATED {
        spec.remove(field);
    }
}

fn validate_spec(causes: &mut Causes, spec: &Value) {
    let path = Path::root("spec");
    let duration = &spec["leaseDurationSeconds"];
    if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.invalid(&path.child("leaseDurationSeconds"), duration, "must be greater than 0");
    }
    causes.non_negative(&path.child("leaseTransitions"), &spec["leaseTransitions"]);
}
