//! Whether the API server answers, and whether it is new enough.

use bytes::Bytes;
use http::{Request, Response, header};
use jiff::Timestamp;

use super::context::Context;
use super::{CheckId, Finding};
use crate::cluster::transport::TransportError;
use crate::cluster::version::{MANAGED_BY, ServerVersion};

pub(super) const REACHABLE: CheckId = CheckId { group: "kubernetes", name: "api-server" };
pub(super) const VERSION: CheckId = CheckId { group: "kubernetes", name: "version" };

/// The least version that replacement mode is tested with, except for [`MANAGED_BY`].
const REPLACEMENT: ServerVersion = ServerVersion { major: 1, minor: 31 };

/// The answer at `/version`, and when it was asked for and received.
pub(super) struct Answer {
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
    pub(super) response: Response<Bytes>,
}

pub(super) async fn read(cx: &Context) -> Result<Answer, TransportError> {
    let request = Request::get("/version").header(header::ACCEPT, "application/json").body(Bytes::new());
    let request = request.map_err(|error| TransportError(error.to_string()))?;
    let sent = Timestamp::now();
    let response = cx.send(request).await?;
    Ok(Answer { sent, received: Timestamp::now(), response })
}

pub(super) fn reachable(read: &Result<Answer, TransportError>) -> Finding {
    match read {
        Ok(Answer { response, .. }) if response.status() == 401 => Finding::failed(
            "the API server refuses the credentials (401)",
            "Check the user of the kubeconfig, or the token of the service account.",
        ),
        Ok(_) => Finding::ok("the API server answers"),
        Err(error) => Finding::failed(
            format!("the API server does not answer: {error}"),
            "Check --kubeconfig, --context and the network.",
        ),
    }
}

pub(super) fn evaluate(read: &Result<Answer, TransportError>, replaces_built_in: bool) -> Finding {
    let Ok(Answer { response, .. }) = read else { return Finding::skipped("the API server does not answer") };
    match ServerVersion::of_response(response) {
        Ok(found) => judge(found, replaces_built_in),
        Err(error) => Finding::warning(
            format!("the version is unknown: {error}"),
            format!("Make sure that the API server is Kubernetes {MANAGED_BY} or newer."),
        ),
    }
}

fn judge(found: ServerVersion, replaces_built_in: bool) -> Finding {
    if found >= MANAGED_BY {
        Finding::ok(format!("Kubernetes {found}"))
    } else if !replaces_built_in {
        Finding::failed(
            format!("Kubernetes {found} drops spec.managedBy, so its built-in controller would run the Jobs"),
            format!("Upgrade the API server to {MANAGED_BY} or newer."),
        )
    } else if found >= REPLACEMENT {
        Finding::warning(
            format!("Kubernetes {found} is older than the versions that Yardmaster is tested with"),
            format!("Upgrade the API server to {MANAGED_BY} or newer."),
        )
    } else {
        Finding::failed(
            format!("Kubernetes {found} is too old"),
            format!("Upgrade the API server to {MANAGED_BY} or newer."),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::check::report::Status;

    fn answer(code: u16, body: &str) -> Result<Answer, TransportError> {
        let response = Response::builder().status(code).body(Bytes::from(body.to_owned())).unwrap();
        Ok(Answer { sent: Timestamp::UNIX_EPOCH, received: Timestamp::UNIX_EPOCH, response })
    }

    #[test]
    fn an_old_server_fails_unless_nobody_needs_managed_by() {
        use Status::{Failed, Ok, Warning};
        for (minor, external, replacement) in
            [("36", Ok, Ok), ("32", Ok, Ok), ("31+", Failed, Warning), ("30", Failed, Failed)]
        {
            let read = answer(200, &format!(r#"{{"major": "1", "minor": "{minor}"}}"#));
            assert_eq!(evaluate(&read, false).status, external, "1.{minor}");
            assert_eq!(evaluate(&read, true).status, replacement, "1.{minor}");
        }
    }

    #[test]
    fn an_unknown_version_is_a_warning_and_a_missing_answer_a_failure() {
        let forbidden = answer(403, "forbidden");
        assert_eq!(reachable(&forbidden).status, Status::Ok);
        assert_eq!(evaluate(&forbidden, false).status, Status::Warning);
        assert_eq!(reachable(&answer(401, "who?")).status, Status::Failed);
        assert_eq!(reachable(&Err(TransportError("refused".into()))).status, Status::Failed);
    }
}
