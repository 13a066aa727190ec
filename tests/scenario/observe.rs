//! Converts the state of the API server into the form of an expectation. Generated names, uids and times
//! become placeholders. Equal pods and events are grouped.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::scenario::{
    indexes,
    mode::{Mode, without_own_keys},
    names::Names,
    pod::{INDEX_KEY, index, name, phase, ready, terminating, text, uid},
};

/// The raw objects of a namespace at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) job: Option<Value>,
    pub(crate) job2: Option<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) events: Vec<Value>,
    pub(crate) workloads: Vec<Value>,
    pub(crate) pod_groups: Vec<Value>,
}

impl Snapshot {
    /// The snapshot in the form of an `expect`. Records generated names and start times in `names`.
    pub(crate) fn normalise(&self, names: &mut Names, mode: Mode) -> Value {
        let job_names = [&self.job, &self.job2].map(|job| job.as_ref().map_or("", name));
        for pod in &self.pods {
            names.generated(name(pod), "<pod>");
        }
        for workload in &self.workloads {
            if workload_pattern(name(workload), job_names).is_some() {
                names.generated(name(workload), "<workload>");
            }
        }
        for group in &self.pod_groups {
            names.generated(name(group), "<podgroup>");
        }
        let job = self.job.as_ref().map(|job| normal_job(job, names));
        let job2 = self.job2.as_ref().map(|job| normal_job(job, names));
        let workloads = self.workloads.iter().map(|workload| {
            let pattern = workload_pattern(name(workload), job_names);
            normal_gang_object(workload, pattern.unwrap_or_else(|| name(workload).to_owned()), names)
        });
        let groups = self.pod_groups.iter().map(|group| {
            let pattern = group_pattern(group, job_names);
            normal_gang_object(group, pattern, names)
        });
        json!({
            "job": job,
            "job2": job2,
            "pods": normal_pods(&self.pods, names, mode),
            "events": normal_events(&self.events, names, mode),
            "workloads": workloads.collect::<Value>(),
            "podGroups": groups.collect::<Value>(),
        })
    }
}

fn normal_job(job: &Value, names: &mut Names) -> Value {
    let mut normal = Map::new();
    put_keys(&mut normal, "labels", job, "/metadata/labels", names, None);
    put_keys(&mut normal, "annotations", job, "/metadata/annotations", names, None);
    let mut finalizers = strings(job, "/metadata/finalizers");
    if !finalizers.is_empty() {
        finalizers.sort_unstable();
        normal.insert("finalizers".into(), finalizers.into());
    }
    if terminating(job) {
        normal.insert("deleting".into(), true.into());
    }
    let mut status = job["status"].as_object().cloned().unwrap_or_default();
    if let Some(time) = status.get_mut("startTime") {
        let number = names.start_time_number(uid(job), time.as_str().unwrap_or_default());
        *time = format!("<time#{number}>").into();
    }
    if let Some(time) = status.get_mut("completionTime") {
        *time = "<time>".into();
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        normal_condition(condition, names);
    }
    let uncounted = status.get_mut("uncountedTerminatedPods").and_then(Value::as_object_mut);
    for uids in uncounted.into_iter().flat_map(Map::values_mut) {
        *uids = uids.as_array().map_or(0, Vec::len).into();
    }
    normal.insert("status".into(), status.into());
    normal.into()
}

fn normal_condition(condition: &mut Value, names: &Names) {
    let Some(fields) = condition.as_object_mut() else { return };
    fields.remove("lastProbeTime");
    fields.remove("lastTransitionTime");
    if let Some(message) = fields.get_mut("message") {
        *message = names.hide(message.as_str().unwrap_or_default()).into();
    }
}

/// Adds labels or annotations, if there are any but Yardmaster's own.
fn put_keys(
    normal: &mut Map<String, Value>,
    key: &str,
    object: &Value,
    pointer: &str,
    names: &Names,
    index: Option<u32>,
) {
    let keys = object.pointer(pointer).and_then(Value::as_object).map(without_own_keys).unwrap_or_default();
    if keys.is_empty() {
        return;
    }
    let index = index.map(|index| index.to_string());
    let shown = keys.into_iter().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        let own_index = key == INDEX_KEY && index.as_deref() == Some(value);
        let shown = if own_index { "<index>" } else { names.uid_placeholder(value) };
        (key, Value::from(shown))
    });
    normal.insert(key.into(), shown.collect::<Map<_, _>>().into());
}

/// Pods that differ only in their index.
#[derive(Default)]
struct Group {
    count: usize,
    indexes: BTreeMap<u32, usize>,
}

fn normal_pods(pods: &[Value], names: &Names, mode: Mode) -> Value {
    let mut groups: BTreeMap<String, (Map<String, Value>, Group)> = BTreeMap::new();
    for pod in pods {
        let normal = normal_pod(pod, names, mode);
        let key = format!("{} {}", Value::Object(normal.clone()), index(pod).is_some());
        let (_, group) = groups.entry(key).or_insert_with(|| (normal, Group::default()));
        group.count += 1;
        if let Some(index) = index(pod) {
            *group.indexes.entry(index).or_default() += 1;
        }
    }
    let shown = groups.into_values().map(|(mut normal, group)| {
        normal.insert("count".into(), group.count.into());
        if !group.indexes.is_empty() {
            normal.insert("indexes".into(), indexes::render(&group.indexes).into());
        }
        Value::Object(normal)
    });
    shown.collect()
}

/// A pod without its index. Pods that differ only in their index become equal.
fn normal_pod(pod: &Value, names: &Names, mode: Mode) -> Map<String, Value> {
    let index = index(pod);
    let mut normal = Map::new();
    normal.insert("phase".into(), phase(pod).into());
    normal.insert("ready".into(), ready(pod).into());
    normal.insert("scheduled".into(), (!text(pod, "/spec/nodeName").is_empty()).into());
    normal.insert("terminating".into(), terminating(pod).into());
    let (ours, mut others): (Vec<_>, Vec<_>) =
        strings(pod, "/metadata/finalizers").into_iter().partition(|f| *f == mode.finalizer());
    normal.insert("trackingFinalizer".into(), (!ours.is_empty()).into());
    if !others.is_empty() {
        others.sort_unstable();
        normal.insert("otherFinalizers".into(), others.into());
    }
    put_keys(&mut normal, "labels", pod, "/metadata/labels", names, index);
    put_keys(&mut normal, "annotations", pod, "/metadata/annotations", names, index);
    put_names(&mut normal, pod, index);
    normal.insert("owners".into(), normal_owners(pod, names));
    put_index_env(&mut normal, pod);
    if let Some(selector) = pod.pointer("/spec/nodeSelector") {
        normal.insert("nodeSelector".into(), selector.clone());
    }
    if let Some(group) = pod.pointer("/spec/schedulingGroup") {
        normal.insert("schedulingGroup".into(), hide_strings(group, names));
    }
    let marks = names.marks_of(uid(pod));
    if !marks.is_empty() {
        normal.insert("marks".into(), marks.into());
    }
    normal
}

/// Host name and generateName, with `<job>` and `<index>` where the pod has an index.
fn put_names(normal: &mut Map<String, Value>, pod: &Value, index: Option<u32>) {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = owners.into_iter().flatten().find(|owner| owner["kind"] == "Job");
    let job = owner.and_then(|owner| owner["name"].as_str()).unwrap_or_default();
    let job = if job.is_empty() { text(pod, "/metadata/labels/job-name") } else { job };
    for (key, pointer, end) in
        [("hostname", "/spec/hostname", ""), ("generateName", "/metadata/generateName", "-")]
    {
        let name = text(pod, pointer);
        if name.is_empty() {
            continue;
        }
        let pattern = index.and_then(|index| {
            let before = name.strip_suffix(&format!("-{index}{end}"))?;
            let before = if before == job { "<job>" } else { before };
            Some(format!("{before}-<index>{end}"))
        });
        normal.insert(key.into(), pattern.unwrap_or_else(|| name.to_owned()).into());
    }
}

fn put_index_env(normal: &mut Map<String, Value>, pod: &Value) {
    let containers = ["/spec/containers", "/spec/initContainers"].into_iter();
    let containers = containers.filter_map(|pointer| pod.pointer(pointer)?.as_array()).flatten();
    let env = containers.filter_map(|container| {
        let env = container["env"].as_array()?.iter().find(|env| env["name"] == "JOB_COMPLETION_INDEX")?;
        let value = env.pointer("/valueFrom/fieldRef/fieldPath").unwrap_or(&env["value"]);
        Some((container["name"].as_str()?.to_owned(), value.clone()))
    });
    let env: Map<_, _> = env.collect();
    if !env.is_empty() {
        normal.insert("completionIndexEnv".into(), env.into());
    }
}

fn normal_owners(object: &Value, names: &Names) -> Value {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = |owner: &Value| {
        let kind = owner["kind"].as_str().unwrap_or_default();
        let of = match kind {
            "Job" => names.job_of_uid(owner["uid"].as_str().unwrap_or_default()),
            "Workload" | "PodGroup" => {
                let name = owner["name"].as_str().unwrap_or_default();
                Some(names.placeholder(name)).filter(|shown| *shown != name)
            }
            _ => None,
        };
        let mut normal = Map::new();
        normal.insert("kind".into(), kind.into());
        normal.insert("of".into(), of.unwrap_or("other").into());
        for flag in ["controller", "blockOwnerDeletion"] {
            if let Some(value) = owner.get(flag) {
                normal.insert(flag.into(), value.clone());
            }
        }
        Value::Object(normal)
    };
    owners.into_iter().flatten().map(owner).collect()
}

/// The prefix with which clients mark an event that combines several similar ones.
const COMBINED: &str = "(combined from similar events): ";

/// The message per pod, and the number of pods. Outside replacement mode one event covers a batch of pods.
fn batch(message: &str) -> (String, u64) {
    let of_many = || {
        let (verb, pods) = message.strip_suffix(" pods")?.split_once(' ')?;
        let pods = pods.parse().ok().filter(|_| ["Created", "Deleted"].contains(&verb))?;
        Some((format!("{verb} pod: <pod>"), pods))
    };
    of_many().unwrap_or_else(|| (message.to_owned(), 1))
}

/// The controller's events. Counts of equal ones are added.
fn normal_events(events: &[Value], names: &Names, mode: Mode) -> Value {
    let mut counts: BTreeMap<[String; 4], u64> = BTreeMap::new();
    for event in events {
        let source = text(event, "/source/component");
        let source = if source.is_empty() { text(event, "/reportingComponent") } else { source };
        let job = names.job_of_uid(text(event, "/involvedObject/uid"));
        let (true, Some(on)) = (source == mode.event_source(), job) else { continue };
        let message = text(event, "/message");
        let (message, pods) = batch(message.strip_prefix(COMBINED).unwrap_or(message));
        let message = names.hide(&message);
        let key = [on, text(event, "/type"), text(event, "/reason"), &message].map(str::to_owned);
        let series = event.pointer("/series/count").and_then(Value::as_u64);
        let count = series.or_else(|| event["count"].as_u64()).unwrap_or(1);
        *counts.entry(key).or_default() += count.max(1) * pods;
    }
    let event = |([on, kind, reason, message], count): ([String; 4], u64)| json!({"on": on, "type": kind, "reason": reason, "message": message, "count": count});
    counts.into_iter().map(event).collect()
}

fn normal_gang_object(object: &Value, pattern: String, names: &Names) -> Value {
    let mut normal = Map::new();
    normal.insert("name".into(), pattern.into());
    normal.insert("owners".into(), normal_owners(object, names));
    normal.insert("spec".into(), hide_strings(&object["spec"], names));
    let mut finalizers = strings(object, "/metadata/finalizers");
    if !finalizers.is_empty() {
        finalizers.sort_unstable();
        normal.insert("finalizers".into(), finalizers.into());
    }
    normal.into()
}

/// `<job>-<hash>` if the name has that form.
fn workload_pattern(name: &str, jobs: [&str; 2]) -> Option<String> {
    jobs.into_iter().filter(|job| !job.is_empty()).find_map(|job| {
        is_hash(name.strip_prefix(job)?.strip_prefix('-')?).then(|| "<job>-<hash>".to_owned())
    })
}

/// `<workload>-<job>-pgt-0-<hash>` if the name has that form, otherwise the name.
fn group_pattern(group: &Value, jobs: [&str; 2]) -> String {
    let template = "/spec/podGroupTemplateRef/workload";
    let workload = text(group, &format!("{template}/workloadName"));
    let template = text(group, &format!("{template}/podGroupTemplateName"));
    let hash = name(group)
        .strip_prefix(workload)
        .and_then(|suffix| suffix.strip_prefix('-')?.strip_prefix(template)?.strip_prefix('-'));
    if !hash.is_some_and(is_hash) {
        return name(group).to_owned();
    }
    // The Job may be gone already. The template of its PodGroup still contains its name.
    let job = jobs.into_iter().find(|job| !job.is_empty()).or_else(|| template.strip_suffix("-pgt-0"));
    let template = match job.and_then(|job| template.strip_prefix(job)) {
        Some(suffix) => format!("<job>{suffix}"),
        None => template.to_owned(),
    };
    format!("<workload>-{template}-<hash>")
}

fn is_hash(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn strings<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    let items = object.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Replaces strings that are generated names.
fn hide_strings(value: &Value, names: &Names) -> Value {
    match value {
        Value::String(text) => names.placeholder(text).into(),
        Value::Array(items) => items.iter().map(|item| hide_strings(item, names)).collect(),
        Value::Object(fields) => {
            let hidden = fields.iter().map(|(key, value)| (key.clone(), hide_strings(value, names)));
            Value::Object(hidden.collect())
        }
        other => other.clone(),
    }
}

/// Seconds between `since` and the creation of the newest pod.
pub(crate) fn newest_pod_after(pods: &[Value], since: jiff::Timestamp) -> Option<i64> {
    let created = |pod| text(pod, "/metadata/creationTimestamp").parse::<jiff::Timestamp>().ok();
    let newest = pods.iter().filter_map(created).max()?;
    Some(newest.as_second() - since.as_second())
}
