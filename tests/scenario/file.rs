//! The file format of a scenario. Unknown keys are errors: a partly understood step must not pass.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::scenario::mode::Mode;

/// A recorded situation.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// Feature gates that are on in the API server and in the controller. All others have their default.
    pub(crate) gates: Vec<String>,
    pub(crate) job: Value,
    pub(crate) job2: Option<Value>,
    /// `job` is created by a step instead of before the first one.
    pub(crate) defer_job: bool,
    pub(crate) steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawScenario {
    name: String,
    #[serde(rename = "topic")]
    _topic: String,
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    gates: Vec<String>,
    job: Value,
    job2: Option<Value>,
    #[serde(default)]
    defer_job: bool,
    steps: Vec<Value>,
    #[serde(default, rename = "referenceWrites")]
    _reference_writes: Map<String, Value>,
}

/// A step. It ends before the next begins.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Step {
    Settle {
        #[serde(rename = "settle")]
        _settle: bool,
        until: Option<Until>,
        /// Limit of `until` in seconds.
        timeout: Option<f64>,
        /// Describes a defect of the reference in the recorded state, and the right state.
        #[serde(rename = "quirk")]
        _quirk: Option<String>,
        expect: Value,
    },
    Pods {
        pods: Box<PodsStep>,
    },
    Pod {
        pod: PodStep,
    },
    Job {
        job: JobStep,
    },
    Create {
        create: Which,
    },
    Controller {
        controller: ControllerStep,
    },
    Status {
        status: StatusStep,
    },
    Sleep {
        /// Seconds.
        sleep: f64,
    },
    Quota {
        quota: QuotaStep,
    },
    Namespace {
        #[serde(rename = "namespace")]
        _namespace: DeleteFlag,
    },
    Workload {
        workload: CreateStep,
    },
    Workloads {
        #[serde(rename = "workloads")]
        _workloads: DeleteAll,
    },
    PodGroups {
        #[serde(rename = "podGroups")]
        _pod_groups: DeleteAll,
    },
    Reject {
        reject: RejectStep,
        expect: Refusal,
    },
}

/// The condition that a `settle` step waits for before it waits for quiet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Until {
    PodsCreated(usize),
    Condition(String),
    PodsGone(bool),
    JobGone(bool),
}

#[derive(Debug, Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Which {
    #[default]
    Job,
    Job2,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PodsStep {
    pub(crate) select: Select,
    pub(crate) set: Option<Set>,
    pub(crate) mark: Option<String>,
    pub(crate) labels: Option<Map<String, Value>>,
    pub(crate) annotations: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) remove_owner: bool,
    pub(crate) remove_finalizer: Option<String>,
    pub(crate) delete: Option<Value>,
}

/// Selects the pods of a step. All given criteria must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Select {
    pub(crate) all: Option<bool>,
    pub(crate) index: Option<u32>,
    pub(crate) indexes: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) active: Option<bool>,
    pub(crate) terminating: Option<bool>,
    pub(crate) ready: Option<bool>,
    pub(crate) mark: Option<String>,
    pub(crate) unmarked: Option<bool>,
    pub(crate) owner: Option<Which>,
    pub(crate) nth: Option<usize>,
    pub(crate) count: Option<usize>,
}

/// The status that a kubelet would report.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Set {
    pub(crate) node: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) ready: Option<bool>,
    #[serde(default)]
    pub(crate) ready_ago: i64,
    #[serde(default)]
    pub(crate) conditions: Vec<Map<String, Value>>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) container: Option<String>,
    pub(crate) restart_count: Option<u32>,
    #[serde(default)]
    pub(crate) containers: BTreeMap<String, ContainerSet>,
    pub(crate) init_containers: Option<BTreeMap<String, ContainerSet>>,
    #[serde(default)]
    pub(crate) finished_ago: i64,
    #[serde(default)]
    pub(crate) no_statuses: bool,
}

/// The state of one container. Without exit code and `running` it is waiting.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ContainerSet {
    pub(crate) exit_code: Option<i32>,
    #[serde(default)]
    pub(crate) running: bool,
    pub(crate) restart_count: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodStep {
    pub(crate) create: Value,
    pub(crate) mark: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobStep {
    pub(crate) patch: Option<Value>,
    pub(crate) delete: Option<Value>,
    #[serde(default)]
    pub(crate) recreate: bool,
    #[serde(default)]
    pub(crate) which: Which,
}

#[derive(Debug, Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ControllerStep {
    Stop,
    Start,
    Restart,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusStep {
    pub(crate) patch: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaStep {
    pub(crate) hard: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteFlag {
    #[serde(rename = "delete")]
    _delete: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateStep {
    pub(crate) create: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteAll {
    #[serde(rename = "delete")]
    _delete: AllOnly,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AllOnly {
    All,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum RejectStep {
    Create(Value),
    Patch(Value),
}

/// The expected refusal of a request by the API server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

impl Scenario {
    /// Reads a scenario and adapts it to `mode`.
    pub(crate) fn parse(text: &str, mode: Mode) -> Result<Self> {
        let mut file: Value = serde_json::from_str(text)?;
        mode.rewrite(&mut file);
        let raw: RawScenario = serde_json::from_value(file)?;
        let steps = raw.steps.into_iter().enumerate().map(|(number, step)| {
            let shown = step.to_string();
            serde_json::from_value(step)
                .with_context(|| format!("step {number} is not understood: {shown:.200}"))
        });
        let scenario = Self {
            name: raw.name,
            gates: raw.gates,
            job: raw.job,
            job2: raw.job2,
            defer_job: raw.defer_job,
            steps: steps.collect::<Result<_>>()?,
        };
        if scenario.steps.is_empty() {
            bail!("no steps");
        }
        Ok(scenario)
    }

    /// Whether a step stops or starts the controller. If so, the scenario cannot share it with others.
    pub(crate) fn needs_own_controller(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Controller { .. }))
    }
}
