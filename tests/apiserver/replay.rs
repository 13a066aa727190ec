//! Plays one recorded case.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use yardmaster_embedded::{ApiServer, ApiServerConfig};

use crate::compare;

/// The server that a case runs on.
struct Target {
    client: kube::Client,
    /// Absent for an outside cluster.
    embedded: Option<ApiServer>,
}

impl Target {
    async fn start() -> Self {
        let outside = std::env::var_os("YARDMASTER_KUBECONFIG");
        let (kubeconfig, embedded) = match outside {
            Some(file) => (Kubeconfig::read_from(file).unwrap(), None),
            None => {
                let config = ApiServerConfig { api_only: true, ..ApiServerConfig::default() };
                let server = ApiServer::start(config).await.unwrap();
                (server.kubeconfig(), Some(server))
            }
        };
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Self { client: kube::Client::try_from(config).unwrap(), embedded }
    }
}

/// An answer in the form of the recordings.
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

struct Player<'a> {
    group: &'a str,
    target: Target,
    /// Raw answer bodies by step.
    bodies: BTreeMap<String, Value>,
    differences: Vec<String>,
}

/// Plays a case and returns the differences.
pub(crate) async fn run(group: &str, case: &Value) -> Vec<String> {
    let target = Target::start().await;
    let mut player = Player { group, target, bodies: BTreeMap::new(), differences: Vec::new() };
    if let Some(namespace) = case["namespace"].as_str() {
        let body = serde_json::json!({"metadata": {"name": namespace}});
        let request = http::Request::post("/api/v1/namespaces")
            .header("Content-Type", "application/json")
            .body(body.to_string())
            .unwrap();
        let status = player.send(request).await.unwrap().status;
        assert_eq!(status, 201, "creating namespace {namespace}");
    }
    for step in case["steps"].as_array().unwrap() {
        player.step(step).await;
    }
    if let Some(server) = player.target.embedded.take() {
        server.shutdown().await;
    }
    player.differences
}

impl Player<'_> {
    async fn step(&mut self, step: &Value) {
        match step["request"]["method"].as_str().unwrap() {
            "X-WAIT" if self.target.embedded.is_some() => return,
            "X-WAIT" => {
                let seconds = step["request"]["seconds"].as_f64().unwrap();
                return tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            }
            "X-COMPACT" => {
                if let Some(server) = &self.target.embedded {
                    server.compact();
                }
                return;
            }
            _ => {}
        }
        let id = step["id"].as_str().unwrap_or_default();
        let request = match self.request(&step["request"]) {
            Ok(request) => request,
            Err(problem) => return self.differences.push(format!("{id}: {problem}")),
        };
        let during: Vec<Value> = step["during"].as_array().cloned().unwrap_or_default();
        let expected = step["response"]["body"].as_array().map_or(0, Vec::len);
        let answer = if during.is_empty() {
            self.send(request).await
        } else {
            self.stream(request, &during, expected).await
        };
        match answer {
            Ok(answer) => self.compare(id, step, &answer),
            Err(problem) => self.differences.push(format!("{id}: {problem}")),
        }
    }

    /// Opens a stream and plays the steps that happen during it. Reads the stream until the expected number
    /// of events has arrived, or to its end if no event is expected.
    async fn stream(
        &mut self,
        request: http::Request<String>,
        during: &[Value],
        expected: usize,
    ) -> Result<Answer, String> {
        let response = self.open(with_longer_timeout(request, expected)).await?;
        let (done, steps_done) = tokio::sync::oneshot::channel();
        let reader = tokio::spawn(read_events(response, expected, steps_done));
        for step in during {
            Box::pin(self.step(step)).await;
        }
        // The reader is gone only if the stream has ended.
        let _ = done.send(());
        reader.await.unwrap()
    }

    async fn send(&self, request: http::Request<String>) -> Result<Answer, String> {
        read(self.open(request).await?).await
    }

    async fn open(&self, request: http::Request<String>) -> Result<http::Response<Body>, String> {
        let (mut parts, body) = request.into_parts();
        parts.headers.insert("User-Agent", "recorder/1".parse().unwrap());
        let request = http::Request::from_parts(parts, Body::from(body.into_bytes()));
        self.target.client.send(request).await.map_err(|error| error.to_string())
    }

    fn request(&self, recorded: &Value) -> Result<http::Request<String>, String> {
        let recorded = self.fill(recorded);
        let mut address = recorded["path"].as_str().unwrap().to_owned();
        if let Some(query) = recorded["query"].as_object().filter(|query| !query.is_empty()) {
            let mut encoded = form_urlencoded::Serializer::new(String::new());
            for (key, value) in query {
                encoded.append_pair(key, value.as_str().unwrap());
            }
            address = format!("{address}?{}", encoded.finish());
        }
        let mut request = http::Request::builder().method(recorded["method"].as_str().unwrap()).uri(address);
        for (name, value) in recorded["headers"].as_object().into_iter().flatten() {
            request = request.header(name, value.as_str().unwrap());
        }
        let body = match &recorded["body"] {
            Value::Null if recorded.get("body").is_none() => String::new(),
            Value::String(text) => text.clone(),
            body if body.get("$repeat").is_some() => {
                let part = |at: usize| body["$repeat"][at].as_str().unwrap().to_owned();
                let times = usize::try_from(body["$repeat"][2].as_u64().unwrap()).unwrap();
                let end = body["$repeat"][3].as_str().unwrap_or_default();
                format!("{}{}{end}", part(0), part(1).repeat(times))
            }
            body if body.get("$from").is_some() => {
                let step = body["$from"].as_str().unwrap();
                let mut earlier =
                    self.bodies.get(step).cloned().ok_or_else(|| format!("no answer of {step}"))?;
                json_patch::merge(&mut earlier, &body["$merge"]);
                earlier.to_string()
            }
            body => spaced(body),
        };
        request.body(body).map_err(|error| error.to_string())
    }

    /// Fills in placeholders such as `${s1.metadata.uid}` in all strings.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill_text(text)),
            Value::Array(elements) => elements.iter().map(|element| self.fill(element)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), self.fill(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut remaining = text;
        while let Some((before, placeholder)) = remaining.split_once("${") {
            let (place, behind) = placeholder.split_once('}').unwrap();
            filled.push_str(before);
            let mut parts = place.split('.');
            let mut value = self.bodies.get(parts.next().unwrap());
            for part in parts {
                value = value.and_then(|value| match part.parse::<usize>() {
                    Ok(at) if value.is_array() => value.get(at),
                    _ => value.get(part),
                });
            }
            match value {
                Some(Value::String(text)) => filled.push_str(text),
                Some(other) => filled.push_str(&other.to_string()),
                None => filled.push_str("<missing>"),
            }
            remaining = behind;
        }
        filled + remaining
    }

    fn compare(&mut self, id: &str, step: &Value, answer: &Answer) {
        let wanted = &step["response"];
        let mut body = parse_body(&wanted["body"], answer);
        self.bodies.insert(id.to_owned(), body.clone());
        if self.group != "server-side-apply" {
            compare::without_managed_fields(&mut body);
        }
        for rule in step["keep"].as_array().into_iter().flatten() {
            let path: Vec<&str> = rule["path"].as_str().unwrap().split('.').collect();
            compare::keep(&mut body, &path, rule["by"].as_str().unwrap(), rule["in"].as_array().unwrap());
        }
        let mut differences = Vec::new();
        if wanted["status"] != answer.status {
            differences.push(format!("status: wanted {}, got {}", wanted["status"], answer.status));
        }
        let headers = wanted["headers"].as_object().cloned().unwrap_or_default();
        for name in ["Content-Type", "Warning", "Retry-After"] {
            let got = answer.headers.get(name).map_or("", String::as_str);
            let wanted = headers.get(name).and_then(Value::as_str).unwrap_or_default();
            if !compare::texts(wanted, got) {
                differences.push(format!("{name}: wanted {wanted:?}, got {got:?}"));
            }
        }
        let mut wanted_body = wanted["body"].clone();
        if let (Some(wanted), true) = (wanted_body.as_str(), is_yaml(answer)) {
            wanted_body = serde_saphyr::from_str(wanted).unwrap_or_else(|_| Value::from(wanted));
        }
        if is_yaml(answer) && wanted_body != "<any>" {
            body = serde_saphyr::from_str(&answer.body).unwrap_or(body);
            compare::without_managed_fields(&mut body);
        }
        compare::sort_managed_fields(&mut wanted_body);
        compare::sort_managed_fields(&mut body);
        compare::values(&wanted_body, &body, "body", &mut differences);
        self.differences.extend(differences.into_iter().map(|difference| format!("{id}: {difference}")));
    }
}

/// JSON as the recorder wrote it, with a space after each colon and comma. Some answers quote its beginning.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(spaced).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

fn is_yaml(answer: &Answer) -> bool {
    answer.headers.get("Content-Type").is_some_and(|kind| kind == "application/yaml")
}

async fn read(response: http::Response<Body>) -> Result<Answer, String> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Answer { status: parts.status.as_u16(), headers: compared_headers(&parts.headers), body })
}

/// Time in which a surplus event may still arrive after the expected ones.
const SURPLUS: Duration = Duration::from_millis(200);

/// Extends the timeout of streams with expected events. The recorded timeout can be too short on a busy
/// machine. These streams are read only until all expected events have arrived, so a longer timeout costs no
/// time.
fn with_longer_timeout(request: http::Request<String>, expected: usize) -> http::Request<String> {
    if expected == 0 {
        return request;
    }
    let (mut parts, body) = request.into_parts();
    let address = parts.uri.to_string();
    let (path, query) = address.split_once('?').unwrap_or((&address, ""));
    let pairs = form_urlencoded::parse(query.as_bytes()).map(|(key, value)| match key.as_ref() {
        "timeoutSeconds" => (key, "60".into()),
        _ => (key, value),
    });
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    parts.uri = format!("{path}?{query}").parse().unwrap();
    http::Request::from_parts(parts, body)
}

/// Reads events until all expected ones have arrived, the steps are done, and no surplus event follows.
async fn read_events(
    response: http::Response<Body>,
    expected: usize,
    mut steps_done: tokio::sync::oneshot::Receiver<()>,
) -> Result<Answer, String> {
    let (parts, mut body) = response.into_parts();
    let mut text = Vec::new();
    let mut busy = true;
    loop {
        let events = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let events = events.filter_map(|line| serde_json::from_slice(line).ok());
        let complete =
            expected > 0 && events.filter(|event| !is_periodic_bookmark(event)).count() >= expected;
        tokio::select! {
            frame = body.frame() => match frame {
                Some(Ok(frame)) => text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                Some(Err(error)) => return Err(error.to_string()),
                None => break,
            },
            _ = &mut steps_done, if busy => busy = false,
            () = tokio::time::sleep(SURPLUS), if complete && !busy => break,
        }
    }
    let body = String::from_utf8_lossy(&text).into_owned();
    Ok(Answer { status: parts.status.as_u16(), headers: compared_headers(&parts.headers), body })
}

fn compared_headers(headers: &http::HeaderMap) -> BTreeMap<String, String> {
    let mut compared = BTreeMap::new();
    for name in ["Content-Type", "Warning", "Retry-After"] {
        let values: Vec<&str> = headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
        if !values.is_empty() {
            compared.insert(name.to_owned(), values.join(", "));
        }
    }
    compared
}

/// The body in the form of the recording: events of a stream, parsed JSON, or text.
fn parse_body(wanted: &Value, answer: &Answer) -> Value {
    if wanted.is_array() {
        let events = answer.body.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null));
        return events.filter(|event: &Value| !is_periodic_bookmark(event)).collect();
    }
    serde_json::from_str(&answer.body).unwrap_or_else(|_| Value::String(answer.body.clone()))
}

fn is_periodic_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK"
        && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null()
        && event["object"]["rows"][0]["object"]["metadata"]["annotations"].is_null()
}
