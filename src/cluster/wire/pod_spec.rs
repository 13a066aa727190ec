//! Takes `spec.template.spec` out of a Job in protobuf, as it is needed for the Job's pods.

use super::meta::Meta;
use super::protobuf::{Malformed, Message, Value};

/// A Job in protobuf, reduced to its template's spec.
#[derive(Default)]
pub(crate) struct WirePodSpec<'a> {
    pub(crate) metadata: Meta<'a>,
    spec: JobSpec<'a>,
}

impl<'a> WirePodSpec<'a> {
    /// The fields of the template's spec, as they were sent.
    pub(crate) fn of_template(&self) -> &'a [u8] {
        self.spec.template.spec
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
