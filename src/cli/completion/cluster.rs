//! Candidates that the cluster has: Jobs, namespaces, contexts of the kubeconfig.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::ArgMatches;
use clap_complete::engine::CompletionCandidate;
use futures::TryStreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::cli::connection::ConnectionArgs;
use crate::cli::lists::metadata;
use crate::cluster::transport::client;

/// Finds the candidates for a word that has been begun.
pub(super) type Completer = fn(&OsStr) -> Vec<CompletionCandidate>;

/// How long the shell waits for the cluster.
const PATIENCE: Duration = Duration::from_secs(2);
/// Names that are read. A longer list is of no help.
const NAMES: u32 = 500;

/// The cluster and the namespace that the command line has named so far.
#[derive(Clone, Debug, Default)]
struct NamedCluster {
    connection: ConnectionArgs,
    namespace: Option<String>,
}

impl NamedCluster {
    fn of_command_line() -> Self {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        let words: Vec<_> = if std::env::args_os().any(|word| word == "--") {
            words.collect()
        } else {
            std::env::args_os().collect()
        };
        let command = crate::cli::command().ignore_errors(true);
        let Ok(matches) = command.try_get_matches_from(words) else { return Self::default() };
        let Some((_, matches)) = matches.subcommand() else { return Self::default() };
        Self {
            connection: ConnectionArgs {
                kubeconfig: one::<PathBuf>(matches, "kubeconfig"),
                context: one::<String>(matches, "context"),
            },
            namespace: one::<String>(matches, "namespace"),
        }
    }
}

/// The value of a flag that the command may not have.
fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
    matches.try_get_one::<T>(name).ok().flatten().cloned()
}

/// Jobs of the namespace that is named, before the name or by `--namespace`, else of the default one.
pub(super) fn jobs(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    let (before, own) = match word.split_once('/') {
        Some(("job", _)) => ("job/", None),
        Some((namespace, _)) => (&word[..=namespace.len()], Some(namespace.to_owned())),
        None => ("", None),
    };
    let found = ask(move |client, asked, default| {
        let namespace = own.or(asked.namespace).unwrap_or(default);
        names::<Job>(Api::namespaced(client, &namespace))
    });
    candidates(word, found.into_iter().map(|name| format!("{before}{name}")))
}

/// All namespaces.
pub(super) fn namespaces(word: &OsStr) -> Vec<CompletionCandidate> {
    let found = ask(|client, _, _| names::<Namespace>(Api::all(client)));
    candidates(&word.to_string_lossy(), found.into_iter())
}

/// The contexts of the kubeconfig.
pub(super) fn contexts(word: &OsStr) -> Vec<CompletionCandidate> {
    let file = NamedCluster::of_command_line().connection.kubeconfig;
    let kubeconfig = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let contexts = kubeconfig.map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
    candidates(&word.to_string_lossy(), contexts.into_iter().map(|context| context.name))
}

fn candidates(word: &str, found: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    found.filter(|candidate| candidate.starts_with(word)).map(CompletionCandidate::new).collect()
}

/// The answer of the cluster; nothing if it takes too long. The thread that waits for it ends with the process.
fn ask<F, N>(question: F) -> Vec<String>
where
    F: FnOnce(Client, NamedCluster, String) -> N + Send + 'static,
    N: Future<Output = Vec<String>>,
{
    let (sender, receiver) = mpsc::channel();
    let asking = move || -> Option<()> {
        let asked = NamedCluster::of_command_line();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let names = runtime.block_on(async {
            let config = asked.connection.config().await.ok()?;
            let default = config.default_namespace.clone();
            let client = client(config, "completion").ok()?;
            Some(question(client, asked, default).await)
        });
        sender.send(names?).ok()
    };
    thread::spawn(asking);
    receiver.recv_timeout(PATIENCE).unwrap_or_default()
}

/// The names of the objects; those that were read before an error.
async fn names<K: Resource + DeserializeOwned>(api: Api<K>) -> Vec<String> {
    let mut names = Vec::new();
    let mut all = std::pin::pin!(metadata(api, &ListParams::default().limit(NAMES)));
    while let Ok(Some(object)) = all.try_next().await {
        names.extend(object.name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_begin_with_the_word() {
        let found = ["train-1", "train-2", "eval"].map(str::to_owned);
        let candidates = candidates("tr", found.into_iter());
        let names: Vec<_> = candidates.iter().map(|one| one.get_value().to_string_lossy()).collect();
        assert_eq!(names, ["train-1", "train-2"]);
    }
}
