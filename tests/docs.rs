//! The documentation: links, commands, flags and manifests in it are as they are written.
//!
//! A code block with the info string `sh run` is run. A block with `sh background` is started, and stays up
//! until the end of its page. Both run in the root of the repository, with an empty home directory for each
//! page. `yaml values` marks values for the Helm chart.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod markdown;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;
use yardmaster::job::plan::Wait;
use yardmaster::job::predecessors::{Hindrance, Obstacle};

use crate::binary::{Background, until, yardmaster};
use crate::markdown::{Block, Page};

/// Values of `spec.managedBy` that a Job in the documentation may have.
const CONTROLLERS: [&str; 3] =
    ["yardmaster.dev/job-controller", "kubernetes.io/job-controller", "kueue.x-k8s.io/multikueue"];

/// Flags that the documentation mentions of other programs.
const FLAGS_OF_OTHERS: [&str; 5] =
    ["--concurrent-job-syncs", "--controllers", "--feature-gates", "--no-hooks", "--runtime-config"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All pages, by their path from the root of the repository.
fn pages() -> BTreeMap<PathBuf, Page> {
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from);
    let docs = std::fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| Path::new("docs").join(entry.unwrap().file_name()));
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let present = top.into_iter().filter(|path| root().join(path).exists());
    present.chain(docs).map(|path| (path.clone(), Page::read(&root().join(path)))).collect()
}

/// The code blocks of all pages whose info string is this, with where they are.
fn blocks<'a>(pages: &'a BTreeMap<PathBuf, Page>, info: &str) -> Vec<(String, &'a Block)> {
    let all = pages.iter().flat_map(|(path, page)| page.blocks.iter().map(move |block| (path, block)));
    let wanted = all.filter(|(_, block)| block.info == info);
    wanted.map(|(path, block)| (format!("{}:{}", path.display(), block.line), block)).collect()
}

/// A path without `.` and `..`; `None` if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => normal.pop().then_some(())?,
            Component::Normal(name) => normal.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

/// The page or file that a link leads to, from the root of the repository, and the anchor in it.
fn target(from: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let path = match file {
        "" => from.to_owned(),
        file => normal(&from.parent().unwrap_or(Path::new("")).join(file))?,
    };
    Some((path, anchor.map(str::to_owned)))
}

fn is_external(link: &str) -> bool {
    ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme))
}

#[test]
fn every_relative_link_and_anchor_resolves() {
    let pages = pages();
    let mut broken = Vec::new();
    for (from, page) in &pages {
        for link in page.links.iter().filter(|link| !is_external(link)) {
            let found = target(from, link).filter(|(path, anchor)| {
                let anchor = anchor.as_ref();
                let has_anchor = |page: &Page| anchor.is_none_or(|anchor| page.anchors.contains(anchor));
                match pages.get(path) {
                    Some(page) => has_anchor(page),
                    None => root().join(path).exists() && anchor.is_none(),
                }
            });
            if found.is_none() {
                broken.push(format!("{}: {link}", from.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_index_and_in_the_readme() {
    let pages = pages();
    let docs: BTreeSet<_> = pages.keys().filter(|path| path.starts_with("docs")).cloned().collect();
    for index in ["README.md", "docs/README.md"].map(Path::new) {
        let links = pages[index].links.iter().filter_map(|link| target(index, link));
        let linked: BTreeSet<_> = links.map(|(path, _)| path).collect();
        let missing: Vec<_> = docs.difference(&linked).filter(|path| !path.ends_with("README.md")).collect();
        assert!(missing.is_empty(), "{} does not link to {missing:?}", index.display());
    }
}

/// A shell in the root of the repository, with the built program in its path and both outputs in a file.
fn shell(script: &str, home: &Path, output: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_yardmaster"));
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&rest));
    let file = File::create(output).unwrap();
    let mut shell = Command::new("sh");
    shell
        .env("YARDMASTER_RUNTIME", "processes")
        .args(["-eu", "-c", script])
        .current_dir(root())
        .env("HOME", home)
        .env("PATH", std::env::join_paths(folders).unwrap())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file);
    for (variable, _) in yardmaster().get_envs().filter(|(_, value)| value.is_none()) {
        shell.env_remove(variable);
    }
    shell
}

#[test]
fn every_command_that_is_marked_runs() {
    let mut run = 0;
    for (path, page) in pages() {
        let home = TempDir::new().unwrap();
        let mut background = Vec::new();
        for (number, block) in page.blocks.iter().enumerate() {
            let output = home.path().join(format!("output-{number}"));
            let at = format!("{}:{}", path.display(), block.line);
            match block.info.as_str() {
                "sh run" => {
                    run += 1;
                    let mut command = Background::start(&mut shell(&block.text, home.path(), &output));
                    let code = command.exit_code();
                    let said = std::fs::read_to_string(&output).unwrap();
                    assert_eq!(code, Some(0), "{at}:\n{}\n{said}", block.text);
                }
                "sh background" => {
                    // The block is a single command, which replaces the shell, so that it gets the signal
                    // below.
                    assert_eq!(block.text.trim().lines().count(), 1, "{at}: more than one command");
                    let script = format!("exec {}", block.text);
                    background.push((
                        at.clone(),
                        output.clone(),
                        Background::start(&mut shell(&script, home.path(), &output)),
                    ));
                    until(&format!("{at} has said something"), || output.metadata().unwrap().len() > 0);
                }
                _ => {}
            }
        }
        for (at, output, mut command) in background {
            command.signal(Signal::SIGTERM);
            let code = command.exit_code();
            assert_eq!(code, Some(0), "{at}: {}", std::fs::read_to_string(&output).unwrap());
        }
    }
    assert!(run >= 5, "only {run} blocks are marked");
}

/// The flags in the help of each command.
fn flags() -> BTreeMap<String, BTreeSet<String>> {
    let help = |arguments: &[&str]| {
        let output = yardmaster().args(arguments).arg("--help").output().unwrap();
        assert!(output.status.success(), "yardmaster {arguments:?} --help");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = help(&[]);
    let (_, commands) = all.split_once("Commands:\n").unwrap();
    let names = commands.lines().map_while(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let flag = Regex::new("(?:^|[ \\[])(--?[a-z][a-z-]*)").unwrap();
    names
        .filter(|name| *name != "help")
        .map(|name| {
            let help = help(&[name]);
            (name.to_owned(), flag.captures_iter(&help).map(|found| found[1].to_owned()).collect())
        })
        .collect()
}

/// Each call of the program in a text: its command, and the flags behind it.
fn calls(text: &str) -> Vec<(String, Vec<String>)> {
    let call = Regex::new(r"(?:^|[\s;&|(!])yardmaster ([a-z]+)((?:\s[^|;&#]*)?)(?:$|[|;&#])").unwrap();
    let flag = Regex::new(r"(?:^|\s)(--?[a-z][a-z-]*)").unwrap();
    let joined = text.replace("\\\n", " ");
    let found = joined.lines().flat_map(|line| call.captures_iter(line).collect::<Vec<_>>());
    found
        .map(|call| {
            // The arguments after `--` belong to another program.
            let own = call[2].split(" -- ").next().unwrap_or_default();
            let flags = flag.captures_iter(own).map(|flag| flag[1].to_owned()).collect();
            (call[1].to_owned(), flags)
        })
        .collect()
}

#[test]
fn every_flag_behind_a_command_is_in_its_help() {
    let known = flags();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (path, page) in pages() {
        let shells = page.blocks.iter().filter(|block| !block.info.starts_with("yaml"));
        for text in shells.map(|block| &block.text).chain(&page.inline) {
            for (command, used) in calls(text) {
                let Some(flags) = known.get(&command) else {
                    wrong.push(format!("{}: no command `yardmaster {command}`", path.display()));
                    continue;
                };
                for flag in used.iter().filter(|flag| !flags.contains(*flag)) {
                    wrong.push(format!("{}: `yardmaster {command}` has no {flag}", path.display()));
                }
                seen.insert(command);
            }
        }
    }
    let all: BTreeSet<_> = known.values().flatten().map(String::as_str).collect();
    let alone = Regex::new("^--[a-z][a-z-]*").unwrap();
    for (path, page) in pages().iter().filter(|(path, _)| path.starts_with("docs")) {
        let flags = page.inline.iter().filter_map(|code| Some(alone.find(code)?.as_str()));
        let unknown = flags.filter(|flag| !all.contains(flag) && !FLAGS_OF_OTHERS.contains(flag));
        wrong.extend(unknown.map(|flag| format!("{}: no command has {flag}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for command in ["run", "cluster", "controller", "status", "logs", "reshard"] {
        assert!(seen.contains(command), "yardmaster {command} is nowhere in the documentation");
    }
}

#[test]
fn every_reason_to_wait_is_explained() {
    let now = Timestamp::UNIX_EPOCH;
    let after = |cause| Wait::After(Obstacle { cause, job: "before".into() });
    let waits = [
        Wait::Suspended,
        after(Hindrance::Unfinished),
        after(Hindrance::Missing),
        after(Hindrance::Cycle),
        after(Hindrance::Failed),
        Wait::Deleting,
        Wait::PodBackoff(now),
        Wait::IndexBackoff(now),
        Wait::Refused(now),
        Wait::Gang,
        Wait::Adopting,
        Wait::PodsUnknown,
        Wait::Terminating,
        Wait::FailureDebounce(now),
        Wait::Restarting,
        Wait::Finishing,
    ];
    let reasons: BTreeSet<_> = waits.iter().map(|wait| wait.reason().to_owned()).collect();
    let text = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("A Job does not go on")).unwrap();
    let row = Regex::new(r"(?m)^\| `([A-Za-z]+)` \|").unwrap();
    let explained: BTreeSet<_> = row.captures_iter(section).map(|row| row[1].to_owned()).collect();
    assert_eq!(explained, reasons);
}

/// The Jobs in a manifest: itself, or those that it is a template of.
fn jobs(manifest: &Value) -> Vec<Value> {
    let job = |spec: &Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec});
    let spec = &manifest["spec"];
    match manifest["kind"].as_str() {
        Some("Job") => vec![manifest.clone()],
        Some("CronJob") => vec![job(&spec["jobTemplate"]["spec"])],
        Some("ScaledJob") => vec![job(&spec["jobTargetRef"])],
        Some("JobSet") => {
            let replicated = spec["replicatedJobs"].as_array().into_iter().flatten();
            replicated.map(|replicated| job(&replicated["template"]["spec"])).collect()
        }
        Some("Workflow") => {
            let templates = spec["templates"].as_array().into_iter().flatten();
            let manifests = templates.filter_map(|template| template["resource"]["manifest"].as_str());
            manifests.flat_map(documents).flat_map(|manifest| jobs(&manifest)).collect()
        }
        _ => Vec::new(),
    }
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[test]
fn every_job_in_a_manifest_is_valid() {
    let pages = pages();
    let scratch = TempDir::new().unwrap();
    let (file, missing) = (scratch.path().join("job.json"), scratch.path().join("missing"));
    let mut kinds = BTreeSet::new();
    for (at, block) in blocks(&pages, "yaml") {
        for manifest in documents(&block.text) {
            let jobs = jobs(&manifest);
            assert!(!jobs.is_empty(), "{at}: no Job in it; values for the chart are marked `yaml values`");
            kinds.insert(manifest["kind"].as_str().unwrap().to_owned());
            for job in jobs {
                if let Some(name) = job["spec"]["managedBy"].as_str() {
                    assert!(CONTROLLERS.contains(&name), "{at}: managedBy: {name}");
                }
                std::fs::write(&file, job.to_string()).unwrap();
                // All files are checked before anything starts, so the second one keeps the Job from being
                // run. Clusters have what this machine lacks.
                let mut run = yardmaster();
                let output = run
                    .arg("run")
                    .args([&file, &missing])
                    .arg("--kubeconfig")
                    .arg(&missing)
                    .output()
                    .unwrap();
                let said = String::from_utf8(output.stderr).unwrap();
                let others: Vec<_> =
                    said.lines().filter(|line| !line.starts_with(missing.to_str().unwrap())).collect();
                assert_eq!((output.status.code(), others), (Some(2), vec![]), "{at}");
            }
        }
    }
    let all = ["CronJob", "Job", "JobSet", "ScaledJob", "Workflow"].map(str::to_owned);
    assert_eq!(kinds, BTreeSet::from(all));
}

/// The paths of all leaves, such as `image.tag`.
fn leaves(value: &Value, path: &str, into: &mut Vec<String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() => fields.iter().for_each(|(name, field)| {
            leaves(field, format!("{path}.{name}").trim_start_matches('.'), into);
        }),
        _ => into.push(path.to_owned()),
    }
}

/// Whether the chart has this value, or one above it that takes any fields.
fn is_value(values: &Value, path: &str) -> bool {
    let mut at = values;
    for name in path.split('.') {
        match at {
            Value::Object(fields) if fields.is_empty() => return true,
            Value::Null => return true,
            _ => match at.get(name) {
                Some(field) => at = field,
                None => return false,
            },
        }
    }
    true
}

#[test]
fn every_value_of_the_chart_exists() {
    let Ok(text) = std::fs::read_to_string(root().join("charts/yardmaster/values.yaml")) else {
        println!("there is no chart in this checkout: skipped");
        return;
    };
    let values = documents(&text).remove(0);
    let set = Regex::new(r"--set ([A-Za-z][A-Za-z.]*)=").unwrap();
    let mut used = Vec::new();
    let pages = pages();
    for (at, block) in blocks(&pages, "yaml values") {
        for document in documents(&block.text) {
            let mut paths = Vec::new();
            leaves(&document, "", &mut paths);
            used.extend(paths.into_iter().map(|path| (at.clone(), path)));
        }
    }
    for (path, page) in &pages {
        for text in page.blocks.iter().map(|block| &block.text).chain(&page.inline) {
            let found =
                set.captures_iter(text).map(|found| (path.display().to_string(), found[1].to_owned()));
            used.extend(found);
        }
    }
    let wrong: Vec<_> = used.iter().filter(|(_, path)| !is_value(&values, path)).collect();
    assert!(wrong.is_empty(), "the chart has no such values: {wrong:?}");
}

#[test]
fn calls_are_found_in_text() {
    let text = "a | yardmaster run - --logs | b --no\nyardmaster cluster --replicas 2 \\\n  --kubelet none # --no\n\
                helm install yardmaster charts/yardmaster --no\nyardmaster status";
    let call = |command: &str, flags: &[&str]| {
        (command.to_owned(), flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>())
    };
    let expected =
        [call("run", &["--logs"]), call("cluster", &["--replicas", "--kubelet"]), call("status", &[])];
    assert_eq!(calls(text), expected);
}
