//! The program `load-tests`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs it with these arguments, without variables of the environment that concern it.
pub fn load_tests(args: &[&str], report: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_load-tests"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("YARDMASTER_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    if let Some(file) = report {
        command.arg("--report").arg(file);
    }
    command.output().unwrap()
}
