//! The output of a cluster: no secret, unless a terminal shows it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::pty::{OpenptyResult, openpty};
use nix::sys::signal::Signal;

use crate::binary::{Background, yardmaster};

fn cluster() -> Command {
    let mut command = yardmaster();
    command.args(["cluster", "--kubelet", "none"]).stderr(Stdio::null());
    command
}

/// All lines up to the last that a cluster prints when it starts.
fn start_up(output: impl Read) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in BufReader::new(output).lines() {
        lines.push(line.unwrap());
        if lines.iter().any(|line| line.contains("export KUBECONFIG=")) {
            return lines;
        }
    }
    panic!("the cluster does not start: {lines:?}");
}

fn page(lines: &[String]) -> &str {
    lines.iter().find_map(|line| line.strip_prefix("page ")).unwrap().trim()
}

/// Whether a text has something as long as a secret in hexadecimal digits.
fn has_secret(text: &str) -> bool {
    text.split(|letter: char| !letter.is_ascii_hexdigit()).any(|word| word.len() >= 32)
}

#[test]
fn a_log_gets_the_address_of_the_page_without_its_token() {
    let mut process = Background::start(&mut cluster());
    let lines = start_up(process.0.stdout.take().unwrap());
    assert!(!lines.iter().any(|line| line.contains("#token") || has_secret(line)), "{lines:?}");
    let (url, file) = page(&lines).split_once(" (with its token: ").unwrap();
    let file = Path::new(file.trim_end_matches(')'));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
    let whole = std::fs::read_to_string(file).unwrap();
    assert!(whole.starts_with(&format!("{url}#token=")) && has_secret(&whole), "{whole}");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.exit_code(), Some(0));
    assert!(!file.exists());
}

#[test]
fn a_terminal_shows_the_address_of_the_page_with_its_token() {
    let OpenptyResult { master, slave } = openpty(None, None).unwrap();
    let mut process = Background::start(cluster().stdout(Stdio::from(slave)));
    let lines = start_up(File::from(master));
    let page = page(&lines);
    assert!(page.contains("/#token=") && has_secret(page), "{lines:?}");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.exit_code(), Some(0));
}
