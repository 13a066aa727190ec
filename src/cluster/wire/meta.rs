//! `metadata` of objects and lists.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::decode::DecodeError;
use super::lenient;
use super::protobuf::{Malformed, Message, Value};
use super::text::{Pairs, Text};
use crate::job::job_id::JobId;

/// `metadata.resourceVersion`: opaque text, which since Kubernetes 1.35 may be compared as a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceVersion {
    text: Box<str>,
}

impl ResourceVersion {
    /// The text to send back to the API server.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The version as a number: the later of two readings of one resource type has the larger one. 0 for text
    /// that is not a number.
    pub fn order(&self) -> u64 {
        version_number(Some(&self.text))
    }
}

/// `metadata.resourceVersion` as a number; 0 if it is absent, or is not a number.
pub(crate) fn version_number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The owner reference with `controller: true`, which the author of the object has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ControllerRef {
    /// A Job of `batch/v1`, if there is one of this identity.
    Job(JobId),
    /// A Job of `batch/v1` that cannot exist: no Job can have its name or UID.
    NoJob,
    /// An object of another kind.
    Other,
}

impl ControllerRef {
    /// The Job that it refers to, if there can be such a Job.
    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Job(job) => Some(job),
            Self::NoJob | Self::Other => None,
        }
    }

    /// Whether this is a reference to a Job of `batch/v1`, be there such a Job or not.
    pub fn is_job(&self) -> bool {
        *self != Self::Other
    }
}

/// `metadata` of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta<'a> {
    #[serde(borrow)]
    pub(crate) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) uid: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) resource_version: Option<Text<'a>>,
    pub(crate) generation: Option<i64>,
    #[serde(deserialize_with = "lenient::time")]
    pub(crate) creation_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::time")]
    pub(crate) deletion_timestamp: Option<Timestamp>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    pub(crate) labels: Option<Pairs<'a>>,
    #[serde(borrow)]
    pub(crate) annotations: Option<Pairs<'a>>,
    #[serde(borrow)]
    pub(crate) finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerReference<'a>>>,
    #[serde(borrow)]
    managed_fields: Option<Vec<FieldManager<'a>>>,
}

/// An entry of `managedFields`, without the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FieldManager<'a> {
    #[serde(borrow)]
    operation: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

impl<'a> Message<'a> for Meta<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.name = value.set_text()?,
            3 => self.namespace = value.set_text()?,
            5 => self.uid = value.set_text()?,
            6 => self.resource_version = value.set_text()?,
            7 => self.generation = Some(value.integer()?),
            8 => self.creation_timestamp = value.time()?,
            9 => self.deletion_timestamp = value.time()?,
            10 => self.deletion_grace_period_seconds = Some(value.integer()?),
            11 => {
                let (key, value) = value.pair()?;
                self.labels.get_or_insert_default().push(key, value);
            }
            12 => {
                let (key, value) = value.pair()?;
                self.annotations.get_or_insert_default().push(key, value);
            }
            13 => self.owner_references.get_or_insert_default().push(value.message()?),
            14 => self.finalizers.get_or_insert_default().push(value.text()?),
            17 => self.managed_fields.get_or_insert_default().push(value.message()?),
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for FieldManager<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 2 {
            self.operation = value.text()?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for OwnerReference<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.kind = value.text()?,
            3 => self.name = value.text()?,
            4 => self.uid = value.text()?,
            5 => self.api_version = value.text()?,
            6 => self.controller = Some(value.flag()?),
            _ => {}
        }
        Ok(())
    }
}

/// An object decoded for its metadata only.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Bare<'a> {
    #[serde(borrow)]
    pub(crate) metadata: Meta<'a>,
}

impl<'a> Message<'a> for Bare<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 1 {
            self.metadata = value.message()?;
        }
        Ok(())
    }
}

/// An object decoded for its version only.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Versioned<'a> {
    #[serde(borrow)]
    metadata: Version<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Version<'a> {
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
}

impl Versioned<'_> {
    pub(crate) fn version(&self) -> Result<ResourceVersion, DecodeError> {
        let version = self.metadata.resource_version.as_deref();
        version.map(ResourceVersion::from).ok_or(DecodeError::Missing("metadata.resourceVersion"))
    }
}

impl<'a> Message<'a> for Versioned<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 1 {
            self.metadata = value.message()?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for Version<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 6 {
            self.resource_version = value.set_text()?;
        }
        Ok(())
    }
}

impl Meta<'_> {
    pub(crate) fn name(&self) -> Result<&str, DecodeError> {
        self.name.as_deref().ok_or(DecodeError::Missing("metadata.name"))
    }

    pub(crate) fn uid(&self) -> Result<&str, DecodeError> {
        self.uid.as_deref().ok_or(DecodeError::Missing("metadata.uid"))
    }

    pub(crate) fn created(&self) -> Result<Timestamp, DecodeError> {
        self.creation_timestamp.ok_or(DecodeError::Missing("metadata.creationTimestamp"))
    }

    pub(crate) fn version(&self) -> ResourceVersion {
        self.resource_version.as_deref().unwrap_or_default().into()
    }

    /// [`ResourceVersion::order`] of the version.
    pub(crate) fn version_order(&self) -> u64 {
        version_number(self.resource_version.as_deref())
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    /// Whether fields of the object were applied.
    pub(crate) fn is_applied(&self) -> bool {
        self.managed_fields.iter().flatten().any(|manager| *manager.operation == *"Apply")
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().flatten().any(|f| **f == *name)
    }

    /// The controller of an object in this namespace. `claimed`: [`JobId::claimed`].
    pub(crate) fn controller(
        &self,
        namespace: &Arc<str>,
        claimed: impl FnOnce(&Arc<str>, &str, &str) -> Option<JobId>,
    ) -> Option<ControllerRef> {
        let owner = self.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        Some(match (&*owner.api_version, &*owner.kind) {
            ("batch/v1", "Job") => {
                claimed(namespace, &owner.name, &owner.uid).map_or(ControllerRef::NoJob, ControllerRef::Job)
            }
            _ => ControllerRef::Other,
        })
    }
}

/// `metadata` of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta<'a> {
    #[serde(borrow)]
    pub(crate) resource_version: Option<Text<'a>>,
    #[serde(borrow, rename = "continue")]
    pub(crate) continue_token: Option<Text<'a>>,
}

impl<'a> Message<'a> for ListMeta<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            2 => self.resource_version = value.set_text()?,
            3 => self.continue_token = value.set_text()?,
            _ => {}
        }
        Ok(())
    }
}
