//! Whether output has colours.

use std::env::var_os;
use std::io::{IsTerminal, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;

/// When output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorChoice {
    /// On a terminal, unless the variable `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

static STDOUT: AtomicBool = AtomicBool::new(false);
static STDERR: AtomicBool = AtomicBool::new(false);

/// Decides for this process; before, nothing has colours.
pub(super) fn choose(choice: ColorChoice) {
    let no_color = var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colors = |is_terminal| has_colors(choice, no_color, is_terminal);
    STDOUT.store(has_colors(stdout().is_terminal()), Ordering::Relaxed);
    STDERR.store(has_colors(stderr().is_terminal()), Ordering::Relaxed);
    // Otherwise crossterm asks the variable once more, and leaves out what the flag wants.
    crossterm::style::force_color_output(choice == ColorChoice::Always || !no_color);
}

fn has_colors(choice: ColorChoice, no_color: bool, is_terminal: bool) -> bool {
    match choice {
        ColorChoice::Auto => is_terminal && !no_color,
        ColorChoice::Always => true,
        ColorChoice::Never => false,
    }
}

/// Whether standard output has colours.
pub(super) fn on_stdout() -> bool {
    STDOUT.load(Ordering::Relaxed)
}

/// Whether standard error has colours.
pub(super) fn on_stderr() -> bool {
    STDERR.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_decides_before_the_variable_and_the_terminal() {
        for (choice, no_color, is_terminal, expected) in [
            (ColorChoice::Auto, false, true, true),
            (ColorChoice::Auto, true, true, false),
            (ColorChoice::Auto, false, false, false),
            (ColorChoice::Always, true, false, true),
            (ColorChoice::Never, false, true, false),
        ] {
            assert_eq!(
                has_colors(choice, no_color, is_terminal),
                expected,
                "{choice:?} {no_color} {is_terminal}"
            );
        }
    }
}
