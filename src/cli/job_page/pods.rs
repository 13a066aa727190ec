//! The pods of a Job in compact lines of JSON, so that a page can read 100,000 of them piece by piece.
//!
//! A line has a batch of pods, field by field. The last line has the explanation of the failures, or a problem.
//!
//! The server ends every answer after 30 s. A list that takes longer would be read again and again, and never be shown. So it is
//! cut before, and the last line says so.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::refusal;
use crate::cli::failures::Failures;
use crate::cli::lists::objects;
use crate::cli::pod_cause::causes;
use crate::cli::pod_view::{ContainerState, ContainerStatus, PodView, attempt, controller_uid, index};
use crate::cli::status::explained::explain;
use crate::cluster::fair_semaphore::Permit;
use crate::job::names::CONTROLLER_UID_LABEL;

/// Pods of a line: the page must not stop while it parses one.
const BATCH: usize = 500;
/// Most pods that are read.
const MOST: usize = 100_000;
/// How long the list may take, with the wait for its turn. The ends of logs follow, which take five seconds at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Most causes and waits that are told apart: authors of pods choose their texts.
const MOST_CAUSES: usize = 64;
/// Most letters of one.
const LONGEST_CAUSE: usize = 160;
/// Most nodes that are told apart: authors of pods choose names of nodes, too.
const MOST_NODES: usize = 20_000;
/// Most letters of one.
const LONGEST_NODE: usize = 253;
/// The latest time that is shown, in seconds since 1970: in the year 2242. The timeline calculates with times and numbers of lanes
/// in 53 bits.
const LATEST: i64 = (1 << 33) - 2;

/// Phases, by their numbers in a line.
const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];

/// The lines about the pods of a Job; they hold this turn until they end. Pods that come after the deadline are left out.
pub(super) fn lines(
    client: &Client,
    job: Job,
    turn: Permit,
    deadline: Instant,
) -> BoxStream<'static, String> {
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let api: Api<PodView> = Api::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&()));
    let params = ListParams::default().labels(&format!("{CONTROLLER_UID_LABEL}={uid}"));
    let pods = objects(api, &params).boxed();
    let reading = PodReading {
        client: client.clone(),
        job,
        uid,
        namespace,
        pods,
        read: 0,
        failures: Failures::default(),
        names: PodNames::default(),
        deadline,
        _turn: turn,
    };
    stream::unfold(Some(reading), async |reading| Some(reading?.line().await)).boxed()
}

/// A list of pods that is being read.
struct PodReading {
    client: Client,
    job: Job,
    uid: String,
    namespace: String,
    pods: BoxStream<'static, kube::Result<PodView>>,
    read: usize,
    failures: Failures,
    names: PodNames,
    deadline: Instant,
    _turn: Permit,
}

/// Why no more pods follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodsEnd {
    /// All have been read.
    Whole,
    /// There are too many.
    Many,
    /// The list took too long.
    Late,
}

impl PodReading {
    /// The next line, and the reading unless it was the last one.
    async fn line(mut self) -> (String, Option<Self>) {
        let mut columns = Columns::default();
        let end = loop {
            if columns.name.len() == BATCH {
                break None;
            }
            if self.read == MOST {
                break Some(PodsEnd::Many);
            }
            if Instant::now() >= self.deadline {
                break Some(PodsEnd::Late);
            }
            match timeout_at(self.deadline, self.pods.next()).await {
                Ok(Some(Ok(pod))) if controller_uid(&pod) == Some(&*self.uid) => {
                    self.read += 1;
                    self.failures.record(&pod);
                    columns.push(&pod, &mut self.names);
                }
                // Its author chooses the labels of a pod. A list that is late ends above.
                Ok(Some(Ok(_))) | Err(_) => {}
                Ok(Some(Err(error))) => return (line(&json!({"problem": refusal(error).message})), None),
                Ok(None) => break Some(PodsEnd::Whole),
            }
        };
        match end {
            Some(end) if columns.name.is_empty() => (self.last(end).await, None),
            _ => (columns.line(&mut self.names), Some(self)),
        }
    }

    async fn last(mut self, end: PodsEnd) -> String {
        self.failures.read_logs(&self.client, &self.namespace).await;
        let cut_after = (end == PodsEnd::Late).then(|| PATIENCE.as_secs());
        line(&json!({
            "why": explain(&self.job, self.failures),
            "more": end != PodsEnd::Whole,
            "cutAfterSeconds": cut_after,
        }))
    }
}

fn line(value: &impl Serialize) -> String {
    // Only maps with keys other than texts cannot be written.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// A batch of pods. Times are seconds since 1970, and absent facts are `null`. Writers of statuses choose times, so the nearest
/// time between 1970 and [`LATEST`] counts.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Columns {
    name: Vec<String>,
    index: Vec<Option<u32>>,
    /// Number of the try at its index.
    attempt: Vec<Option<u32>>,
    /// A place in [`PHASES`].
    phase: Vec<usize>,
    created: Vec<Option<i64>>,
    started: Vec<Option<i64>>,
    ended: Vec<Option<i64>>,
    exit: Vec<Option<i32>>,
    restarts: Vec<u32>,
    /// A place among the nodes of all lines.
    node: Vec<Option<usize>>,
    /// A place among the causes of all lines: why the pod failed, or waits.
    cause: Vec<Option<usize>>,
    /// Nodes that earlier lines do not have.
    nodes: Vec<String>,
    /// Causes that earlier lines do not have.
    causes: Vec<String>,
}

impl Columns {
    fn push(&mut self, pod: &PodView, names: &mut PodNames) {
        let status = pod.status.as_ref();
        let phase = status.map(|status| status.phase.raw()).unwrap_or_default();
        let containers = || status.into_iter().flat_map(|status| status.containers());
        let failed = causes(pod);
        let cause = failed.first().map(|cause| cause.kind.clone()).or_else(|| wait(pod));
        let is_over = matches!(phase, "Succeeded" | "Failed");
        self.name.push(pod.metadata.name.clone().unwrap_or_default());
        self.index.push(index(pod));
        self.attempt.push(attempt(pod));
        self.phase.push(PHASES.iter().position(|name| *name == phase).unwrap_or_default());
        self.created.push(pod.metadata.creation_timestamp.as_ref().map(|time| seconds(time.0)));
        self.started.push(containers().filter_map(started_at).min().map(seconds));
        let ended = containers().filter_map(ContainerStatus::ended_at).max().filter(|_| is_over);
        self.ended.push(ended.map(seconds));
        self.exit.push(failed.iter().find_map(|cause| cause.exit_code));
        self.restarts
            .push(containers().map(|container| container.restart_count).fold(0, u32::saturating_add));
        self.node.push(pod.spec.node_name.as_ref().and_then(|node| names.nodes.place(node.raw())));
        self.cause.push(cause.and_then(|cause| names.causes.place(&cause)));
    }

    fn line(mut self, names: &mut PodNames) -> String {
        (self.nodes, self.causes) = (names.nodes.take_new(), names.causes.take_new());
        line(&self)
    }
}

/// Seconds since 1970, within what the page can draw.
fn seconds(time: Timestamp) -> i64 {
    time.as_second().clamp(0, LATEST)
}

/// When the first run of a container began, as far as its status says.
fn started_at(container: &ContainerStatus) -> Option<Timestamp> {
    let states = container.last_state.values().chain(container.state.values());
    states.filter_map(|state: &ContainerState| state.started_at.as_ref()?.parse().ok()).min()
}

/// Why a pod does not run yet.
fn wait(pod: &PodView) -> Option<String> {
    let status =
        pod.status.as_ref().filter(|status| !matches!(status.phase.raw(), "Succeeded" | "Failed"))?;
    if let Some((reason, message)) = status.unschedulable() {
        return Some(format!("{}: {}", reason.raw(), message.raw()));
    }
    let waits = status.containers().filter_map(|container| container.state.get("waiting")?.reason.as_ref());
    waits.map(|reason| reason.raw().to_owned()).next()
}

/// The texts that lines name by their places.
struct PodNames {
    nodes: NamePlaces,
    causes: NamePlaces,
}

impl Default for PodNames {
    fn default() -> Self {
        Self {
            nodes: NamePlaces::bounded(MOST_NODES, LONGEST_NODE),
            causes: NamePlaces::bounded(MOST_CAUSES, LONGEST_CAUSE),
        }
    }
}

struct NamePlaces {
    places: HashMap<String, usize>,
    new: Vec<String>,
    /// Most names.
    most: usize,
    /// Most letters of one.
    longest: usize,
}

impl NamePlaces {
    fn bounded(most: usize, longest: usize) -> Self {
        Self { places: HashMap::new(), new: Vec::new(), most, longest }
    }

    /// The place of a name; `None` for those beyond the bound.
    fn place(&mut self, name: &str) -> Option<usize> {
        let name = name.char_indices().nth(self.longest).map_or(name, |(end, _)| &name[..end]);
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        let place = self.places.len();
        if place == self.most {
            return None;
        }
        self.places.insert(name.to_owned(), place);
        self.new.push(name.to_owned());
        Some(place)
    }

    fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use serde_json::Value;

    use super::*;
    use crate::cli::lists::tests::answering;
    use crate::cluster::fair_semaphore::FairSemaphore;
    use crate::job::names::INDEX_FAILURE_COUNT;

    fn pod(name: &str, index: u32, node: &str, status: Value) -> PodView {
        let annotations =
            json!({"batch.kubernetes.io/job-completion-index": index.to_string(), INDEX_FAILURE_COUNT: "1"});
        let created = "2026-01-01T00:00:00Z";
        let metadata = json!({"name": name, "annotations": annotations, "creationTimestamp": created});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": node}, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    fn killed(code: i32) -> Value {
        let (from, to) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:11Z");
        let end = json!({"exitCode": code, "reason": "OOMKilled", "startedAt": from, "finishedAt": to});
        json!({"phase": "Failed", "containerStatuses": [{"name": "main", "restartCount": 2, "state": {"terminated": end}}]})
    }

    #[test]
    fn a_line_has_the_facts_of_its_pods_and_only_new_names() {
        let mut names = PodNames::default();
        let line = |pods: &[PodView], names: &mut PodNames| {
            let mut columns = Columns::default();
            pods.iter().for_each(|pod| columns.push(pod, names));
            serde_json::from_str::<Value>(&columns.line(names)).unwrap()
        };
        let first = line(&[pod("a", 7, "n1", killed(137)), pod("b", 8, "n1", json!({}))], &mut names);
        let begin = 1_767_225_600;
        for (field, expected) in [
            ("name", json!(["a", "b"])),
            ("index", json!([7, 8])),
            ("attempt", json!([2, 2])),
            ("phase", json!([3, 0])),
            ("created", json!([begin, begin])),
            ("started", json!([begin + 1, null])),
            ("ended", json!([begin + 11, null])),
            ("exit", json!([137, null])),
            ("restarts", json!([2, 0])),
            ("node", json!([0, 0])),
            ("cause", json!([0, null])),
            ("nodes", json!(["n1"])),
            ("causes", json!(["container main: exit code 137 (OOMKilled)"])),
        ] {
            assert_eq!(first[field], expected, "{field}");
        }
        let second = line(&[pod("c", 9, "n2", killed(137))], &mut names);
        assert_eq!((&second["node"], &second["nodes"]), (&json!([1]), &json!(["n2"])));
        assert_eq!((&second["cause"], &second["causes"]), (&json!([0]), &json!([])));
    }

    /// A list that stops in the middle: the server would end the answer before it is complete.
    #[tokio::test(start_paused = true)]
    async fn of_a_list_that_takes_too_long_the_beginning_is_shown() {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
        let pod =
            json!({"metadata": {"name": "a", "namespace": "ml", "ownerReferences": [owner]}, "spec": {}});
        let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{pod},"#);
        let list = stream::iter([Bytes::from(text)]).chain(stream::pending());
        let job = json!({"metadata": {"name": "j", "namespace": "ml", "uid": "u"}, "spec": {"template": {}}});
        let turn = FairSemaphore::new(1, 1).acquire(None, None).await;
        let begin = Instant::now();
        let job = serde_json::from_value(job).unwrap();
        let lines: Vec<String> = lines(&answering(list), job, turn, begin + PATIENCE).collect().await;
        assert_eq!(begin.elapsed().as_secs(), PATIENCE.as_secs());
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[0]["name"]), (2, &json!(["a"])));
        assert_eq!((&lines[1]["more"], &lines[1]["cutAfterSeconds"]), (&json!(true), &json!(20)));
    }

    #[test]
    fn a_pod_that_waits_says_why() {
        let full = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"});
        let pulls = json!({"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}});
        for (status, expected) in [
            (json!({"phase": "Pending", "conditions": [full]}), Some("Unschedulable: no room")),
            (json!({"phase": "Pending", "containerStatuses": [pulls]}), Some("ImagePullBackOff")),
            (json!({"phase": "Running"}), None),
        ] {
            assert_eq!(wait(&pod("p", 0, "n", status)).as_deref(), expected);
        }
    }

    #[test]
    fn authors_of_pods_cannot_fill_the_memory_by_causes_and_nodes() {
        let mut names = PodNames::default();
        for number in 0..MOST_NODES + 1_000 {
            let name = format!("{number}{}", "\u{e9}".repeat(1_000));
            let (cause, node) = (names.causes.place(&name), names.nodes.place(&name));
            assert_eq!((cause.is_some(), node.is_some()), (number < MOST_CAUSES, number < MOST_NODES));
        }
        assert!(names.causes.places.keys().all(|cause| cause.chars().count() <= LONGEST_CAUSE));
        assert!(names.nodes.places.keys().all(|node| node.chars().count() <= LONGEST_NODE));
        assert_eq!(names.causes.place("0"), None);
        assert_eq!(names.nodes.place(&format!("7{}", "\u{e9}".repeat(2_000))), Some(7));
    }

    #[test]
    fn times_that_nobody_can_draw_are_the_nearest_that_the_page_can() {
        for (from, to, expected) in [
            ("0001-01-01T00:00:00Z", "9999-12-30T00:00:00Z", (0, LATEST)),
            ("2026-01-01T00:00:01Z", "2026-01-01T00:00:11Z", (1_767_225_601, 1_767_225_611)),
        ] {
            let end = json!({"exitCode": 1, "startedAt": from, "finishedAt": to});
            let status = json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": end}}]});
            let mut columns = Columns::default();
            columns.push(&pod("a", 0, "n", status), &mut PodNames::default());
            assert_eq!((columns.started[0], columns.ended[0]), (Some(expected.0), Some(expected.1)));
        }
    }
}
