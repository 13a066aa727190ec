//! Nodes with failed pods of Jobs.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::failures::Failures;
use crate::cli::lists::objects;
use crate::cli::pod_view::{PodView, controller_uid};
use crate::cli::untrusted::Untrusted;
use crate::job::names::CONTROLLER_UID_LABEL;

/// The pause between two lists of failed pods.
const PAUSE: Duration = Duration::from_secs(10);
/// Failed pods that are read. More would cost the API server more than they tell.
const PODS: usize = 5_000;

/// A node, and the failed pods that it had.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFailures {
    pub(super) failures: Failures,
    /// UIDs of the Jobs of these pods.
    jobs: HashSet<String>,
}

impl NodeFailures {
    /// How many Jobs had the pods.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    fn record(&mut self, pod: &PodView) {
        self.failures.record(pod);
        self.jobs.extend(controller_uid(pod).map(str::to_owned));
    }
}

/// Failed pods by node.
pub(super) type Nodes = BTreeMap<String, NodeFailures>;

#[derive(Clone, Debug, Default)]
struct Seen {
    nodes: Option<Arc<Nodes>>,
    problem: Option<String>,
}

/// Lists of failed pods, one after the other; they end when this is dropped.
pub(super) struct NodeFeed {
    seen: watch::Receiver<Seen>,
    latest: Seen,
    _reader: AbortOnDropHandle<()>,
}

impl NodeFeed {
    /// Begins to list the failed pods of a namespace, or of all.
    pub(super) fn start(client: Client, namespace: Option<String>) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        let reader = tokio::spawn(async move {
            loop {
                let read = read(&client, namespace.as_deref()).await;
                sender.send_modify(|seen| match read {
                    Ok((nodes, has_more)) => {
                        let problem = has_more.then(|| format!("nodes: only {PODS} failed pods are counted"));
                        *seen = Seen { nodes: Some(Arc::new(nodes)), problem };
                    }
                    Err(error) => {
                        seen.problem = Some(format!("cannot list failed pods: {error}"));
                        seen.nodes.get_or_insert_default();
                    }
                });
                sleep(PAUSE).await;
            }
        });
        Self { seen, latest: Seen::default(), _reader: AbortOnDropHandle::new(reader) }
    }

    /// Waits for a newer list.
    pub(super) async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            // The reader never ends before this does.
            std::future::pending::<()>().await;
        }
        self.latest = self.seen.borrow_and_update().clone();
    }

    /// Whether failed pods have been listed, or could not be.
    pub(super) fn is_read(&self) -> bool {
        self.latest.nodes.is_some()
    }

    /// The nodes of the newest list.
    pub(super) fn nodes(&self) -> Arc<Nodes> {
        self.latest.nodes.clone().unwrap_or_default()
    }

    /// Why there is no newer list, or not a whole one.
    pub(super) fn problem(&self) -> Option<&str> {
        self.latest.problem.as_deref()
    }
}

async fn read(client: &Client, namespace: Option<&str>) -> kube::Result<(Nodes, bool)> {
    let pod = ApiResource::erase::<Pod>(&());
    let api: Api<PodView> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &pod),
        None => Api::all_with(client.clone(), &pod),
    };
    let params = ListParams::default().fields("status.phase=Failed").labels(CONTROLLER_UID_LABEL);
    tally(objects(api, &params), PODS).await
}

/// Counts the first pods by node. Returns also whether there are more than `most`.
async fn tally(pods: impl Stream<Item = kube::Result<PodView>>, most: usize) -> kube::Result<(Nodes, bool)> {
    let (mut nodes, mut count) = (Nodes::new(), 0);
    let mut pods = pin!(pods);
    while let Some(pod) = pods.try_next().await? {
        if count == most {
            return Ok((nodes, true));
        }
        record(&mut nodes, &pod);
        count += 1;
    }
    Ok((nodes, false))
}

fn record(nodes: &mut Nodes, pod: &PodView) {
    let node = pod.spec.node_name.as_ref().map_or_else(|| "(none)".to_owned(), Untrusted::to_string);
    nodes.entry(node).or_default().record(pod);
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// Nodes whose failed pods have these Jobs and exit codes.
    pub(in super::super) fn nodes(pods: &[(&str, &str, i32)]) -> Nodes {
        let mut nodes = Nodes::new();
        for (node, job, code) in pods {
            record(&mut nodes, &failed(node, job, *code));
        }
        nodes
    }

    fn failed(node: &str, job: &str, code: i32) -> PodView {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true});
        let end = json!({"exitCode": code, "reason": "Error"});
        let main = json!({"name": "main", "state": {"terminated": end}});
        let pod = json!({
            "metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"nodeName": node},
            "status": {"phase": "Failed", "containerStatuses": [main]},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[tokio::test]
    async fn a_list_that_is_not_read_to_its_end_says_so() {
        for (most, has_more) in [(2, true), (3, false), (4, false)] {
            let pods = ["a", "a", "b"].map(|node| Ok(failed(node, "j", 1)));
            let (nodes, more) = tally(futures::stream::iter(pods), most).await.unwrap();
            let counted: u64 = nodes.values().map(|node| node.failures.pods).sum();
            assert_eq!((counted, more), (most.min(3) as u64, has_more), "{most}");
        }
    }

    #[test]
    fn failed_pods_are_counted_by_node_and_job() {
        let nodes = nodes(&[("a", "j", 1), ("a", "k", 1), ("a", "k", 137), ("b", "j", 2)]);
        let a = &nodes["a"];
        assert_eq!((nodes.len(), a.jobs(), a.failures.pods), (2, 2, 3));
        assert_eq!(a.failures.histogram(), "exit code 1 ×2, exit code 137 ×1");
    }
}
