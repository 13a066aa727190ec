//! Reads and checks manifests: all problems are found before any object is created.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::companion::Companion;
use super::loader::Loader;
use super::{Host, kustomize};
use crate::cli::file_problem::file_problem;

/// A Job to create.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// The Job as in the file, with its namespace filled in.
    pub(super) job: Value,
    /// The namespace of the Job.
    pub(super) namespace: String,
}

/// All objects of the files, and what their author should know.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The Jobs to create.
    pub(super) manifests: Vec<Manifest>,
    /// The objects to make before them.
    pub(super) companions: Vec<Companion>,
    /// Notes, each a line.
    pub(super) notes: Vec<String>,
}

/// Files that are not taken: one line each.
#[derive(Debug)]
pub(super) struct Refused {
    /// All problems.
    pub(super) problems: Vec<String>,
    /// Possible causes of the problems.
    pub(super) notes: Vec<String>,
}

/// The objects that are read, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'a> {
    /// Files with manifests; `-` is standard input.
    pub(super) files: &'a [PathBuf],
    /// Folders that kubectl builds manifests from.
    pub(super) kustomizations: &'a [PathBuf],
    /// A Job of the command line.
    pub(super) composed: Option<&'a Value>,
    /// The namespace of objects that name none.
    pub(super) namespace: Option<&'a str>,
    /// Leave out what a cluster has written into Jobs. Otherwise it is a problem where a cluster would refuse it.
    pub(super) exported: bool,
    /// Leave out objects that no Job needs. Otherwise they are problems.
    pub(super) ignore_others: bool,
    /// Names of CronJobs that run now.
    pub(super) cronjobs: &'a [String],
}

/// Reads all files, with Jobs whose pods run on this host.
pub(super) fn load(selection: Selection<'_>, host: &Host) -> Result<Loaded, Refused> {
    let mut loader = Loader::new(selection, host);
    for file in selection.files {
        loader.text(&label(file), read(file));
    }
    for folder in selection.kustomizations {
        loader.text(&format!("-k {}", folder.display()), kustomize::build(folder));
    }
    if let Some(job) = selection.composed {
        loader.composed(job);
    }
    loader.finish()
}

pub(super) fn label(file: &Path) -> String {
    if file == Path::new("-") { "standard input".into() } else { file.display().to_string() }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map(|_| bytes).map_err(|error| file_problem(&error))
}
