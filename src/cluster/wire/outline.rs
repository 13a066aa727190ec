//! Outlines of Jobs: the fields needed to handle pods that belong to no shard.

use std::sync::Arc;

use serde::Deserialize;

use super::condition::WireCondition;
use super::decode::{DecodeError, Decoder, FromProtobuf};
use super::intern::Interner;
use super::job_spec::{completion_mode, served};
use super::meta::Meta;
use super::observed_job::Unserved;
use super::protobuf::{Malformed, Message, Value};
use super::selector::{WireSelector, read_selector};
use super::text::Text;
use crate::job::job_id::JobId;
use crate::job::selector::Selector;
use crate::job::status::{ConditionKind, ConditionStatus};

/// The fields of a Job needed to handle pods that belong to no shard.
#[derive(Clone, Debug)]
pub struct JobOutline {
    /// Namespace, name and UID.
    pub id: JobId,
    /// `metadata.resourceVersion` as a number.
    pub version: u64,
    /// `spec.managedBy`; `None` means the controller built into Kubernetes.
    pub managed_by: Option<Box<str>>,
    /// `spec.selector`, or why the Job must be left alone.
    pub selector: Result<Arc<Selector>, Unserved>,
    /// Whether it may adopt pods: it is unfinished and not being deleted.
    pub adopts: bool,
}

/// Reads outlines of Jobs. In protobuf all other fields are skipped.
#[derive(Clone, Debug, Default)]
pub struct OutlineDecoder {
    interner: Interner,
}

impl Decoder for OutlineDecoder {
    type Wire<'a> = WireOutline<'a>;
    type Object = JobOutline;

    const FROM_PROTOBUF: Option<FromProtobuf<Self>> =
        Some(|decoder, bytes| decoder.observe(WireOutline::read(bytes)?));

    fn version(seen: &JobOutline) -> u64 {
        seen.version
    }

    fn observe(
        &self,
        WireOutline { metadata: meta, spec, status }: WireOutline<'_>,
    ) -> Result<JobOutline, DecodeError> {
        Ok(JobOutline {
            id: JobId::new(
                self.interner.get(meta.namespace.as_deref().unwrap_or_default()),
                meta.name()?.into(),
                meta.uid()?.into(),
            ),
            version: meta.version_order(),
            managed_by: spec.managed_by.as_deref().map(Box::from),
            // The Job's shard reports unknown values.
            selector: completion_mode(spec.completion_mode.as_deref())
                .and_then(|_| served(read_selector(spec.selector, &mut Vec::new())))
                .map(Arc::new),
            adopts: meta.deletion_timestamp.is_none() && !status.is_finished(),
        })
    }
}

/// A Job in JSON or protobuf.
#[derive(Debug, Default, Deserialize)]
pub struct WireOutline<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: WireStatus<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec<'a> {
    #[serde(borrow)]
    selector: Option<WireSelector<'a>>,
    #[serde(borrow)]
    completion_mode: Option<Text<'a>>,
    #[serde(borrow)]
    managed_by: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<WireCondition<'a>>>,
}

impl WireStatus<'_> {
    fn is_finished(&self) -> bool {
        self.conditions.iter().flatten().any(|condition| {
            let holds = ConditionStatus::from(&*condition.status) == ConditionStatus::True;
            holds && ConditionKind::named(&condition.kind).is_some_and(ConditionKind::is_end)
        })
    }
}

impl<'a> Message<'a> for WireOutline<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.metadata = value.message()?,
            2 => self.spec = value.message()?,
            3 => self.status = value.message()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireSpec<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            4 => self.selector = Some(value.message()?),
            9 => self.completion_mode = value.set_text()?,
            15 => self.managed_by = value.set_text()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireStatus<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 1 {
            self.conditions.get_or_insert_default().push(value.message()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_outline_says_whether_a_job_is_understood_and_adopts_which_pods() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let job = |metadata: Value, spec: Value, conditions: Value| {
            let mut job = json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}}, "status": {"conditions": conditions},
            });
            json_patch::merge(&mut job, &json!({"metadata": metadata, "spec": spec}));
            OutlineDecoder::default().decode(job.to_string().as_bytes()).unwrap()
        };
        let plain = job(
            json!({}),
            json!({}),
            json!([condition("Complete", "False"), condition("Suspended", "True")]),
        );
        assert_eq!((&**plain.id.namespace(), plain.version, plain.managed_by.as_deref()), ("n", 7, None));
        assert!(plain.adopts && plain.selector.unwrap().matches(|_| Some("b")));
        for end in ["Complete", "Failed"] {
            assert!(!job(json!({}), json!({}), json!([condition(end, "True")])).adopts, "{end}");
        }
        assert!(!job(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({}), json!([])).adopts);
        let other = job(json!({}), json!({"completionMode": "Woven", "managedBy": "x/y"}), json!(null));
        assert_eq!((other.selector.is_ok(), other.managed_by.as_deref()), (false, Some("x/y")));
        let absent = job(json!({}), json!({"selector": null}), json!([]));
        assert!(!absent.selector.unwrap().matches(|_| Some("b")));
    }
}
