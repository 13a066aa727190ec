//! How a command can fail, and the exit code for it.

use std::process::ExitCode;

use super::INTERRUPTED;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// The input is wrong: one line per problem.
    BadInput(Vec<String>),
    /// Something outside of the input prevents it.
    CouldNotRun(anyhow::Error),
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

impl Failure {
    /// One problem with the input.
    pub fn bad_input(problem: impl Into<String>) -> Self {
        Self::BadInput(vec![problem.into()])
    }

    /// 2, 3 or 130.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::BadInput(_) => ExitCode::from(2),
            Self::CouldNotRun(_) => ExitCode::from(3),
            Self::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }

    /// Tells the user, on standard error.
    pub fn print(&self) {
        match self {
            Self::BadInput(problems) => problems.iter().for_each(|problem| eprintln!("{problem}")),
            Self::CouldNotRun(error) => {
                // What was tried and why it failed; the layers between repeat each other.
                let (tried, cause) = (error.to_string(), error.root_cause().to_string());
                if tried.ends_with(&cause) {
                    eprintln!("error: {tried}");
                } else {
                    eprintln!("error: {tried}: {cause}");
                }
            }
            Self::Interrupted => eprintln!("interrupted"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::CouldNotRun(error.into())
    }
}
