//! The program in a shell: completion, the plugin of kubectl, manual pages.

mod krew;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::binary::{start_of, yardmaster};
use crate::cluster::Cluster;

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A folder for the path with the program under this name.
fn named(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    symlink(yardmaster().get_program(), folder.path().join(name)).unwrap();
    folder
}

/// A command whose path begins with this folder.
fn with_path(program: &str, folder: &Path) -> Command {
    let mut command = start_of(program.as_ref());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
    command
}

/// The words that bash completes the last of these to, after it has read the script.
fn completed(words: &[&str], kubeconfig: &Path) -> Vec<String> {
    let folder = named("yardmaster");
    let (last, before) = (words.len() - 1, words[words.len() - 2]);
    let script = format!(
        "source <(yardmaster completion bash); COMP_WORDS=({}); COMP_CWORD={last}; COMP_TYPE=9
        _clap_complete_yardmaster yardmaster '{}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[last]
    );
    let mut bash = with_path("bash", folder.path());
    let output = bash.args(["--norc", "-c", &script]).env("KUBECONFIG", kubeconfig).output().unwrap();
    text(&output).lines().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_completes_commands_flags_and_the_names_of_the_cluster() {
    let cluster = Cluster::start().await;
    let folder = TempDir::new().unwrap();
    let kubeconfig = cluster.write_kubeconfig(folder.path());
    for name in ["train-1", "train-2", "eval"] {
        cluster.create(name, json!({"suspend": true}), "10ms").await;
    }
    let asked = tokio::task::spawn_blocking(move || {
        let complete = |words: &[&str]| completed(words, &kubeconfig);
        assert_eq!(complete(&["yardmaster", "stat"]), ["status"]);
        assert!(complete(&["yardmaster", "status", "--unf"]).contains(&"--unfinished".to_owned()));
        assert_eq!(complete(&["yardmaster", "status", "tr"]), ["train-1", "train-2"]);
        assert_eq!(complete(&["yardmaster", "logs", "default/ev"]), ["default/eval"]);
        assert_eq!(complete(&["yardmaster", "logs", "-n", "kube-public", "tr"]), [""; 0]);
        assert_eq!(complete(&["yardmaster", "status", "-n", "kube-p"]), ["kube-public"]);
        // kubectl asks the same of the plugin.
        let plugin = named("kubectl_complete-yardmaster");
        let program = plugin.path().join("kubectl_complete-yardmaster");
        let output =
            start_of(program.as_os_str()).args(["status", "ev"]).env("KUBECONFIG", &kubeconfig).output();
        assert_eq!(text(&output.unwrap()), "eval\n:4\n");
    });
    asked.await.unwrap();
    cluster.end().await;
}

/// A shell must not wait for a cluster that does not answer.
#[test]
fn a_cluster_that_is_not_there_has_no_names() {
    let folder = TempDir::new().unwrap();
    assert_eq!(completed(&["yardmaster", "status", "tr"], &folder.path().join("none")), [""; 0]);
}

#[test]
fn each_shell_has_its_script() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&yardmaster().args(["completion", shell]).output().unwrap());
        assert!(script.contains("YARDMASTER_COMPLETE"), "{script}");
    }
    assert_eq!(yardmaster().args(["completion", "csh"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn kubectl_runs_the_program_as_a_plugin() {
    let folder = named("kubectl-yardmaster");
    let program = folder.path().join("kubectl-yardmaster");
    let help = text(&start_of(program.as_os_str()).args(["status", "--help"]).output().unwrap());
    assert!(help.contains("Usage: kubectl yardmaster status"), "{help}");
    let Ok(kubectl) = which::which("kubectl") else {
        assert!(std::env::var_os("CI").is_none(), "kubectl is missing");
        println!("skipped in part: there is no kubectl");
        return;
    };
    let output = with_path(kubectl.to_str().unwrap(), folder.path()).args(["yardmaster", "version"]).output();
    assert_eq!(text(&output.unwrap()), format!("yardmaster {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = TempDir::new().unwrap();
    let pages = folder.path().join("man1");
    text(&yardmaster().args(["man", "--out"]).arg(&pages).output().unwrap());
    let help = text(&yardmaster().arg("--help").output().unwrap());
    let (_, commands) = help.split_once("Commands:").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let mut count = 0;
    for line in commands.lines().filter(|line| !line.trim().is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        if command == "help" {
            continue;
        }
        let page = std::fs::read_to_string(pages.join(format!("yardmaster-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
        count += 1;
    }
    assert!(count >= 8, "{help}");
    assert!(pages.join("yardmaster.1").exists());
}
