//! A request, and what its answer must have.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

/// Time between two attempts of a request.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// A request, and what its answer must have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) asks: String,
    #[serde(default = "get")]
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default = "json_type")]
    pub(crate) accept: String,
    #[serde(default = "json_type")]
    pub(crate) r#type: String,
    #[serde(default)]
    pub(crate) body: Value,
    #[serde(default = "ok")]
    pub(crate) status: u16,
    /// Fields of the answer.
    #[serde(default)]
    pub(crate) has: Value,
    /// A list that must be empty.
    pub(crate) empty: Option<String>,
    /// Lists, and the number of elements that each must have.
    #[serde(default)]
    pub(crate) count: BTreeMap<String, usize>,
    /// Fields of each element of lists.
    #[serde(default)]
    pub(crate) each: BTreeMap<String, Value>,
}

fn get() -> String {
    "GET".into()
}

fn json_type() -> String {
    "application/json".into()
}

fn ok() -> u16 {
    200
}

impl Request {
    /// A request that creates an object.
    pub(crate) fn create(asks: String, path: String, body: Value) -> Self {
        Self {
            asks,
            method: "POST".into(),
            path,
            accept: json_type(),
            r#type: json_type(),
            body,
            status: 201,
            has: Value::Null,
            empty: None,
            count: BTreeMap::new(),
            each: BTreeMap::new(),
        }
    }

    /// Status and body. Bodies that are no JSON are texts, and those of watches `{"events": [...]}`.
    async fn answer(&self, client: &kube::Client) -> (u16, Value) {
        let body = if self.body.is_null() { Vec::new() } else { serde_json::to_vec(&self.body).unwrap() };
        let request = http::Request::builder()
            .method(&*self.method)
            .uri(&*self.path)
            .header("Accept", &*self.accept)
            .header("Content-Type", &*self.r#type)
            .body(Body::from(body))
            .unwrap();
        let response = client.send(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
        let body = match values {
            Ok(values) if self.path.contains("watch=1") => json!({"events": values}),
            Ok(values) if values.len() == 1 => values[0].clone(),
            _ => text.into_owned().into(),
        };
        (status, body)
    }

    /// The answer, if it has what it must have.
    ///
    /// # Errors The first problem of the answer.
    pub(crate) async fn ask(&self, client: &kube::Client) -> Result<Value, String> {
        let (status, body) = self.answer(client).await;
        if status != self.status {
            return Err(format!("{status}, not {}: {body}", self.status));
        }
        let is_empty = |field: &String| body[&**field].as_array().is_some_and(Vec::is_empty);
        if let Some(field) = self.empty.as_ref().filter(|field| !is_empty(field)) {
            return Err(format!("{field} is not empty"));
        }
        for (field, count) in &self.count {
            let found = body[field].as_array().map_or(0, Vec::len);
            if found != *count {
                return Err(format!("{found} {field}, not {count}"));
            }
        }
        for (field, wanted) in &self.each {
            for element in body[field].as_array().into_iter().flatten() {
                lacks(field, element, wanted).map_or(Ok(()), Err)?;
            }
        }
        lacks("the answer", &body, &self.has).map_or(Ok(body), Err)
    }

    /// The first problem of the answer.
    pub(crate) async fn problem(&self, client: &kube::Client) -> Option<String> {
        self.ask(client).await.err()
    }
}

/// Whether `<not TEXT>` is wanted and this is another text.
fn is_another(wanted: &str, text: &str) -> bool {
    let not = wanted.strip_prefix("<not ").and_then(|rest| rest.strip_suffix('>'));
    not.is_some_and(|not| not != text)
}

/// Where a value lacks what is wanted.
fn lacks(path: &str, value: &Value, wanted: &Value) -> Option<String> {
    let differs = || Some(format!("{path} is {value}, not {wanted}"));
    match (wanted, value) {
        (Value::Null, _) => None,
        (Value::Object(fields), _) => {
            fields.iter().find_map(|(field, wanted)| lacks(&format!("{path}.{field}"), &value[field], wanted))
        }
        (Value::Array(wanted), Value::Array(elements)) => wanted.iter().find_map(|wanted| {
            let found = elements.iter().any(|element| lacks(path, element, wanted).is_none());
            (!found).then(|| format!("{path} has no element like {wanted}: {value}"))
        }),
        (Value::String(any), Value::String(text)) if any == "<text>" && !text.is_empty() => None,
        (Value::String(none), Value::Null) if none == "<none>" => None,
        (Value::String(not), Value::String(text)) if is_another(not, text) => None,
        _ if value == wanted => None,
        _ => differs(),
    }
}
