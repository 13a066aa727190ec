//! Requests: none in a hot loop, and none that the API server's validation rejects.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::Value;

use crate::time::Time;

/// Most requests of one kind for one object in a second.
const OF_ONE_OBJECT: u32 = 40;
/// Most lists and watches of one selection in a second.
const OF_ONE_SELECTION: u32 = 20;

/// Most creations of a pod of one name in a second.
const OF_ONE_NAME: u32 = 5;

/// What replicas have sent in the current second.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    second: u64,
    requests: BTreeMap<(usize, String), u32>,
}

impl Traffic {
    /// What is wrong with the pace of a replica.
    pub(super) fn sent(&mut self, at: Time, from: usize, request: &Request<Bytes>) -> Option<String> {
        let second = at.millis() / 1_000;
        if second != self.second {
            self.second = second;
            self.requests.clear();
        }
        let (what, most) = if request.method() == Method::POST {
            if !request.uri().path().ends_with("/pods") {
                return None;
            }
            let pod: Value = serde_json::from_slice(request.body()).ok()?;
            let name = pod["metadata"]["name"].as_str().filter(|name| !name.is_empty())?;
            (format!("POST {}/{name}", request.uri()), OF_ONE_NAME)
        } else {
            let most = if request.uri().query().is_some() { OF_ONE_SELECTION } else { OF_ONE_OBJECT };
            (format!("{} {}", request.method(), request.uri()), most)
        };
        let count = self.requests.entry((from, what.clone())).or_insert(0);
        *count += 1;
        let count = *count;
        (count > most).then(|| format!("replica-{from} has sent {what} {count} times in a second"))
    }
}

/// What is wrong with a request that the API server has answered like this.
pub(super) fn rejected(from: usize, method: &Method, uri: &str, answer: &Response<Bytes>) -> Option<String> {
    let code = answer.status().as_u16();
    let is_write = *method != Method::GET;
    (is_write && matches!(code, 400 | 405 | 406 | 413 | 415 | 422)).then(|| {
        let message = String::from_utf8_lossy(answer.body());
        format!("replica-{from}: {method} {uri} -> {code} {message}")
    })
}
