//! Requests: none in a hot loop, and none that the API server's validation rejects.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, Response};

use crate::time::Time;

/// Most requests of one kind for one object in a second.
const OF_ONE_OBJECT: u32 = 40;
/// Most lists and watches of one selection in a second.
const OF_ONE_SELECTION: u32 = 20;

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
        let collection = request.method() == Method::POST;
        if collection {
            return None;
        }
        let what = format!("{} {}", request.method(), request.uri());
        let most = if request.uri().query().is_some() { OF_ONE_SELECTION } else { OF_ONE_OBJECT };
        let count = self.requests.entry((from, what)).or_insert(0);
        *count += 1;
        (*count > most).then(|| {
            format!(
                "replica-{from} has sent {} {} {count} times in a second",
                request.method(),
                request.uri()
            )
        })
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
