//! How a command can fail, and the exit code for it.

use std::error::Error;
use std::process::ExitCode;

use kube::runtime::watcher;

use super::console::note;
use super::{INTERRUPTED, server_address};

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The input is wrong: one line per problem.
    BadInput(Vec<String>),
    /// The input is fine, but something else prevents the command.
    CouldNotRun(anyhow::Error),
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

impl Failure {
    /// A problem with the input.
    pub fn bad_input(problem: impl Into<String>) -> Self {
        Self::BadInput(vec![problem.into()])
    }

    /// Exit code 2, 3 or 130.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::BadInput(_) => ExitCode::from(2),
            Self::CouldNotRun(_) => ExitCode::from(3),
            Self::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }

    /// Prints the failure on standard error.
    pub fn print(&self) {
        match self {
            Self::BadInput(problems) => problems.iter().for_each(note),
            Self::CouldNotRun(error) => note(format_args!("error: {}", text(error))),
            Self::Interrupted => note("interrupted"),
        }
    }
}

/// The meaning of a request without an answer.
fn unreachable() -> String {
    match server_address::get() {
        Some(address) => format!("cannot reach the API server at {address}"),
        None => "cannot reach the API server".to_owned(),
    }
}

/// The next step after such a request.
const UNREACHABLE_NEXT: &str = "start it, or choose another with --kubeconfig or --context";

/// The outermost and the innermost message: those in between repeat each other.
pub(super) fn text(error: &anyhow::Error) -> String {
    let cause = without_number(&error.root_cause().to_string());
    if is_unreachable(error) {
        return format!("{}: {cause}; {UNREACHABLE_NEXT}", unreachable());
    }
    let context = error.to_string();
    if without_number(&context).ends_with(&cause) { context } else { format!("{context}: {cause}") }
}

/// Whether a request has got no answer, and nothing but the layers of the client says so.
fn is_unreachable(error: &anyhow::Error) -> bool {
    let is_of_client =
        |error: &(dyn Error + 'static)| error.is::<kube::Error>() || error.is::<watcher::Error>();
    let is_lost = |error: &(dyn Error + 'static)| {
        let error = error.downcast_ref::<kube::Error>();
        matches!(error, Some(kube::Error::Service(_) | kube::Error::HyperError(_)))
    };
    error.chain().next().is_some_and(is_of_client) && error.chain().any(is_lost)
}

/// The text of an error without the number that the system has for it.
fn without_number(text: &str) -> String {
    text.split_once(" (os error ").map_or(text, |(words, _)| words).to_owned()
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::CouldNotRun(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_no_answer_means_is_told_in_plain_words() {
        let refused = || io::Error::from_raw_os_error(111);
        let service = || kube::Error::Service(Box::new(refused()));
        let plain = format!("cannot reach the API server: Connection refused; {UNREACHABLE_NEXT}");
        assert_eq!(text(&service().into()), plain);
        assert_eq!(text(&watcher::Error::InitialListFailed(service()).into()), plain);
        assert_eq!(text(&anyhow::Error::new(service()).context("cannot x")), "cannot x: Connection refused");
        assert_eq!(text(&anyhow::anyhow!("Job a/b not found")), "Job a/b not found");
        assert_eq!(text(&refused().into()), "Connection refused (os error 111)");
    }
}
