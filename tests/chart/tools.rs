//! The programs that look at the chart.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::chart;
use crate::render::{NAMESPACE, RELEASE};

/// A program, if it is there. In CI it must be.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let found = which::which(name).ok();
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{name} is not found");
        eprintln!("skipped: {name} is not found; .ci/install-tools FOLDER brings it");
    }
    found
}

/// A version of Helm.
pub(crate) struct Helm {
    name: &'static str,
    path: PathBuf,
}

impl fmt::Display for Helm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All versions of Helm that the chart is made for, as far as they are there.
pub(crate) fn helms() -> Vec<Helm> {
    let found = |name| tool(name).map(|path| Helm { name, path });
    ["helm3", "helm4"].into_iter().filter_map(found).collect()
}

impl Helm {
    pub(crate) fn major(&self) -> u8 {
        self.name.trim_start_matches("helm").parse().unwrap()
    }

    pub(crate) fn command(&self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments);
        command
    }

    /// `helm template` of the chart.
    pub(crate) fn template(&self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
        let mut command = self.command(["template", RELEASE, "--namespace", NAMESPACE]);
        command.arg(chart()).args(arguments);
        command
    }
}

/// All that a program said.
pub(crate) fn text_of(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}
