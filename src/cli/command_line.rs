//! The command line of this process: how it was called, and what to type next.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

use clap::Command;

/// How this program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invocation {
    /// By its own name.
    Yardmaster,
    /// As a plugin of kubectl: `kubectl yardmaster`.
    Plugin,
    /// By kubectl, which completes the command line of the plugin.
    PluginCompletion,
}

impl Invocation {
    /// How this process was called.
    pub(super) fn of_process() -> Self {
        std::env::args_os().next().map_or(Self::Yardmaster, |program| Self::by(&program))
    }

    fn by(program: &OsStr) -> Self {
        match Path::new(program).file_name().and_then(OsStr::to_str) {
            Some("kubectl-yardmaster") => Self::Plugin,
            Some("kubectl_complete-yardmaster") => Self::PluginCompletion,
            _ => Self::Yardmaster,
        }
    }

    /// The words that call the program so.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Yardmaster => "yardmaster",
            Self::Plugin | Self::PluginCompletion => "kubectl yardmaster",
        }
    }
}

/// Changes every command below this one.
pub(super) fn map_subcommands(command: Command, change: fn(Command) -> Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, change))
}

/// This command line with flags behind its command, unless it has them.
pub(super) fn again_with(command: &str, flags: &[&str]) -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    format!("{} {}", Invocation::of_process().words(), with_flags(&words.collect::<Vec<_>>(), command, flags))
}

fn with_flags(words: &[String], command: &str, flags: &[&str]) -> String {
    // Flags go before a `--`, behind which everything belongs to another program.
    let place = words.iter().position(|word| word == command).map_or(words.len(), |place| place + 1);
    let (before, after) = words.split_at(place);
    let own = || words.iter().take_while(|word| *word != "--");
    let new = flags.iter().copied().filter(|flag| !own().any(|word| word == flag));
    let words = before.iter().map(String::as_str).chain(new);
    let quoted: Vec<_> = words.chain(after.iter().map(String::as_str)).map(quoted).collect();
    quoted.join(" ")
}

/// A word as a shell reads it.
pub(super) fn quoted(word: &str) -> Cow<'_, str> {
    // No word of a command line has a zero byte, which alone cannot be quoted.
    shlex::try_quote(word).unwrap_or(Cow::Borrowed(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_added_where_they_belong_to_the_program() {
        let words = ["run", "--", "sh", "-c", "exit 3"].map(str::to_owned);
        assert_eq!(with_flags(&words, "run", &["--keep"]), "run --keep -- sh -c 'exit 3'");
        let words = ["run", "--keep", "a b.yaml"].map(str::to_owned);
        assert_eq!(with_flags(&words, "run", &["--keep"]), "run --keep 'a b.yaml'");
    }

    #[test]
    fn the_name_of_the_program_says_who_calls() {
        for (program, call) in [
            ("yardmaster", Invocation::Yardmaster),
            ("/usr/bin/yardmaster", Invocation::Yardmaster),
            ("/root/.krew/bin/kubectl-yardmaster", Invocation::Plugin),
            ("kubectl_complete-yardmaster", Invocation::PluginCompletion),
        ] {
            assert_eq!(Invocation::by(OsStr::new(program)), call, "{program}");
        }
    }
}
