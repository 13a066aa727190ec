//! `yardmaster man`: the manual pages, for packages.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};

use super::Failure;

/// Flags of `man`.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Folder for the pages: yardmaster.1, and one page for each command. It is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes the pages.
pub(super) fn run(args: &ManArgs, command: Command) -> Result<ExitCode, Failure> {
    let written =
        std::fs::create_dir_all(&args.out).and_then(|()| clap_mangen::generate_to(command, &args.out));
    written.map_err(|error| Failure::bad_input(format!("--out {}: {error}", args.out.display())))?;
    Ok(ExitCode::SUCCESS)
}
