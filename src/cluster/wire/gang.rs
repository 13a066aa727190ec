//! Decoders of Workloads and PodGroups (`scheduling.k8s.io/v1alpha2`).

use serde::Deserialize;
use serde_json::value::{RawValue, Value};

use super::decode::{DecodeError, Decoder};
use super::meta::Meta;
use super::text::Text;
use crate::job::gang::{GroupTemplate, PodGroup, Workload};
use crate::job::job_id::JobId;

/// Longest policy of a template that is kept, in bytes of JSON: those that Kubernetes defines have fewer than a hundred.
const POLICY_BYTES: usize = 16 << 10;
/// Most templates that are kept: a Workload with more than one has another author.
const TEMPLATES: usize = 2;

/// Reads Workloads.
#[derive(Clone, Debug, Default)]
pub struct WorkloadDecoder;

/// Reads PodGroups.
#[derive(Clone, Debug, Default)]
pub struct PodGroupDecoder;

impl Decoder for WorkloadDecoder {
    type Wire<'a> = WireWorkload<'a>;
    type Object = Workload;

    /// Always 0: versions of Workloads are never compared.
    fn version(_: &Workload) -> u64 {
        0
    }

    fn observe(&self, WireWorkload { metadata, spec }: WireWorkload<'_>) -> Result<Workload, DecodeError> {
        Ok(Workload {
            name: metadata.name()?.into(),
            uid: metadata.uid()?.into(),
            controller: controlling_job(&metadata),
            job: spec.controller_ref.and_then(|reference| reference.job()),
            templates: spec
                .pod_group_templates
                .into_iter()
                .flatten()
                .take(TEMPLATES)
                .map(Into::into)
                .collect(),
        })
    }
}

impl Decoder for PodGroupDecoder {
    type Wire<'a> = WirePodGroup<'a>;
    type Object = PodGroup;

    /// Always 0: versions of PodGroups are never compared.
    fn version(_: &PodGroup) -> u64 {
        0
    }

    fn observe(&self, WirePodGroup { metadata, spec }: WirePodGroup<'_>) -> Result<PodGroup, DecodeError> {
        let workload = spec.pod_group_template_ref.and_then(|template| template.workload);
        Ok(PodGroup {
            name: metadata.name()?.into(),
            controller: controlling_job(&metadata),
            workload: workload.and_then(|workload| workload.workload_name).map(|name| (*name).into()),
        })
    }
}

/// The Job that controls an object.
fn controlling_job(metadata: &Meta<'_>) -> Option<JobId> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default().into();
    metadata.controller(&namespace, JobId::claimed)?.job().cloned()
}

/// JSON of a Workload.
#[derive(Debug, Deserialize)]
pub struct WireWorkload<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: WireWorkloadSpec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireWorkloadSpec<'a> {
    #[serde(borrow)]
    controller_ref: Option<WireControllerRef<'a>>,
    #[serde(borrow)]
    pod_group_templates: Option<Vec<WireTemplate<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireControllerRef<'a> {
    #[serde(borrow)]
    api_group: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

impl WireControllerRef<'_> {
    /// The name of the Job that this refers to, if it is a Job.
    fn job(self) -> Option<Box<str>> {
        let is_job = self.api_group.as_deref() == Some("batch") && self.kind.as_deref() == Some("Job");
        self.name.filter(|_| is_job).map(|name| (*name).into())
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTemplate<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    scheduling_policy: Option<&'a RawValue>,
}

impl From<WireTemplate<'_>> for GroupTemplate {
    fn from(WireTemplate { name, scheduling_policy }: WireTemplate<'_>) -> Self {
        let policy = match scheduling_policy.map(RawValue::get) {
            None => Some(Value::Null),
            Some(json) if json.len() <= POLICY_BYTES => serde_json::from_str(json).ok(),
            Some(_) => None,
        };
        Self { name: (*name).into(), policy }
    }
}

/// JSON of a PodGroup.
#[derive(Debug, Deserialize)]
pub struct WirePodGroup<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: WirePodGroupSpec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodGroupSpec<'a> {
    #[serde(borrow)]
    pod_group_template_ref: Option<WireTemplateRef<'a>>,
}

#[derive(Debug, Deserialize)]
struct WireTemplateRef<'a> {
    #[serde(borrow)]
    workload: Option<WireWorkloadRef<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireWorkloadRef<'a> {
    #[serde(borrow)]
    workload_name: Option<Text<'a>>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn read<D: Decoder>(decoder: &D, object: &Value) -> D::Object {
        decoder.decode(object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_workload_names_its_job_and_its_templates() {
        let policy = json!({"gang": {"minCount": 3}});
        let workload = json!({
            "metadata": {"name": "w", "uid": "u", "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "g1", "uid": "j", "controller": true},
            ]},
            "spec": {
                "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "g1"},
                "podGroupTemplates": [{"name": "t", "schedulingPolicy": policy, "schedulingConstraints": null}],
            },
        });
        let expected = Workload {
            name: "w".into(),
            uid: "u".into(),
            controller: Some(JobId::new("".into(), "g1".into(), "j".into())),
            job: Some("g1".into()),
            templates: vec![GroupTemplate { name: "t".into(), policy: Some(policy) }],
        };
        assert_eq!(read(&WorkloadDecoder, &workload), expected);
    }

    #[test]
    fn of_a_workload_two_templates_with_short_policies_are_kept() {
        let read = |policy: Value, templates: usize| {
            let template = json!({"name": "t", "schedulingPolicy": policy});
            let spec = json!({"podGroupTemplates": vec![template; templates]});
            read(&WorkloadDecoder, &json!({"metadata": {"name": "w", "uid": "u"}, "spec": spec})).templates
        };
        assert_eq!(read(json!({"basic": {}}), 1_000).len(), TEMPLATES);
        for (policy, kept) in [
            (json!(null), Some(json!(null))),
            (json!({"basic": {}}), Some(json!({"basic": {}}))),
            (json!("x".repeat(POLICY_BYTES)), None),
        ] {
            assert_eq!(read(policy, 1)[0].policy, kept);
        }
    }

    #[test]
    fn a_controller_ref_names_a_job_only_if_it_is_of_the_batch_group() {
        for (reference, job) in [
            (json!(null), None),
            (json!({"kind": "Job", "name": "a"}), None),
            (json!({"apiGroup": "batch", "kind": "CronJob", "name": "a"}), None),
            (json!({"apiGroup": "batch", "kind": "Job", "name": "a"}), Some("a")),
        ] {
            let workload =
                json!({"metadata": {"name": "w", "uid": "u"}, "spec": {"controllerRef": reference}});
            assert_eq!(read(&WorkloadDecoder, &workload).job.as_deref(), job, "{reference}");
        }
    }

    #[test]
    fn a_pod_group_names_its_workload() {
        for (spec, workload) in [
            (json!({}), None),
            (json!({"podGroupTemplateRef": null}), None),
            (json!({"podGroupTemplateRef": {"workload": {"workloadName": "w"}}}), Some("w")),
        ] {
            let group = json!({"metadata": {"name": "g"}, "spec": spec});
            assert_eq!(read(&PodGroupDecoder, &group).workload.as_deref(), workload, "{spec}");
        }
    }
}
