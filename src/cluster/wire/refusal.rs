//! Refusals of the API server (`metav1.Status`).

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::protobuf::{self, Malformed, Message, Value};
use super::text::Text;

/// The API server's refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason`, such as `AlreadyExists`; empty where the server gives none.
    pub reason: Box<str>,
    /// `message`, or the body where it is not a Status.
    pub message: Box<str>,
    /// (`reason`, `field`) of `details.causes`.
    pub causes: Vec<(Box<str>, Box<str>)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireRefusal<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    #[serde(borrow)]
    details: Option<WireDetails<'a>>,
    code: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireDetails<'a> {
    #[serde(borrow)]
    causes: Option<Vec<WireCause<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCause<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    field: Option<Text<'a>>,
}

impl<'a> Message<'a> for WireRefusal<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            3 => self.message = Some(value.text()?),
            4 => self.reason = value.set_text()?,
            5 => self.details = Some(value.message()?),
            6 => self.code = Some(value.integer()?).filter(|code| *code != 0),
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireDetails<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 4 {
            self.causes.get_or_insert_default().push(value.message()?);
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireCause<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.reason = value.set_text()?,
            3 => self.field = value.set_text()?,
            _ => {}
        }
        Ok(())
    }
}

/// Bytes kept as the message from a body that is not a Status.
const MESSAGE_BYTES: usize = 500;

impl Refusal {
    /// Reads the body of an answer in JSON with this HTTP status.
    pub fn read(code: u16, body: &[u8]) -> Self {
        Self::from_body(code, body, serde_json::from_slice(body).ok())
    }

    /// Reads the body of an answer in the format that its headers name.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let code = status.as_u16();
        if protobuf::is_in_protobuf(headers) {
            Self::from_body(code, body, protobuf::object(body).and_then(WireRefusal::read).ok())
        } else {
            Self::read(code, body)
        }
    }

    fn from_body(code: u16, body: &[u8], status: Option<WireRefusal<'_>>) -> Self {
        match status.filter(|status| status.message.is_some()) {
            Some(status) => Self::from_status(code, status),
            None => Self {
                code,
                reason: "".into(),
                message: String::from_utf8_lossy(body.get(..MESSAGE_BYTES).unwrap_or(body)).trim().into(),
                causes: Vec::new(),
            },
        }
    }

    /// Converts a Status inside an answer, such as in a watch. Its own code takes precedence over `code`.
    pub(crate) fn from_status(code: u16, status: WireRefusal<'_>) -> Self {
        let text = |text: Option<Text<'_>>| Box::from(text.as_deref().unwrap_or_default());
        let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
        Self {
            code: status.code.unwrap_or(code),
            reason: text(status.reason),
            message: text(status.message),
            causes: causes.into_iter().map(|cause| (text(cause.reason), text(cause.field))).collect(),
        }
    }

    /// Whether the API server itself says that there is no such object. A proxy in front of it that finds no way to it
    /// answers with 404 as well.
    pub fn is_not_found(&self) -> bool {
        self.code == StatusCode::NOT_FOUND.as_u16() && *self.reason == *"NotFound"
    }

    /// Whether the request was refused because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.causes.iter().any(|(reason, _)| **reason == *"NamespaceTerminating")
    }

    /// Whether an admission webhook has failed, or has refused the request, whatever the code says: the API server
    /// itself is well.
    pub fn is_of_webhook(&self) -> bool {
        let denied =
            self.message.starts_with("admission webhook \"") && self.message.contains("denied the request");
        denied || self.message.contains("failed calling webhook \"")
    }

    /// Whether the request named another UID than that of the object which now has the name. Patches are then
    /// refused with 422 at `metadata.uid`, deletions with a conflict.
    pub fn is_of_another_uid(&self) -> bool {
        match self.code {
            409 => {
                self.message.contains("UID in the precondition")
                    || self.message.contains("UID in precondition")
            }
            422 => self.causes.iter().any(|(_, field)| **field == *"metadata.uid"),
            _ => false,
        }
    }
}
