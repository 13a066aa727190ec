//! A minimal storage, sufficient to run recorded requests through decoding and strategies.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::compare::{difference, matches};
use crate::rules::apply::{self, ApplyError, ObjectType, Write};
use crate::rules::decode::{self, DecodeError, Decoded, TypeError};
use crate::rules::{
    Cause, CoreEventStrategy, CronJobStrategy, EventStrategy, JobStrategy, LeaseStrategy, PodGroupStrategy,
    PodStrategy, Strategy, Subresource, WorkloadStrategy,
};

/// The result of one recorded step.
pub(super) enum Outcome {
    Agrees,
    Differs(String),
    /// The step needs more than the rules.
    OutOfScope,
}

/// A kind under test: plural, group and version, kind, rules.
type Resource = (&'static str, &'static str, &'static str, &'static dyn Strategy);

const RESOURCES: &[Resource] = &[
    ("jobs", "batch/v1", "Job", &JobStrategy),
    ("cronjobs", "batch/v1", "CronJob", &CronJobStrategy),
    ("pods", "v1", "Pod", &PodStrategy),
    ("events", "v1", "Event", &CoreEventStrategy),
    ("events", "events.k8s.io/v1", "Event", &EventStrategy),
    ("leases", "coordination.k8s.io/v1", "Lease", &LeaseStrategy),
    ("workloads", "scheduling.k8s.io/v1alpha2", "Workload", &WorkloadStrategy),
    ("podgroups", "scheduling.k8s.io/v1alpha2", "PodGroup", &PodGroupStrategy),
];

/// A response: the code, the body and the warnings.
struct Answer {
    code: u64,
    body: Value,
    warnings: Vec<String>,
}

/// The objects and responses of one case.
#[derive(Default)]
pub(super) struct Replay {
    /// Whether field managers are tracked.
    track: bool,
    objects: HashMap<String, Value>,
    answers: HashMap<String, Value>,
    uids: u32,
}

impl Replay {
    pub(super) fn new(track: bool) -> Self {
        Self { track, ..Self::default() }
    }

    /// Runs the steps of a case up to the first one that changes the state and is out of scope.
    pub(super) fn run(mut self, case: &Value) -> Vec<Outcome> {
        let steps = case["steps"].as_array().unwrap();
        let mut outcomes = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            // Conflicts, admission, missing objects and request parameters are the server's responsibility.
            let code = step["response"]["status"].as_u64().unwrap_or(0);
            let beyond = matches!(code, 403 | 404 | 413)
                || (code == 409
                    && !step["response"]["body"]["message"].as_str().unwrap().starts_with("Apply failed"))
                || step["request"]["query"]["fieldValidation"] == "Other";
            let answer = if beyond { None } else { self.answer(step) };
            let Some(answer) = answer else {
                outcomes.extend(steps[index..].iter().map(|_| Outcome::OutOfScope));
                break;
            };
            self.answers.insert(step["id"].as_str().unwrap().into(), answer.body.clone());
            let recorded = &step["response"];
            outcomes.push(match judge(recorded, &answer) {
                None => Outcome::Agrees,
                Some(difference) => Outcome::Differs(format!("{}: {difference}", step["id"])),
            });
        }
        outcomes
    }

    fn answer(&mut self, step: &Value) -> Option<Answer> {
        let request = &step["request"];
        let path = self.fill(request["path"].as_str()?);
        let parts: Vec<&str> = path.split('/').skip_while(|part| *part != "namespaces").collect();
        let [_, namespace, plural, tail @ ..] = parts.as_slice() else { return None };
        let version = path.trim_start_matches("/apis/").trim_start_matches("/api/");
        let resource =
            RESOURCES.iter().find(|resource| resource.0 == *plural && version.starts_with(resource.1))?;
        let query = &request["query"];
        let applies = request["headers"]["Content-Type"] == "application/apply-patch+yaml";
        if !query["dryRun"].is_null()
            || (!query["force"].is_null() && !applies)
            || (!self.track && !query["fieldManager"].is_null())
        {
            return None;
        }
        let body = self.body(&request["body"]);
        let strict = query["fieldValidation"].as_str().unwrap_or("Warn").to_owned();
        let media = request["headers"]["Content-Type"].as_str().unwrap_or_default();
        let (name, subresource) = match tail {
            [] => ("", Subresource::Main),
            [name] => (*name, Subresource::Main),
            [name, "status"] => (*name, Subresource::Status),
            _ => return None,
        };
        let key = format!("{}/{plural}/{name}", resource.1);
        let manager = query["fieldManager"].as_str().unwrap_or("recorder");
        let write = Write { manager, subresource, now: "2026-01-01T00:00:00Z".parse().unwrap() };
        match request["method"].as_str()? {
            "POST" if media == "application/json" => {
                self.create(resource, namespace, &body, &strict, Some(write))
            }
            "GET" if !name.is_empty() && query.as_object().is_none_or(serde_json::Map::is_empty) => {
                let object = self.objects.get(&key)?;
                Some(Answer { code: 200, body: object.clone(), warnings: Vec::new() })
            }
            "PUT" => self.update(
                resource,
                &key,
                subresource,
                serde_json::from_str(&body).ok()?,
                &strict,
                Some(write),
            ),
            "PATCH" if media == "application/merge-patch+json" => {
                let mut object = self.objects.get(&key)?.clone();
                json_patch::merge(&mut object, &serde_json::from_str(&body).ok()?);
                self.update(resource, &key, subresource, object, &strict, Some(write))
            }
            "PATCH" if media == "application/apply-patch+yaml" && !query["fieldManager"].is_null() => {
                self.apply(resource, namespace, &key, &body, write, query["force"] == "true")
            }
            _ => None,
        }
    }

    fn apply(
        &mut self,
        resource: &Resource,
        namespace: &str,
        key: &str,
        body: &str,
        write: Write<'_>,
        force: bool,
    ) -> Option<Answer> {
        let applied: Value = serde_saphyr::from_str(body).ok()?;
        let name = applied["metadata"]["name"].as_str()?;
        if applied["kind"].is_null()
            || !key.ends_with(&format!("/{name}"))
            || !applied["metadata"]["uid"].is_null()
        {
            return None;
        }
        let live = self.objects.get(key).cloned();
        let ty = ObjectType { api_version: resource.1, kind: resource.2 };
        let error = |code: u64, error: &ApplyError| {
            Some(Answer { code, body: json!({ "message": error.to_string() }), warnings: Vec::new() })
        };
        match apply::apply(ty, live.as_ref(), &applied, write, force) {
            Ok(object) if live.is_some() => {
                self.update(resource, key, write.subresource, object, "Warn", None)
            }
            Ok(object) => self.create(resource, namespace, &object.to_string(), "Warn", None),
            Err(refused @ ApplyError::BadRequest(_)) => error(400, &refused),
            Err(refused @ ApplyError::Untyped(_)) => error(500, &refused),
            Err(refused @ ApplyError::Conflicts(_)) => error(409, &refused),
        }
    }

    /// The text of a request body.
    fn body(&self, body: &Value) -> String {
        if let Some([head, part, count, tail]) = body["$repeat"].as_array().map(Vec::as_slice) {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            return text(head)
                + &text(part).repeat(usize::try_from(count.as_u64().unwrap()).unwrap())
                + &text(tail);
        }
        if let Some(from) = body["$from"].as_str() {
            let mut object = self.answers[from].clone();
            json_patch::merge(&mut object, &body["$merge"]);
            return object.to_string();
        }
        match body {
            Value::String(text) => text.clone(),
            other => self.fill(&other.to_string()),
        }
    }

    /// Fills in `${STEP.PATH}`.
    fn fill(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        while let Some(start) = filled.find("${") {
            let end = start + filled[start..].find('}').unwrap();
            let mut path = filled[start + 2..end].split('.');
            let answer = &self.answers[path.next().unwrap()];
            let value = path.fold(answer, |value, field| &value[field]);
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            filled.replace_range(start..=end, &value);
        }
        filled
    }

    fn create(
        &mut self,
        resource: &Resource,
        namespace: &str,
        body: &str,
        strict: &str,
        write: Option<Write<'_>>,
    ) -> Option<Answer> {
        let (plural, api_version, kind, strategy) = *resource;
        let (mut object, mut warnings) =
            match decoded(strict, decode::from_json(api_version, kind, body.as_bytes())) {
                Ok(decoded) => decoded,
                Err(DecodeError::Syntax(_)) => return None,
                Err(error @ DecodeError::Type { .. }) => {
                    return Some(bad_request(api_version, kind, &error.to_string()));
                }
            };
        let metadata = object.get_mut("metadata")?;
        // The server's steps before the rules: names, namespaces, versions.
        let given = metadata["namespace"].as_str().unwrap_or(namespace);
        if given != namespace || namespace.starts_with("missing") || !metadata["resourceVersion"].is_null() {
            return None;
        }
        if metadata["name"].is_null() && !metadata["generateName"].is_null() {
            let prefix: String = metadata["generateName"].as_str().unwrap().chars().take(58).collect();
            metadata["name"] = format!("{prefix}bcdfg").into();
        }
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
            metadata.as_object_mut().unwrap().remove(field);
        }
        self.uids += 1;
        metadata["namespace"] = namespace.into();
        metadata["uid"] = format!("00000000-0000-4000-8000-{:012}", self.uids).into();
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();

        strategy.default_object(&mut object);
        let ty = ObjectType { api_version, kind };
        if let Some(write) = write.filter(|_| self.track) {
            apply::track_update(ty, None, &mut object, write);
        }
        strategy.prepare_create(&mut object);
        let causes = strategy.validate_create(&object);
        warnings.extend(strategy.warnings(Subresource::Main, None, &object));
        if !causes.is_empty() {
            return Some(invalid(&causes));
        }
        strategy.default_read_back(&mut object);
        object["metadata"]["resourceVersion"] = "1".into();
        let key = format!("{api_version}/{plural}/{}", object["metadata"]["name"].as_str().unwrap());
        if self.objects.contains_key(&key) {
            return None;
        }
        self.objects.insert(key, object.clone());
        Some(Answer { code: 201, body: object, warnings })
    }

    fn update(
        &mut self,
        resource: &Resource,
        key: &str,
        subresource: Subresource,
        object: Value,
        strict: &str,
        write: Option<Write<'_>>,
    ) -> Option<Answer> {
        let (_, api_version, kind, strategy) = *resource;
        let old = self.objects.get(key)?.clone();
        let (mut new, mut warnings) = match decoded(strict, decode::from_value(api_version, kind, object)) {
            Ok(decoded) => decoded,
            Err(_) => return None,
        };
        let version = &new["metadata"]["resourceVersion"];
        let current = version.is_null() || *version == "0" || *version == old["metadata"]["resourceVersion"];
        let same = |field: &str| new["metadata"][field] == old["metadata"][field];
        if !current || !same("name") || !same("namespace") {
            return None;
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        strategy.default_object(&mut new);
        let ty = ObjectType { api_version, kind };
        if let Some(write) = write.filter(|_| self.track) {
            apply::track_update(ty, Some(&old), &mut new, write);
        }
        strategy.prepare_update(subresource, &old, &mut new);
        let causes = strategy.validate_update(subresource, &old, &new);
        warnings.extend(strategy.warnings(subresource, Some(&old), &new));
        if !causes.is_empty() {
            return Some(invalid(&causes));
        }
        if new != old {
            let version: u64 = old["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            new["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        }
        self.objects.insert(key.into(), new.clone());
        Some(Answer { code: 200, body: new, warnings })
    }
}

/// The object and the warnings about its fields.
fn decoded(strict: &str, decoded: Result<Decoded, DecodeError>) -> Result<(Value, Vec<String>), DecodeError> {
    let decoded = decoded?;
    match strict {
        "Strict" if !decoded.strict.is_empty() => {
            let message = format!("strict decoding error: {}", decoded.strict.join(", "));
            let refusal = TypeError { field: String::new(), message, problem: String::new() };
            Err(DecodeError::Type { first: refusal, others: Vec::new(), strict: Vec::new() })
        }
        "Ignore" => Ok((decoded.object, Vec::new())),
        _ => Ok((decoded.object, decoded.strict)),
    }
}

fn bad_request(api_version: &str, kind: &str, error: &str) -> Answer {
    let version = api_version.rsplit('/').next().unwrap();
    let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}");
    Answer { code: 400, body: json!({ "message": message }), warnings: Vec::new() }
}

fn invalid(causes: &[Cause]) -> Answer {
    let causes: Vec<Value> = causes
        .iter()
        .map(|cause| json!({ "reason": reason(cause), "field": cause.field, "message": cause.message }))
        .collect();
    Answer { code: 422, body: json!({ "details": { "causes": causes } }), warnings: Vec::new() }
}

fn reason(cause: &Cause) -> String {
    let name = format!("{:?}", cause.reason);
    match name.as_str() {
        "TypeInvalid" | "Internal" => name,
        name => format!("FieldValue{name}"),
    }
}

/// The first difference between a recorded response and ours.
fn judge(recorded: &Value, answer: &Answer) -> Option<String> {
    let code = recorded["status"].as_u64().unwrap();
    let (body, ours) = (&recorded["body"], &answer.body);
    if code != answer.code {
        return Some(format!("recorded {code} {}, got {} {ours}", body["message"], answer.code));
    }
    match code {
        400 | 409 | 500 => {
            let (recorded, ours) = (body["message"].as_str().unwrap(), ours["message"].as_str().unwrap());
            (!matches(recorded, ours)).then(|| format!("recorded {recorded}\n     got {ours}"))
        }
        422 => {
            let recorded =
                if body["details"].is_object() { &body["details"]["causes"] } else { return None };
            let ours = &ours["details"]["causes"];
            difference(recorded, ours)
                .map(|difference| format!("{difference}\n  recorded {recorded}\n  got {ours}"))
        }
        _ => difference(body, ours).or_else(|| {
            let recorded = recorded["headers"]["Warning"].as_str().unwrap_or_default();
            let ours: Vec<String> = answer.warnings.iter().map(|text| format!("299 - {text:?}")).collect();
            let ours = ours.join(", ");
            (recorded != ours).then(|| format!("warnings: recorded {recorded}, got {ours}"))
        }),
    }
}
