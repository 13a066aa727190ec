//! Limits of the resources of a process: open files and memory.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::replicas::CONTROLLER;

/// Enough for the connections of all load tests. Some programs start slowly with a limit of millions.
const ENOUGH: u64 = 65_536;

/// Limits of a process.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Limits {
    /// Limit of open files of each replica [default: that of this process].
    #[arg(long = "replica-open-files", value_name = "N")]
    pub(crate) open_files: Option<u64>,
    /// Limit of the address space of each replica, in MiB [default: none].
    #[arg(long = "replica-memory", value_name = "MIB")]
    pub(crate) memory_mib: Option<u64>,
}

/// Flags of the program that sets limits and then becomes another program.
#[derive(Debug, Args)]
pub(crate) struct LimitedArgs {
    #[command(flatten)]
    limits: Limits,
    /// The program, which acts as the controller if it is this one.
    program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl Limits {
    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        self.open_files.is_none() && self.memory_mib.is_none()
    }

    /// The flags that name them.
    pub(crate) fn flags(&self) -> Vec<String> {
        let files = self.open_files.map(|count| ["--replica-open-files".to_owned(), count.to_string()]);
        let memory = self.memory_mib.map(|size| ["--replica-memory".to_owned(), size.to_string()]);
        files.into_iter().chain(memory).flatten().collect()
    }

    /// Sets them for the rest of this process.
    fn set(self) -> Result<()> {
        let memory = self.memory_mib.map(|size| size << 20);
        for (resource, limit) in [(Resource::Nofile, self.open_files), (Resource::As, memory)] {
            if limit.is_some() {
                setrlimit(resource, Rlimit { current: limit, maximum: limit })
                    .with_context(|| format!("cannot set {resource:?} to {limit:?}"))?;
            }
        }
        Ok(())
    }
}

impl LimitedArgs {
    /// Sets the limits, and becomes the program. Returns only if that fails.
    pub(crate) fn exec(self) -> Result<std::convert::Infallible> {
        let mut command = std::process::Command::new(&self.program);
        command.arg0(CONTROLLER).args(self.args);
        self.limits.set()?;
        Err(command.exec()).with_context(|| format!("cannot start {}", self.program.display()))
    }
}

/// Raises this process's own limit of open files as far as it may: each watch is a connection.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let possible = limit.maximum.map_or(ENOUGH, |maximum| maximum.min(ENOUGH));
    if limit.current.is_some_and(|current| current < possible) {
        // With less, large loads fail with an error that says so.
        let _refused = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), ..limit });
    }
}
