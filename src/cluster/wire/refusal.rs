//! Refusals of the API server (`metav1.Status`).

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::protobuf::{self, Malformed, Message, Value};
use super::text::Text;
use crate::job::short_text::{SHORT, short};

/// Most bytes of a refusal that say something; no more are read of a longer one.
pub(crate) const LONGEST_REFUSAL: usize = 64 << 10;

/// The API server's refusal of a request. Its texts are cut: webhooks and authors of Jobs choose the whole.
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
enum Origin {
    /// Another cause.
    #[default]
    Other,
    /// An admission webhook has failed, or has refused the request.
    Webhook,
    /// The name belongs to an object of another UID.
    AnotherUid,
    /// The API server finds the object invalid, and names the fields.
    InvalidObject,
    /// The namespace is being deleted.
    NamespaceTerminating,
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
        Self { code, reason: "".into(), message: short(message).into(), origin: Origin::Webhook }
    }

    fn from_body(code: u16, body: &[u8], status: Option<WireRefusal<'_>>) -> Self {
        match status.filter(|status| status.message.is_some()) {
            _ if body.len() > LONGEST_REFUSAL => Self::cut(code, body),
            Some(status) => Self::from_status(code, status),
            None => Self {
                code,
                reason: "".into(),
                // A byte more than is kept shows that the body is longer.
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

    /// Whether the API server itself says that there is no such object. A proxy in front of it that finds no
    /// way to it also answers with 404. So does a webhook that misses another object.
    pub fn is_not_found(&self) -> bool {
        self.code == StatusCode::NOT_FOUND.as_u16() && *self.reason == *"NotFound" && !self.is_of_webhook()
    }

    /// Whether the request was refused because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.origin == Origin::NamespaceTerminating
    }

    /// Whether an admission webhook has failed, or has refused the request with any code: the API server
    /// itself is well.
    pub fn is_of_webhook(&self) -> bool {
        self.origin == Origin::Webhook
    }

    /// Whether the API server itself finds the object invalid, and names the fields. Webhooks and policies, which name none, may
    /// use the same code and reason.
    pub fn is_of_invalid_object(&self) -> bool {
        self.origin == Origin::InvalidObject
    }

    /// Whether the request named another UID than that of the object which now has the name. Patches are then
    /// refused with 422 at `metadata.uid`, deletions with a conflict.
    pub fn is_of_another_uid(&self) -> bool {
        self.origin == Origin::AnotherUid
    }
}

impl Origin {
    fn of(code: u16, status: &WireRefusal<'_>) -> Self {
        let message = status.message.as_deref().unwrap_or_default();
        let causes = || status.details.iter().flat_map(|details| details.causes.iter().flatten());
        let fields = || causes().filter_map(|cause| cause.field.as_deref());
        let is_denied = message.starts_with("admission webhook \"") && message.contains("denied the request");
        let is_of_another_uid = match code {
            409 => ["UID in the precondition", "UID in precondition"].iter().any(|uid| message.contains(uid)),
            422 => fields().any(|field| field == "metadata.uid"),
            _ => false,
        };
        let is_invalid = code == 422 && status.reason.as_deref() == Some("Invalid");
        if is_denied || message.contains("failed calling webhook \"") {
            Self::Webhook
        } else if is_of_another_uid {
            Self::AnotherUid
        } else if is_invalid && fields().any(|field| !field.is_empty()) {
            Self::InvalidObject
        } else if causes().any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating")) {
            Self::NamespaceTerminating
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Webhooks pass on the API server's answers about other objects.
    #[test]
    fn what_a_webhook_says_is_not_said_of_the_object() {
        let status = |code: u16, reason: &str, text: &str| {
            let causes = json!([{"reason": "NamespaceTerminating", "field": "metadata.uid"}]);
            let message = format!("admission webhook \"w\" denied the request: {text}");
            let status =
                json!({"code": code, "reason": reason, "message": message, "details": {"causes": causes}});
            Refusal::read(code, status.to_string().as_bytes())
        };
        for (code, reason, text) in [
            (404, "NotFound", "configmaps \"c\" not found"),
            (409, "Conflict", "UID in precondition: a, UID in object meta: b"),
            (422, "Invalid", "metadata.uid: Invalid value"),
            (403, "Forbidden", "the namespace is being terminated"),
        ] {
            let refusal = status(code, reason, text);
            let is_taken_for_ours = refusal.is_not_found()
                || refusal.is_of_another_uid()
                || refusal.is_of_invalid_object()
                || refusal.is_namespace_terminating();
            assert!(refusal.is_of_webhook() && !is_taken_for_ours, "{refusal:?}");
        }
    }

    #[test]
    fn a_long_refusal_is_classified_before_it_is_cut() {
        let long = "container \"c\" must not run as root, ".repeat(200);
        let cause = |reason: &str, field: &str| json!({"reason": reason, "message": long, "field": field});
        let refusal = |code: u16, message: &str, last: serde_json::Value| {
            let causes = [cause("FieldValueInvalid", &long), last];
            let status =
                json!({"code": code, "reason": long, "message": message, "details": {"causes": causes}});
            Refusal::read(code, status.to_string().as_bytes())
        };
        let failed = refusal(422, &format!("{long}: failed calling webhook \"w\""), cause("", ""));
        assert!(failed.is_of_webhook());
        assert!(failed.message.len() <= SHORT && failed.message.ends_with('…'), "{}", failed.message);
        assert!(failed.reason.len() <= SHORT);
        assert!(refusal(422, &long, cause("", "metadata.uid")).is_of_another_uid());
        assert!(refusal(403, &long, cause("NamespaceTerminating", "")).is_namespace_terminating());
        let denial = format!("admission webhook \"w\": {long} denied the request");
        assert!(refusal(422, &denial, cause("", "")).is_of_webhook());
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
