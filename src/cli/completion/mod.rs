//! `yardmaster completion`: what a shell needs to complete commands, and the names of the cluster.
//!
//! The script of a shell asks this program for candidates: it runs it with the variable [`VARIABLE`].

mod cluster;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, complete};
use clap_complete::env::{CompleteEnv, Shells};

use super::console::unless_closed;
use super::{Failure, command_line};

/// The variable by which a shell asks for candidates.
const VARIABLE: &str = "YARDMASTER_COMPLETE";
/// Tells kubectl that its shell must not add files.
const NO_FILES: &str = ":4";

/// Flags of `completion`.
#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell: bash, zsh or fish.
    #[arg(value_name = "SHELL")]
    shell: CompletedShell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script of a shell.
pub(super) fn run(args: &CompletionArgs) -> Result<ExitCode, Failure> {
    let name = match args.shell {
        CompletedShell::Bash => "bash",
        CompletedShell::Zsh => "zsh",
        CompletedShell::Fish => "fish",
    };
    let shells = Shells::builtins();
    let shell = shells.completer(name).ok_or_else(|| Failure::bad_input(format!("no shell {name}")))?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "yardmaster", "yardmaster", "yardmaster", &mut script)?;
    unless_closed(io::stdout().write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints candidates if a shell asks for them; `None` if none does.
pub(super) fn answer(command: fn() -> Command) -> Option<ExitCode> {
    let asked = CompleteEnv::with_factory(move || with_completers(command())).var(VARIABLE);
    match asked.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(error) => {
            super::console::note(error);
            Some(ExitCode::from(2))
        }
    }
}

/// Prints candidates as kubectl reads them from `kubectl_complete-yardmaster`, whose arguments are the words behind
/// `kubectl yardmaster`.
pub(super) fn answer_kubectl(command: Command) -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.len() < 2 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    let found = complete(&mut with_completers(command), words, last, None).unwrap_or_default();
    let mut out = String::new();
    for candidate in found {
        let value = candidate.get_value().to_string_lossy();
        let help = candidate.get_help().map(|help| format!("\t{}", help.to_string().replace('\n', " ")));
        out.push_str(&format!("{value}{}\n", help.unwrap_or_default()));
    }
    // kubectl that has gone away needs no candidates.
    let _unread = io::stdout().write_all(format!("{out}{NO_FILES}\n").as_bytes());
    ExitCode::SUCCESS
}

/// Gives flags and arguments the candidates that the cluster has for them.
fn with_completers(command: Command) -> Command {
    let command = command.mut_args(|argument| match argument.get_id().as_str() {
        "job" => completed(argument, cluster::jobs),
        "namespace" | "lease_namespace" => completed(argument, cluster::namespaces),
        "context" => completed(argument, cluster::contexts),
        _ => argument,
    });
    command_line::map_subcommands(command, with_completers)
}

fn completed(argument: Arg, candidates: cluster::Completer) -> Arg {
    argument.add(ArgValueCompleter::new(candidates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_namespaces_have_completers() {
        let command = Command::new("x").subcommand(
            Command::new("status").arg(Arg::new("job")).arg(Arg::new("namespace").long("namespace")),
        );
        let command = with_completers(command);
        let status = command.find_subcommand("status");
        let arguments = status.into_iter().flat_map(Command::get_arguments);
        assert_eq!(arguments.filter(|argument| argument.get::<ArgValueCompleter>().is_some()).count(), 2);
    }
}
