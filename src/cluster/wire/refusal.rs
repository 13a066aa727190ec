//! Refusals of the API server (`metav1.Status`).

use serde::Deserialize;

use super::text::Text;

/// A failed request as the API server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason`, such as `AlreadyExists`; empty where the server gives none.
    pub reason: Box<str>,
    /// `message`, or the body where it is no Status.
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

/// Bytes of a body that is no Status which are kept for the message.
const MESSAGE_BYTES: usize = 500;

impl Refusal {
    /// Reads the body of an answer with this HTTP status.
    pub fn read(code: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<WireRefusal<'_>>(body) {
            Ok(status) if status.message.is_some() => Self::from_status(code, status),
            _ => Self {
                code,
                reason: "".into(),
                message: String::from_utf8_lossy(body.get(..MESSAGE_BYTES).unwrap_or(body)).trim().into(),
                causes: Vec::new(),
            },
        }
    }

    /// Takes over a Status that came within an answer, such as in a watch; its own code wins over `code`.
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

    /// Whether the request was refused because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.causes.iter().any(|(reason, _)| **reason == *"NamespaceTerminating")
    }

    /// Whether the request named the UID of another object than the one that now bears the name: patches are then
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
