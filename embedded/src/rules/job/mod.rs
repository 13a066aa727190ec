//! `batch/v1` Job.

mod conditions;
mod create;
mod defaults;
mod index_list;
mod pod_failure_policy;
mod status;
mod update;
mod warnings;

use serde_json::{Value, json};

use super::field::Causes;
use super::metadata::{self, MetadataRule};
use super::{Cause, Strategy, Subresource, names};

pub(crate) use create::validate_spec_without_selector;
pub(crate) use warnings::of_spec as spec_warnings;

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };

/// The label with the name of a pod's Job.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The legacy form of [`JOB_NAME_LABEL`], without prefix.
const LEGACY_JOB_NAME_LABEL: &str = "job-name";
/// The label with the uid of a pod's Job.
const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// The legacy form of [`CONTROLLER_UID_LABEL`], without prefix.
const LEGACY_CONTROLLER_UID_LABEL: &str = "controller-uid";

/// The rules of Jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobStrategy;

impl Strategy for JobStrategy {
    fn default_object(&self, object: &mut Value) {
        defaults::default_job(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
        metadata::object_at(object, "metadata").insert("generation".into(), json!(1));
        // In Kubernetes, Job and template share one map, so labels generated now appear in both.
        let shared = defaults::default_labels(object);
        defaults::generate_selector(object);
        if shared {
            defaults::copy_labels(object);
        }
    }

    fn default_read_back(&self, object: &mut Value) -> bool {
        defaults::default_labels(object)
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        create::validate(&mut causes, object, true);
        causes.into_vec()
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        defaults::default_labels(new);
        match subresource {
            Subresource::Status => metadata::keep(old, new, "spec"),
            _ => {
                metadata::keep(old, new, "status");
                if new["spec"] != old["spec"] {
                    metadata::bump_generation(new);
                }
            }
        }
    }

    fn validate_update(&self, subresource: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        match subresource {
            Subresource::Status => metadata::validate_update(
                &mut causes,
                old,
                new,
                |_| {},
                |causes| status::validate_update(causes, old, new),
            ),
            _ => metadata::validate_update(
                &mut causes,
                old,
                new,
                |causes| create::validate(causes, new, update::requires_prefixed_labels(old)),
                |causes| update::validate(causes, old, new),
            ),
        }
        causes.into_vec()
    }

    fn warnings(&self, subresource: Subresource, old: Option<&Value>, new: &Value) -> Vec<String> {
        let changed = old.is_none_or(|old| old["metadata"]["generation"] != new["metadata"]["generation"]);
        if subresource == Subresource::Main && changed { warnings::of(old, new) } else { Vec::new() }
    }
}

/// Whether pods of this spec have completion indexes.
fn is_indexed(spec: &Value) -> bool {
    spec["completionMode"] == "Indexed"
}
