//! A Job from the command line, without a manifest.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::duration::parse_duration;

/// The name of a Job whose command gives none.
const USUAL_NAME: &str = "job";
/// The longest beginning of a generated name: pods have the Job's name and more.
const NAME_MAX: usize = 40;
/// The most indexes without a limit of those that may fail, and of pods at once, in Kubernetes.
const FREE_INDEXES: u32 = 100_000;
/// Both limits beyond that.
const LIMIT_BEYOND: u32 = 10_000;
/// The image of Jobs whose commands are programs of this machine.
const NO_IMAGE: &str = "none";

/// What `run` makes a Job from if there is no file.
#[derive(Args, Debug)]
#[command(next_help_heading = "Without a file")]
pub(super) struct ComposeArgs {
    /// Run this command as a Job. Without --image it is a program of this machine, and runs in the current directory.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["files", "kustomize", "cronjob"])]
    pub(super) command: Vec<String>,
    /// Name of the Job [default: one that begins with that of the program].
    #[arg(long, requires = "command", value_name = "NAME")]
    name: Option<String>,
    /// Image of the containers [default: none; the command is a program of this machine].
    #[arg(long, requires = "command", value_name = "IMAGE")]
    pub(super) image: Option<String>,
    /// Run the command once for each index, in JOB_COMPLETION_INDEX, of which P at a time at most: 0-99 or 0-99%10
    /// [default: run it once].
    #[arg(long, requires = "command", value_name = "0-LAST[%P]")]
    array: Option<Array>,
    /// CPUs that each run takes: as many run at once as the machine has [default: 1].
    #[arg(long, requires = "command", value_name = "AMOUNT")]
    cpus: Option<String>,
    /// Memory of each run, such as 2Gi: one that takes more is killed where the runtime has limits [default: not limited].
    #[arg(long, requires = "command", value_name = "AMOUNT")]
    memory: Option<String>,
    /// NVIDIA GPUs of each run [default: none].
    #[arg(long, requires = "command", value_name = "NUMBER")]
    gpus: Option<u32>,
    /// The longest time of each run, such as 10m [default: not limited].
    #[arg(long, requires = "command", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Repeat a run that fails up to so many times [default: 0].
    #[arg(long, requires = "command", value_name = "NUMBER")]
    retries: Option<u32>,
    /// A variable of the command; without a value, that of this shell.
    #[arg(long, requires = "command", value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    env: Vec<(String, String)>,
    /// Mount a path of this machine, or of the cluster's nodes, into the containers.
    #[arg(long, requires = "command", value_name = "SOURCE:PATH[:ro]", value_parser = parse_mount)]
    mount: Vec<Mount>,
    /// Print the Job, and do not run it.
    #[arg(long, requires = "command")]
    pub(super) dry_run: bool,
}

/// The indexes of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Array {
    /// Number of indexes.
    count: u32,
    /// How many run at once.
    at_once: Option<u32>,
}

impl FromStr for Array {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected 0-LAST or 0-LAST%P, such as 0-99%10".to_owned();
        let (range, at_once) = match text.split_once('%') {
            Some((range, at_once)) => (range, Some(at_once)),
            None => (text, None),
        };
        let (first, last) = range.split_once('-').ok_or_else(wrong)?;
        if first != "0" {
            return Err("indexes begin with 0".into());
        }
        let last: u32 = last.parse().map_err(|_| wrong())?;
        let at_once = at_once.map(|at_once| at_once.parse().map_err(|_| wrong())).transpose()?;
        if at_once == Some(0) {
            return Err("none would run at once".into());
        }
        Ok(Self { count: last.checked_add(1).ok_or_else(wrong)?, at_once })
    }
}

/// A path of this machine in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    source: String,
    path: String,
    is_read_only: bool,
}

fn parse_mount(text: &str) -> Result<Mount, String> {
    let (rest, is_read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text.strip_suffix(":rw").unwrap_or(text), false),
    };
    let (source, path) = rest.split_once(':').ok_or("expected SOURCE:PATH or SOURCE:PATH:ro")?;
    let source = std::path::absolute(source).map_err(|_| "SOURCE is empty".to_owned())?;
    if !path.starts_with('/') {
        return Err("PATH must begin with /".into());
    }
    Ok(Mount { source: source.to_string_lossy().into_owned(), path: path.to_owned(), is_read_only })
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => {
            let value = std::env::var(text).map_err(|_| "this shell has no such variable".to_owned())?;
            Ok((text.to_owned(), value))
        }
    }
}

impl ComposeArgs {
    /// Whether the command is a program of this machine.
    pub(super) fn is_local(&self) -> bool {
        !self.command.is_empty() && self.image.is_none()
    }

    /// The Job, without a namespace.
    pub(super) fn job(&self) -> Value {
        let mut metadata = json!({});
        match &self.name {
            Some(name) => metadata["name"] = json!(name),
            None => metadata["generateName"] = json!(self.name_begins()),
        }
        let mut spec = json!({ "template": { "spec": self.pod() } });
        let retries = self.retries.unwrap_or_default();
        match self.array {
            Some(Array { count, at_once }) => {
                spec["completionMode"] = json!("Indexed");
                spec["completions"] = json!(count);
                spec["parallelism"] = json!(at_once.unwrap_or(count));
                spec["backoffLimitPerIndex"] = json!(retries);
                if count > FREE_INDEXES {
                    spec["parallelism"] = json!(at_once.unwrap_or(count).min(LIMIT_BEYOND));
                    spec["maxFailedIndexes"] = json!(LIMIT_BEYOND);
                }
            }
            None => spec["backoffLimit"] = json!(retries),
        }
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec })
    }

    fn pod(&self) -> Value {
        let mut container = json!({
            "name": "main",
            "image": self.image.as_deref().unwrap_or(NO_IMAGE),
            "command": self.command.iter().map(|word| literal(word)).collect::<Vec<_>>(),
            "resources": self.resources(),
        });
        let variables = self.env.iter().map(|(name, value)| json!({ "name": name, "value": literal(value) }));
        set(&mut container, "env", variables.collect());
        let named = |index: usize| format!("mount-{index}");
        let mounts = self.mount.iter().enumerate().map(|(index, mount)| {
            let mut mounted = json!({ "name": named(index), "mountPath": mount.path });
            if mount.is_read_only {
                mounted["readOnly"] = json!(true);
            }
            mounted
        });
        set(&mut container, "volumeMounts", mounts.collect());
        let mut pod = json!({ "restartPolicy": "Never", "containers": [container] });
        let volumes = self.mount.iter().enumerate();
        let volumes = volumes
            .map(|(index, mount)| json!({ "name": named(index), "hostPath": { "path": mount.source } }));
        set(&mut pod, "volumes", volumes.collect());
        if let Some(time) = self.time {
            // Less than a second would be none.
            pod["activeDeadlineSeconds"] = json!(time.as_secs_f64().ceil() as u64);
        }
        pod
    }

    fn resources(&self) -> Value {
        let mut resources = json!({ "requests": { "cpu": self.cpus.as_deref().unwrap_or("1") } });
        if let Some(memory) = &self.memory {
            resources["requests"]["memory"] = json!(memory);
            resources["limits"]["memory"] = json!(memory);
        }
        if let Some(gpus) = self.gpus.filter(|gpus| *gpus > 0) {
            resources["limits"]["nvidia.com/gpu"] = json!(gpus.to_string());
        }
        resources
    }

    /// The beginning of a name, from that of the program.
    fn name_begins(&self) -> String {
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        let program = program.map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let fits = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let name: String = program.chars().map(fits).take(NAME_MAX).collect();
        let name = name.trim_matches('-');
        format!("{}-", if name.is_empty() { USUAL_NAME } else { name })
    }
}

/// Sets a list, unless it is empty.
fn set(object: &mut Value, field: &str, list: Vec<Value>) {
    if !list.is_empty() {
        object[field] = list.into();
    }
}

/// A text in which Kubernetes replaces nothing: it would take `$(NAME)` for a variable, and `$$` for `$`.
fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        escaped.push(letter);
        if letter == '$' && matches!(letters.peek(), Some('$' | '(')) {
            escaped.push('$');
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        files: Vec<String>,
        #[arg(long)]
        kustomize: Vec<String>,
        #[arg(long)]
        cronjob: Vec<String>,
        #[command(flatten)]
        compose: ComposeArgs,
    }

    fn job(words: &str) -> Value {
        let words = ["run"].into_iter().chain(words.split(' '));
        Line::try_parse_from(words).unwrap().compose.job()
    }

    #[test]
    fn a_command_is_a_job() {
        let expected = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "generateName": "sim-" },
            "spec": {
                "backoffLimit": 0,
                "template": { "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "none", "command": ["./sim.", "-v"],
                        "resources": { "requests": { "cpu": "1" } },
                    }],
                } },
            },
        });
        assert_eq!(job("-- ./sim. -v"), expected);
    }

    #[test]
    fn each_flag_is_a_field() {
        let job = job(
            "--name n --image busybox:1 --array 0-99%10 --cpus 500m --memory 2Gi --gpus 1 --time 90s --retries 3 \
             --env A=b=c --mount /data:/in:ro --mount /out:/out -- sh -c x",
        );
        assert_eq!(job["metadata"], json!({ "name": "n" }));
        let spec = &job["spec"];
        for (field, value) in [
            ("completionMode", json!("Indexed")),
            ("completions", json!(100)),
            ("parallelism", json!(10)),
            ("backoffLimitPerIndex", json!(3)),
        ] {
            assert_eq!(spec[field], value, "{field}");
        }
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["activeDeadlineSeconds"], 90);
        assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/data");
        let container = &pod["containers"][0];
        assert_eq!(container["env"], json!([{ "name": "A", "value": "b=c" }]));
        assert_eq!(
            container["volumeMounts"],
            json!([
                { "name": "mount-0", "mountPath": "/in", "readOnly": true },
                { "name": "mount-1", "mountPath": "/out" },
            ])
        );
        let resources = json!({
            "requests": { "cpu": "500m", "memory": "2Gi" },
            "limits": { "memory": "2Gi", "nvidia.com/gpu": "1" },
        });
        assert_eq!(container["resources"], resources);
    }

    #[test]
    fn an_array_of_any_length_is_valid() {
        let spec = &job("--array 0-100000 -- true")["spec"];
        assert_eq!((&spec["parallelism"], &spec["maxFailedIndexes"]), (&json!(10_000), &json!(10_000)));
    }

    #[test]
    fn an_array_begins_with_zero() {
        assert_eq!("0-99".parse(), Ok(Array { count: 100, at_once: None }));
        assert_eq!("0-0%4".parse(), Ok(Array { count: 1, at_once: Some(4) }));
        for wrong in ["", "5", "1-3", "0-x", "0-3%0", "0-3%x", "0-4294967295", "0--1"] {
            assert!(wrong.parse::<Array>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_stays_as_it_is() {
        for (text, escaped) in [
            ("echo $HOME", "echo $HOME"),
            ("echo $(date)", "echo $$(date)"),
            ("kill $$", "kill $$$"),
            ("$$(x)", "$$$$(x)"),
            ("$", "$"),
        ] {
            assert_eq!(literal(text), escaped);
        }
    }
}
