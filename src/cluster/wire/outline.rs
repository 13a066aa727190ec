//! Jobs as far as they matter to pods that are of no shard.

use std::sync::Arc;

use serde::Deserialize;

use super::intern::Interner;
use super::job_spec::completion_mode;
use super::meta::Meta;
use super::protobuf::{Malformed, Message, Value};
use super::selector::{WireSelector, read_selector};
use super::text::Text;
use super::{DecodeError, Decoder, FromProtobuf};
use crate::job::selector::Selector;
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::uid::Uid;

/// A Job as far as it matters to pods that are of no shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutline {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion` as a number.
    pub version: u64,
    /// `spec.managedBy`; `None` stands for the controller built into Kubernetes.
    pub managed_by: Option<Box<str>>,
    /// Whether `spec.completionMode` is known: a Job of any other has to be left alone.
    pub is_understood: bool,
    /// `spec.selector`.
    pub selector: Selector,
    /// Unfinished and not being deleted: it may adopt pods.
    pub adopts: bool,
}

/// Reads outlines of Jobs. In protobuf what else there is of a Job is stepped over.
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
            namespace: self.interner.get(meta.namespace.as_deref().unwrap_or_default()),
            uid: meta.uid()?.into(),
            version: meta.version_order(),
            managed_by: spec.managed_by.as_deref().map(Box::from),
            is_understood: completion_mode(spec.completion_mode.as_deref()).is_ok(),
            // Its shard tells what is not understood of it.
            selector: read_selector(spec.selector, &mut Vec::new()),
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
}

impl WireStatus<'_> {
    fn is_finished(&self) -> bool {
        self.conditions.iter().flatten().any(|condition| {
            let holds = ConditionStatus::from(&*condition.status) == ConditionStatus::True;
            holds && ConditionKind::from(&*condition.kind).is_end()
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

impl<'a> Message<'a> for WireCondition<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.kind = value.text()?,
            2 => self.status = value.text()?,
            _ => {}
        }
        Ok(())
    }
}
