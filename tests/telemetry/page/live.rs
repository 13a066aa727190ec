//! The live answers about a Job that does not exist.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use yardmaster::telemetry::http::{JobAction, JobAsk, JobKey, LiveAnswer, LiveJobs, LiveRefusal, LogAsk};

/// A moment of 2026, in seconds since 1970.
const BEGIN: i64 = 1_767_225_600;
/// Number of nodes.
const NODES: u32 = 8;

/// A Job of this many indexes, of which every hundredth fails, on one node.
#[derive(Clone)]
pub(super) struct Indexed {
    pub(super) indexes: u32,
    /// Instead of names and messages of users.
    pub(super) text: Option<String>,
    /// The actions of viewers.
    pub(super) done: Arc<Mutex<Vec<JobAction>>>,
}

impl Indexed {
    pub(super) fn of(indexes: u32) -> Self {
        Self { indexes, text: None, done: Arc::default() }
    }

    fn text(&self, text: &str) -> String {
        self.text.clone().unwrap_or_else(|| text.to_owned())
    }

    fn fails(index: u32) -> bool {
        index % 100 == 99
    }

    /// A tenth of the indexes have no pod yet, and pods of another tenth run.
    fn phase(&self, index: u32) -> Option<usize> {
        match index * 10 / self.indexes {
            9 => None,
            8 => Some(1),
            _ if Self::fails(index) => Some(3),
            _ => Some(2),
        }
    }

    /// A log in two parts, and the beginning of a third line. Lines that the viewer has do not come again.
    fn log(&self, ask: &LogAsk) -> LiveAnswer {
        let (text, more) = match (ask.since.as_deref(), ask.skip) {
            (None, 0) => (format!("2026-01-01T00:00:01Z {}\n", self.text("the first line")), true),
            (Some("2026-01-01T00:00:01Z"), 1) => ("2026-01-01T00:00:01Z the second line\n".to_owned(), false),
            (Some("2026-01-01T00:00:01Z"), 2) => ("2026-01-01T00:00:02Z the thi".to_owned(), false),
            place => (format!("2026-01-01T00:00:09Z no such place: {place:?}\n"), false),
        };
        LiveAnswer::Log { text, more }
    }

    fn report(&self) -> Value {
        let failed: Vec<_> = (0..self.indexes).filter(|index| self.phase(*index) == Some(3)).collect();
        let list = |indexes: &[u32]| indexes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let succeeded: Vec<_> = (0..self.indexes).filter(|index| self.phase(*index) == Some(2)).collect();
        json!({
            "job": {
                "namespace": "ml", "name": "sweep", "uid": "uid-0", "state": "Running", "traceId": "abc",
                "completions": self.indexes, "parallelism": 8, "active": self.indexes / 10, "ready": 1,
                "succeeded": succeeded.len(), "failed": failed.len(), "rate": 1.5, "secondsLeft": 60.0,
                "startTime": "2026-01-01T00:00:00Z", "endTime": null,
                "conditions": [{"type": self.text("Waiting"), "status": "True", "reason": self.text("Refused"),
                    "message": self.text("no room"), "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "completedIndexes": list(&succeeded), "failedIndexes": list(&failed),
                "backoffLimit": null, "backoffLimitPerIndex": 0, "maxFailedIndexes": null,
            },
            "created": "2026-01-01T00:00:00Z", "deleting": false, "suspend": false, "completionMode": "Indexed",
            "activeDeadlineSeconds": null, "ttlSecondsAfterFinished": null, "containers": [self.text("main")],
            "initContainers": null,
        })
    }

    fn pods(&self) -> Vec<String> {
        let all: Vec<_> = (0..self.indexes).filter(|index| self.phase(*index).is_some()).collect();
        let mut lines: Vec<_> =
            all.chunks(500).enumerate().map(|(line, pods)| self.batch(line == 0, pods)).collect();
        let failed = all.iter().filter(|index| self.phase(**index) == Some(3)).count();
        let last = json!({
            "pod": self.text("sweep-99"), "index": 99, "attempt": 1, "node": self.text("gpu-7"),
            "ended": "2026-01-01T00:01:00Z", "exitCode": 137, "cause": self.text("exit code 137 (OOMKilled)"),
            "log": [self.text("CUDA out of memory")],
        });
        let failures =
            json!({"pods": failed, "exitCodes": {"137": failed}, "reasons": {}, "nodes": {}, "last": [last]});
        let why = json!({"facts": [], "next": [self.text("yardmaster logs ml/sweep --failed")], "failures": failures});
        lines.push(json!({"why": why, "more": false}).to_string());
        lines
    }

    fn batch(&self, is_first: bool, pods: &[u32]) -> String {
        let each = |fact: &dyn Fn(u32) -> Value| pods.iter().map(|index| fact(*index)).collect::<Vec<_>>();
        let begin = |index: u32| BEGIN + i64::from(index / 8) * 60;
        let phase = |index: u32| self.phase(index).unwrap_or_default();
        let node = |index: u32| if Self::fails(index) { 7 } else { index % NODES };
        let nodes: Vec<_> = (0..NODES).map(|node| self.text(&format!("gpu-{node}"))).collect();
        let causes = [self.text("exit code 137 (OOMKilled)")];
        json!({
            "name": each(&|index| self.text(&format!("sweep-{index}")).into()),
            "index": each(&|index| index.into()),
            "attempt": each(&|_| 1.into()),
            "phase": each(&|index| phase(index).into()),
            "created": each(&|index| begin(index).into()),
            "started": each(&|index| begin(index).into()),
            "ended": each(&|index| if phase(index) == 1 { Value::Null } else { (begin(index) + 50).into() }),
            "exit": each(&|index| if phase(index) == 3 { 137.into() } else { Value::Null }),
            "restarts": each(&|_| 0.into()),
            "node": each(&|index| node(index).into()),
            "cause": each(&|index| if phase(index) == 3 { 0.into() } else { Value::Null }),
            "nodes": if is_first { json!(nodes) } else { json!([]) },
            "causes": if is_first { json!(causes) } else { json!([]) },
        })
        .to_string()
    }
}

impl LiveJobs for Indexed {
    fn answer(
        &self,
        _token: Option<String>,
        _job: JobKey,
        ask: JobAsk,
    ) -> BoxFuture<'static, Result<LiveAnswer, LiveRefusal>> {
        let answer = match ask {
            JobAsk::Report => LiveAnswer::Json(self.report()),
            JobAsk::Pods => LiveAnswer::Lines(stream::iter(self.pods()).map(|line| line + "\n").boxed()),
            JobAsk::Events => LiveAnswer::Json(json!([{
                "at": "2026-01-01T00:00:00Z", "type": "Warning", "reason": self.text("FailedCreate"),
                "message": self.text("exceeded quota"), "count": 3,
            }])),
            JobAsk::Manifest => LiveAnswer::Text(self.text("apiVersion: batch/v1\n")),
            JobAsk::Log(log) => self.log(&log),
            JobAsk::Actions => LiveAnswer::Json(json!({"switchedOn": true, "actions": ["suspend"]})),
            JobAsk::Act(act) if act.uid == "uid-0" && act.action == JobAction::Suspend => {
                self.done.lock().unwrap().push(act.action);
                LiveAnswer::Json(json!({"done": "suspended"}))
            }
            JobAsk::Act(_) => {
                let refusal = LiveRefusal { status: StatusCode::FORBIDDEN, message: "no right".into() };
                return Box::pin(async { Err(refusal) });
            }
        };
        Box::pin(async { Ok(answer) })
    }
}
