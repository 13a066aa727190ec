//! How a command can fail, and the exit code for it.

use std::process::ExitCode;

use super::INTERRUPTED;
use super::console::note;

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
    /// One problem with the input.
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
            Self::CouldNotRun(error) => {
                // The outermost and the innermost message: those in between repeat each other.
                let (context, cause) = (error.to_string(), error.root_cause().to_string());
                if context.ends_with(&cause) {
                    note(format_args!("error: {context}"));
                } else {
                    note(format_args!("error: {context}: {cause}"));
                }
            }
            Self::Interrupted => note("interrupted"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::CouldNotRun(error.into())
    }
}
