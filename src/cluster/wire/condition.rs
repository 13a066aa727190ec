//! The part that conditions of pods and Jobs have in common.

use jiff::Timestamp;
use serde::Deserialize;

use super::lenient;
use super::protobuf::{Malformed, Message, Value};
use super::text::Text;

/// An element of `status.conditions` in JSON or protobuf.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow)]
    pub(super) reason: Option<Text<'a>>,
    #[serde(deserialize_with = "lenient::time")]
    pub(super) last_transition_time: Option<Timestamp>,
}

impl<'a> Message<'a> for WireCondition<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.kind = value.text()?,
            2 => self.status = value.text()?,
            4 => self.last_transition_time = value.time()?,
            5 => self.reason = value.set_text()?,
            _ => {}
        }
        Ok(())
    }
}
