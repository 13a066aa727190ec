//! Refusals of the API server (`metav1.Status`).

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::protobuf::{self, Malformed, Message, Value};
use super::text::Text;
use crate::job::short_text::{SHORT, short};

/// Most bytes of a refusal that say something; no more are read of a longer one.
pub(crate) const LONGEST_REFUSAL: usize = 64 << 10;

/// The API server's refusal of a request. Its texts are short: webhooks and authors of Jobs decide what a whole one says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason`, such as `AlreadyExists`; empty where the server gives none.
    pub reason: Box<str>,
    /// `message`, or the body where it is not a Status; cut.
    pub message: Box<str>,
    origin: Origin,
}

/// The cause of a refusal, read from its whole text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Origin {
    of_webhook: bool,
    of_another_uid: bool,
    invalid_object: bool,
    namespace_terminating: bool,
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
    /// A webhook may choose any number.
    code: Option<i64>,
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

    /// A refusal that is not read to its end: the API server's own are shorter, so a webhook has chosen it.
    fn cut(code: u16, body: &[u8]) -> Self {
        let begin = String::from_utf8_lossy(body.get(..2 * SHORT).unwrap_or(body));
        let message = begin.split_once("\"message\":\"").map_or(&*begin, |(_, message)| message);
        let origin = Origin { of_webhook: true, ..Origin::default() };
        Self { code, reason: "".into(), message: short(message).into(), origin }
    }

    fn from_body(code: u16, body: &[u8], status: Option<WireRefusal<'_>>) -> Self {
        match status.filter(|status| status.message.is_some()) {
            _ if body.len() > LONGEST_REFUSAL => Self::cut(code, body),
            Some(status) => Self::from_status(code, status),
            None => Self {
                code,
                reason: "".into(),
                // One byte more than is kept shows that the body is longer.
                message: short(String::from_utf8_lossy(body.get(..=SHORT).unwrap_or(body)).trim()).into(),
                origin: Origin::default(),
            },
        }
    }

    /// Converts a Status inside an answer, such as in a watch. Its own code takes precedence over `code`.
    pub(crate) fn from_status(code: u16, status: WireRefusal<'_>) -> Self {
        let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(code);
        Self {
            code,
            reason: short(status.reason.as_deref().unwrap_or_default()).into(),
            message: short(status.message.as_deref().unwrap_or_default()).into(),
            origin: Origin::of(code, &status),
        }
    }

    /// Whether the API server itself says that there is no such object. A proxy in front of it that finds no way to it
    /// answers with 404 as well.
    pub fn is_not_found(&self) -> bool {
        self.code == StatusCode::NOT_FOUND.as_u16() && *self.reason == *"NotFound"
    }

    /// Whether the request was refused because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.origin.namespace_terminating
    }

    /// Whether an admission webhook has failed, or has refused the request, whatever the code says: the API server
    /// itself is well.
    pub fn is_of_webhook(&self) -> bool {
        self.origin.of_webhook
    }

    /// Whether the API server itself finds the object invalid, and names the fields. Webhooks and policies, which name none, may
    /// use the same code and reason.
    pub fn is_of_invalid_object(&self) -> bool {
        self.origin.invalid_object
    }

    /// Whether the request named another UID than that of the object which now has the name. Patches are then
    /// refused with 422 at `metadata.uid`, deletions with a conflict.
    pub fn is_of_another_uid(&self) -> bool {
        self.origin.of_another_uid
    }
}

impl Origin {
    fn of(code: u16, status: &WireRefusal<'_>) -> Self {
        let message = status.message.as_deref().unwrap_or_default();
        let causes = || status.details.iter().flat_map(|details| details.causes.iter().flatten());
        let denied = message.starts_with("admission webhook \"") && message.contains("denied the request");
        let of_webhook = denied || message.contains("failed calling webhook \"");
        let names_field =
            || causes().any(|cause| cause.field.as_deref().is_some_and(|field| !field.is_empty()));
        Self {
            of_webhook,
            invalid_object: code == 422
                && status.reason.as_deref() == Some("Invalid")
                && !of_webhook
                && names_field(),
            of_another_uid: match code {
                409 => {
                    ["UID in the precondition", "UID in precondition"].iter().any(|uid| message.contains(uid))
                }
                422 => causes().any(|cause| cause.field.as_deref() == Some("metadata.uid")),
                _ => false,
            },
            namespace_terminating: causes()
                .any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_refusal_is_classified_before_it_is_cut() {
        let long = "container \"c\" must not run as root, ".repeat(200);
        let cause = |reason: &str, field: &str| json!({"reason": reason, "message": long, "field": field});
        let mut causes = vec![cause("FieldValueInvalid", &long)];
        causes.extend([cause("", "metadata.uid"), cause("NamespaceTerminating", "")]);
        let message = format!("{long}: failed calling webhook \"w\"");
        let refusal = |message: &str| {
            let status =
                json!({"code": 422, "reason": long, "message": message, "details": {"causes": causes}});
            Refusal::read(422, status.to_string().as_bytes())
        };
        let failed = refusal(&message);
        assert!(failed.is_of_webhook() && failed.is_of_another_uid() && failed.is_namespace_terminating());
        assert!(failed.message.len() <= SHORT && failed.message.ends_with('…'), "{}", failed.message);
        assert!(failed.reason.len() <= SHORT);
        assert!(refusal(&format!("admission webhook \"w\": {long} denied the request")).is_of_webhook());
        // The order of the fields is that of API servers.
        let endless =
            format!(r#"{{"kind":"Status","message":"admission webhook {}"}}"#, "denied ".repeat(10_000));
        let endless = Refusal::read(403, endless.as_bytes());
        assert!(endless.is_of_webhook() && endless.message.starts_with("admission webhook"), "{endless:?}");
        let of_any_number =
            Refusal::read(429, br#"{"message": "failed calling webhook \"w\"", "code": -70000}"#);
        assert!(of_any_number.is_of_webhook() && of_any_number.code == 429, "{of_any_number:?}");
        let page = Refusal::read(502, "é".repeat(SHORT).as_bytes());
        assert!(page.message.len() <= SHORT && page.message.ends_with('…'), "{}", page.message);
    }
}
