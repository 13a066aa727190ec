//! Strategic merge patches of pods.
//!
//! Each patch names the UID, so that the API server refuses it (422) for another pod of the same name.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::job::json::json_text;
use crate::job::names::SHARD_LABEL;
use crate::job::uid::Uid;

/// The values that a pod gets when a Job adopts it.
#[derive(Clone, Debug)]
pub struct Adoption<'a> {
    /// Name of the Job.
    pub job_name: &'a str,
    /// UID of the Job.
    pub job_uid: &'a Uid,
    /// The tracking finalizer; `None` if the pod keeps those that it has.
    pub finalizer: Option<&'a str>,
    /// The shard of the Job, where pods carry it as a label.
    pub shard: Option<u32>,
}

/// Removes a finalizer from a pod. This patch is written for every pod, so it is serialized without a
/// [`Value`].
#[derive(Serialize)]
struct Untrack<'a> {
    metadata: Untracked<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Untracked<'a> {
    uid: &'a Uid,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    #[serde(rename = "$deleteFromPrimitiveList/finalizers")]
    finalizers: [&'a str; 1],
    /// The one empty entry that resets the field: the API server then keeps no managers of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    managed_fields: Option<[Empty; 1]>,
}

#[derive(Serialize)]
struct Empty {}

/// Removes the tracking finalizer.
pub fn untrack_patch(pod: &Uid, finalizer: &str) -> Bytes {
    untrack(pod, None, finalizer, None)
}

/// Removes the tracking finalizer from a pod that has ended, and with it the `managedFields`. The API
/// server refuses the patch if the pod has changed since `version`, when it was not applied. Without
/// `managedFields` the API server needs less time and room for the pod.
pub fn untrack_ended_patch(pod: &Uid, version: u64, finalizer: &str) -> Bytes {
    untrack(pod, Some(version.to_string()), finalizer, Some([Empty {}]))
}

/// Removes the tracking finalizer, unless the pod has changed since `version`.
pub fn untrack_unchanged_patch(pod: &Uid, version: u64, finalizer: &str) -> Bytes {
    untrack(pod, Some(version.to_string()), finalizer, None)
}

fn untrack(
    uid: &Uid,
    resource_version: Option<String>,
    finalizer: &str,
    managed_fields: Option<[Empty; 1]>,
) -> Bytes {
    let metadata = Untracked { uid, resource_version, finalizers: [finalizer], managed_fields };
    render(&Untrack { metadata })
}

/// Makes the Job the pod's controller, tracks the pod if it is still to be counted, and labels it with its
/// shard. If the pod has changed since `version`, the patch is refused: another owner may have adopted and
/// counted it.
pub fn adopt_patch(pod: &Uid, version: u64, adoption: &Adoption<'_>) -> Bytes {
    let mut metadata = json!({
        "uid": pod,
        "resourceVersion": version.to_string(),
        "ownerReferences": [{
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": adoption.job_name,
            "uid": adoption.job_uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    });
    if let Some(finalizer) = adoption.finalizer {
        metadata["finalizers"] = json!([finalizer]);
    }
    if let Some(shard) = adoption.shard {
        metadata["labels"] = shard_label(shard);
    }
    render(&json!({"metadata": metadata}))
}

/// Removes the Job from the pod's owners, and the tracking finalizer, unless the pod has changed since `version`: the Job may
/// select it again. A pod that is released after all and adopted again would be counted twice.
pub fn release_patch(pod: &Uid, version: u64, job: &Uid, finalizer: &str) -> Bytes {
    render(&json!({"metadata": {
        "uid": pod,
        "resourceVersion": version.to_string(),
        "ownerReferences": [{"$patch": "delete", "uid": job}],
        "$deleteFromPrimitiveList/finalizers": [finalizer],
    }}))
}

/// Removes the tracking finalizer and the shard label from an orphan pod, unless the pod has changed since
/// `version`: another Job may have adopted it.
pub fn orphan_patch(pod: &Uid, version: u64, finalizer: &str) -> Bytes {
    render(&json!({"metadata": {
        "uid": pod,
        "resourceVersion": version.to_string(),
        "labels": { SHARD_LABEL: null },
        "$deleteFromPrimitiveList/finalizers": [finalizer],
    }}))
}

/// Labels the pod with the shard of its Job.
pub fn label_patch(pod: &Uid, shard: u32) -> Bytes {
    render(&json!({"metadata": {"uid": pod, "labels": shard_label(shard)}}))
}

fn shard_label(shard: u32) -> Value {
    json!({ SHARD_LABEL: shard.to_string() })
}

pub(super) fn render(patch: &impl Serialize) -> Bytes {
    json_text(patch).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(patch: &Bytes) -> Value {
        serde_json::from_slice(patch).unwrap()
    }

    #[test]
    fn patches_name_the_pod_and_change_only_the_intended_fields() {
        let (pod, job): (Uid, Uid) = ("p-uid".into(), "j-uid".into());
        assert_eq!(
            read(&untrack_patch(&pod, "f")),
            json!({"metadata": {"uid": "p-uid", "$deleteFromPrimitiveList/finalizers": ["f"]}})
        );
        assert_eq!(
            read(&untrack_ended_patch(&pod, 7, "f")),
            json!({"metadata": {"uid": "p-uid", "resourceVersion": "7",
                "$deleteFromPrimitiveList/finalizers": ["f"], "managedFields": [{}]}})
        );
        assert_eq!(
            read(&release_patch(&pod, 5, &job, "f")),
            json!({"metadata": {"uid": "p-uid", "resourceVersion": "5", "$deleteFromPrimitiveList/finalizers": ["f"],
                "ownerReferences": [{"$patch": "delete", "uid": "j-uid"}]}})
        );
        assert_eq!(
            read(&label_patch(&pod, 7)),
            json!({"metadata": {"uid": "p-uid", "labels": {"yardmaster.dev/shard": "7"}}})
        );
        let adoption = Adoption { job_name: "j", job_uid: &job, finalizer: Some("f"), shard: Some(63) };
        assert_eq!(
            read(&adopt_patch(&pod, 5, &adoption)),
            json!({"metadata": {"uid": "p-uid", "resourceVersion": "5", "finalizers": ["f"], "labels": {"yardmaster.dev/shard": "63"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-uid",
                    "controller": true, "blockOwnerDeletion": true}]}})
        );
        let without_shard = read(&adopt_patch(&pod, 5, &Adoption { shard: None, ..adoption }));
        assert!(without_shard["metadata"].get("labels").is_none());
    }
}
