//! Manifests as they are public, and how `yardmaster run` ends with each of them, in containers and as processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde::Deserialize;
use walkdir::WalkDir;
use yardmaster_embedded::kubelet::Mounting;

use super::binary::Background;
use super::commands::{Ended, yardmaster};
use super::*;

/// Runs at once: most of the time they wait for the engine.
const AT_ONCE: usize = 4;
/// The variable with a part of the names of those that are run.
const ONLY: &str = "YARDMASTER_MANIFESTS";
/// The variable that writes the page in place of a comparison with it.
const UPDATE: &str = "YARDMASTER_UPDATE";
/// An exit code of a command that was interrupted.
const INTERRUPTED: i32 = 130;

/// A manifest, and how `run` ends with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The file below the folder of the table, without `.yaml`.
    file: String,
    /// The feature of manifests that it has.
    shows: String,
    /// Flags for `run`.
    #[serde(default)]
    flags: Vec<String>,
    /// A part of what `run` says if it refuses the manifest.
    refused: Option<String>,
    /// A reason for which the Job waits without end.
    waits: Option<String>,
    #[serde(default)]
    exit: i32,
    /// The condition and the reason of each Job in the end.
    #[serde(default = "complete")]
    end: String,
    /// Fields of each Job's status.
    #[serde(default)]
    status: BTreeMap<String, Value>,
    /// Lines of the pods' output.
    #[serde(default)]
    prints: Vec<String>,
    /// Parts of what `run` says.
    #[serde(default)]
    says: Vec<String>,
    processes: Processes,
}

/// The outcome of a manifest without an engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Processes {
    /// The same.
    Same,
    /// `run` refuses it, and says this.
    Refused(String),
    /// The same where processes have mounts. Otherwise, `run` refuses it, and says this.
    Mounted(String),
    /// It is not run, for this reason.
    Skipped(String),
}

fn complete() -> String {
    "Complete CompletionsReached".into()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests")
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(folder().join("expected.yaml")).unwrap();
    let rows: Value = serde_saphyr::from_str(&text).unwrap();
    serde_json::from_value(rows).unwrap()
}

/// Runs the manifests, some at once. Panics with all that ended in another way.
fn check_all(rows: Vec<Row>, address: &'static str, runtime: &'static str) {
    let only = std::env::var(ONLY).unwrap_or_default();
    let due =
        Arc::new(Mutex::new(rows.into_iter().filter(|row| row.file.contains(&only)).collect::<Vec<_>>()));
    let workers = (0..AT_ONCE).map(|_| {
        let due = Arc::clone(&due);
        std::thread::spawn(move || {
            let mut wrong = Vec::new();
            loop {
                let Some(row) = due.lock().unwrap().pop() else { return wrong };
                if let Err(why) = row.check(address, runtime) {
                    wrong.push(format!("{}: {why}", row.file));
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let wrong: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert!(wrong.is_empty(), "{} manifests ended in another way:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns an error with the reason unless the condition holds.
macro_rules! must {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

impl Row {
    /// The same manifest where `run` refuses it.
    fn refused(self, why: String) -> Self {
        Self { refused: Some(why), waits: None, ..self }
    }

    fn path(&self) -> PathBuf {
        folder().join(format!("{}.yaml", self.file))
    }

    fn check(&self, address: &str, runtime: &str) -> Result<(), String> {
        let place = tempfile::tempdir().unwrap();
        let logs = place.path().join("logs");
        let path = self.path();
        let mut command = yardmaster(
            address,
            &[
                "run",
                path.to_str().unwrap(),
                "--runtime",
                runtime,
                "-o",
                "json",
                "--log-dir",
                logs.to_str().unwrap(),
            ],
        );
        command.args(&self.flags).env("XDG_DATA_HOME", place.path());
        if let Some(reason) = &self.waits {
            return waits(Background::start(&mut command), reason);
        }
        let Ended { status, stdout, stderr: told } = Ended::of(Background::start(&mut command));
        if let Some(refused) = &self.refused {
            must!(status == Some(2) && told.contains(refused), "not refused with {refused:?}: {told}");
            return Ok(());
        }
        must!(status == Some(self.exit), "{status:?}, not {}: {told}", self.exit);
        for part in &self.says {
            must!(told.contains(part), "does not say {part:?}: {told}");
        }
        let mut printed = lines(&logs);
        for line in &self.prints {
            let found = printed.iter().position(|printed| printed == line);
            let Some(found) = found else { return Err(format!("no line {line:?} in {printed:#?}: {told}")) };
            printed.swap_remove(found);
        }
        let found: Value = serde_json::from_str(&stdout).map_err(|error| format!("{error}: {told}"))?;
        for job in jobs(&found) {
            self.check_end(job)?;
        }
        Ok(())
    }

    fn check_end(&self, job: &Value) -> Result<(), String> {
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holding = conditions.iter().filter(|condition| condition["status"] == "True");
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let ends: Vec<_> = holding
            .map(|condition| format!("{} {}", text(condition, "type"), text(condition, "reason")))
            .collect();
        must!(
            self.end == "none" && ends.is_empty() || ends.contains(&self.end),
            "ends with {ends:?}, not {}",
            self.end
        );
        for (field, value) in &self.status {
            must!(job["status"][field] == *value, "{field} is not {value}: {}", job["status"]);
        }
        Ok(())
    }

    /// Its outcomes in containers and as processes, in a few words.
    fn outcomes(&self) -> [String; 2] {
        let in_containers = match self {
            Self { refused: Some(why), .. } => format!("refused: {why}"),
            Self { waits: Some(reason), .. } => format!("waits: {reason}"),
            Self { end, .. } if end == "none" => "waits: another controller".into(),
            Self { end, .. } if *end == complete() => "Complete".into(),
            Self { end, .. } => end.replacen(' ', ": ", 1),
        };
        let as_processes = match &self.processes {
            Processes::Same => "the same".into(),
            Processes::Refused(why) => format!("refused: {why}"),
            Processes::Mounted(why) => format!("the same with mounts, otherwise refused: {why}"),
            Processes::Skipped(why) => format!("not tried: {why}"),
        };
        [in_containers, as_processes]
    }
}

/// A command goes on until it has said why a Job waits, and longer.
fn waits(mut run: Background, reason: &str) -> Result<(), String> {
    let _line = Background::line(run.0.stderr.take().unwrap(), reason);
    must!(run.0.try_wait().unwrap().is_none(), "does not wait");
    run.signal(Signal::SIGINT);
    let mut output = run.0.stdout.take().unwrap();
    output.read_to_end(&mut Vec::new()).unwrap();
    let code = run.exit_code();
    must!(code == Some(INTERRUPTED), "ends with {code:?}");
    Ok(())
}

fn jobs(found: &Value) -> Vec<&Value> {
    match found["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![found],
    }
}

/// The lines of all logs below a folder.
pub(crate) fn lines(folder: &Path) -> Vec<String> {
    let files = WalkDir::new(folder).into_iter().filter_map(Result::ok);
    let logs = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
    logs.flat_map(|file| {
        let text = std::fs::read(file.path()).unwrap();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn each_manifest_ends_in_containers_as_the_table_says() {
    let Some(address) = engine::address() else { return };
    check_all(rows(), address, "containers");
}

#[tokio::test]
async fn each_manifest_ends_as_processes_as_the_table_says() {
    let program = Path::new(env!("CARGO_BIN_EXE_yardmaster"));
    let has_mounts = match Mounting::of_this_host(Some(program)).await {
        Mounting::AtPaths => true,
        Mounting::ByVariable { why } => {
            assert!(std::env::var_os("CI").is_none(), "no mounts: {why}");
            eprintln!("skipped with mounts: {why}");
            false
        }
    };
    let rows = rows().into_iter().flat_map(|row| match row.processes.clone() {
        Processes::Same => vec![row],
        Processes::Refused(why) => vec![row.refused(why)],
        Processes::Mounted(why) => {
            let mut without = row.clone().refused(why);
            without.flags.extend(["--volumes", "variables"].map(String::from));
            if has_mounts { vec![row, without] } else { vec![without] }
        }
        Processes::Skipped(_) => vec![],
    });
    let rows: Vec<_> = rows.collect();
    let checked = tokio::task::spawn_blocking(|| check_all(rows, "unix:///nowhere/engine.sock", "processes"));
    checked.await.unwrap();
}

#[test]
fn each_manifest_is_in_the_table_and_on_the_page() {
    let rows = rows();
    let named: BTreeSet<_> = rows.iter().map(Row::path).collect();
    let files = WalkDir::new(folder()).min_depth(2).into_iter().map(|file| file.unwrap().into_path());
    assert_eq!(named, files.collect());

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/manifests.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let mut written = text.clone();
    for (group, heading) in [("own", "| manifest with |"), ("documentation", "| page |")] {
        let mut table = format!("{heading} in containers | as processes |\n|---|---|---|\n");
        for row in rows.iter().filter(|row| row.file.starts_with(group)) {
            let [in_containers, as_processes] = row.outcomes();
            let Row { shows, file, .. } = row;
            let link = format!("[{shows}](../tests/data/manifests/{file}.yaml)");
            writeln!(table, "| {link} | {in_containers} | {as_processes} |").unwrap();
        }
        let begin = written.find(heading).unwrap();
        let end = written[begin..].find("\n\n").map_or(written.len(), |length| begin + length + 1);
        written.replace_range(begin..end, &table);
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&page, &written).unwrap();
    } else {
        assert!(written == text, "{UPDATE}=1 writes {}", page.display());
    }
}
