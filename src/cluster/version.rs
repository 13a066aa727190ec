//! The version of an API server, and the features that depend on it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use serde::Deserialize;

use super::transport::{Transport, TransportError};
use super::wire::Refusal;

/// The least version that keeps `spec.managedBy` of Jobs by default. Older ones drop the field
/// without a word.
pub const MANAGED_BY: ServerVersion = ServerVersion { major: 1, minor: 32 };

/// The Kubernetes version whose behaviour an API server shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

/// Why the version of an API server is not known.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// There was no answer.
    #[error("no answer: {0}")]
    Transport(#[from] TransportError),
    /// The API server refused.
    #[error("the API server refused ({}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The answer has no version in it.
    #[error("the answer at /version is not understood")]
    Unreadable,
}

impl VersionError {
    /// No answer has come within this time.
    pub fn no_answer(within: Duration) -> Self {
        TransportError(format!("none within {within:?}")).into()
    }

    /// Whether a later attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Transport(_) => true,
            Self::Refused(refusal) => refusal.code >= 500 || refusal.code == 429,
            Self::Unreadable => false,
        }
    }
}

/// The fields of `/version` that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    major: String,
    minor: String,
    /// The version whose behaviour the server shows, where it can be another than its own.
    emulation_major: Option<String>,
    emulation_minor: Option<String>,
}

impl ServerVersion {
    /// Reads the version.
    ///
    /// # Errors
    /// See [`VersionError`].
    pub async fn read(transport: &dyn Transport) -> Result<Self, VersionError> {
        let request = Request::get("/version").header(header::ACCEPT, "application/json").body(Bytes::new());
        let request = request.map_err(|error| TransportError(error.to_string()))?;
        Self::of_response(&transport.send(request).await?)
    }

    /// The version in an answer.
    ///
    /// # Errors
    /// When the answer is a refusal, or has no version in it.
    pub fn of_response(response: &Response<Bytes>) -> Result<Self, VersionError> {
        let status = response.status();
        if !status.is_success() {
            return Err(VersionError::Refused(Refusal::read(status.as_u16(), response.body())));
        }
        Self::of(response.body()).ok_or(VersionError::Unreadable)
    }

    fn of(body: &[u8]) -> Option<Self> {
        let info: Info = serde_json::from_slice(body).ok()?;
        let pair = |major: &str, minor: &str| Some(Self { major: number(major)?, minor: number(minor)? });
        let emulated = info.emulation_major.zip(info.emulation_minor);
        emulated.and_then(|(major, minor)| pair(&major, &minor)).or_else(|| pair(&info.major, &info.minor))
    }
}

/// The number that a text begins with: some providers append a `+`.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_version_is_read_as_providers_write_it() {
        for (body, expected) in [
            (r#"{"major": "1", "minor": "36"}"#, Some((1, 36))),
            (r#"{"major": "1", "minor": "31+"}"#, Some((1, 31))),
            (
                r#"{"major": "1", "minor": "34", "emulationMajor": "1", "emulationMinor": "31"}"#,
                Some((1, 31)),
            ),
            (r#"{"major": "1", "minor": "34", "emulationMajor": "", "emulationMinor": ""}"#, Some((1, 34))),
            (r#"{"major": "", "minor": ""}"#, None),
            ("ok", None),
        ] {
            let version = ServerVersion::of(body.as_bytes()).map(|version| (version.major, version.minor));
            assert_eq!(version, expected, "{body}");
        }
        assert!(ServerVersion { major: 1, minor: 31 } < MANAGED_BY);
        assert!(ServerVersion { major: 2, minor: 0 } > MANAGED_BY);
    }

    #[test]
    fn only_an_answer_that_may_change_is_waited_for() {
        let answer = |status: u16, body: &str| {
            let response = Response::builder().status(status).body(Bytes::from(body.to_owned())).unwrap();
            ServerVersion::of_response(&response).map_err(|error| error.is_temporary())
        };
        assert_eq!(answer(200, r#"{"major": "1", "minor": "32"}"#), Ok(MANAGED_BY));
        assert_eq!(answer(503, "starting"), Err(true));
        assert_eq!(answer(429, "busy"), Err(true));
        assert_eq!(answer(403, "forbidden"), Err(false));
        assert_eq!(answer(200, "ok"), Err(false));
        assert!(VersionError::no_answer(Duration::from_secs(1)).is_temporary());
    }
}
