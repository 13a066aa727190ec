//! Takes `spec.template.spec` out of a Job in protobuf, as it is needed for the Job's pods.

use super::meta::Meta;
use super::protobuf::{Malformed, Message, Value};
use crate::job::names::{COMPLETION_INDEX_ENV, completion_index_path};
use crate::job::protobuf::{Writer, field};

/// A Job in protobuf, reduced to its template's spec.
#[derive(Default)]
pub(crate) struct WirePodSpec<'a> {
    pub(crate) metadata: Meta<'a>,
    spec: JobSpec<'a>,
}

impl WirePodSpec<'_> {
    /// The fields of the spec of this Job's pods. For an Indexed Job, the spec has no
    /// `hostname`. Every container has the index in its environment, unless the user has
    /// set that variable.
    ///
    /// # Errors
    /// When the spec of an Indexed Job is malformed, or has a fixed-width number, which no pod of Kubernetes 1.36 has. The
    /// spec of another Job is copied unread.
    pub(crate) fn of_pods(&self, indexed: bool) -> Result<Vec<u8>, Malformed> {
        let given = self.spec.template.spec;
        if !indexed {
            return Ok(given.to_vec());
        }
        let mut spec = SpecAtIndex::default();
        spec.merge(given)?;
        Ok(spec.0.into_bytes())
    }
}

impl<'a> Message<'a> for WirePodSpec<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.metadata = value.message()?,
            2 => self.spec = value.message()?,
            _ => {}
        }
        Ok(())
    }
}

#[derive(Default)]
struct JobSpec<'a> {
    template: Template<'a>,
}

impl<'a> Message<'a> for JobSpec<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 6 {
            self.template = value.message()?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Template<'a> {
    spec: &'a [u8],
}

impl<'a> Message<'a> for Template<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 2 {
            self.spec = value.bytes()?;
        }
        Ok(())
    }
}

/// The spec of a pod that has an index.
#[derive(Default)]
struct SpecAtIndex(Writer);

impl<'a> Message<'a> for SpecAtIndex {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            field::HOSTNAME => {}
            field::CONTAINERS | field::INIT_CONTAINERS => {
                let container = value.bytes()?;
                let has_index = Container::read(container)?.has_index;
                self.0.message(number, |copy| {
                    copy.append(container);
                    if !has_index {
                        copy.message(field::ENV, index_env);
                    }
                });
            }
            _ => match value {
                Value::Number(value) => self.0.number(number, value),
                Value::Bytes(value) => self.0.bytes(number, value),
                Value::Other => return Err(Malformed::Type),
            },
        }
        Ok(())
    }
}

/// An `EnvVar` with the index of its pod.
fn index_env(variable: &mut Writer) {
    variable.bytes(1, COMPLETION_INDEX_ENV.as_bytes());
    variable.message(3, |source| {
        source.message(1, |reference| reference.bytes(2, completion_index_path().as_bytes()));
    });
}

#[derive(Default)]
struct Container {
    has_index: bool,
}

impl<'a> Message<'a> for Container {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == field::ENV {
            let variable: EnvVar<'_> = value.message()?;
            self.has_index |= variable.name == COMPLETION_INDEX_ENV.as_bytes();
        }
        Ok(())
    }
}

#[derive(Default)]
struct EnvVar<'a> {
    name: &'a [u8],
}

impl<'a> Message<'a> for EnvVar<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 1 {
            self.name = value.bytes()?;
        }
        Ok(())
    }
}
