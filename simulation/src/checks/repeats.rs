//! How often a replica repeats a request: whatever the answer is, it must not be sent again and again.

use std::collections::BTreeMap;

use http::{Method, Request};

use super::traffic::object_in;
use crate::time::Time;

/// The most requests of one kind for one object that a replica has sent in each minute.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    minute: u64,
    sent: BTreeMap<(usize, String), u32>,
    most: BTreeMap<u64, (u32, String)>,
}

impl Repeats {
    pub(super) fn sent(&mut self, at: Time, from: usize, request: &Request<bytes::Bytes>) {
        let minute = at.millis() / 60_000;
        if minute != self.minute {
            self.minute = minute;
            self.sent.clear();
        }
        let Some(what) = what(request) else { return };
        let count = self.sent.entry((from, what.clone())).or_insert(0);
        *count += 1;
        let most = self.most.entry(minute).or_default();
        if *count > most.0 {
            *most = (*count, format!("replica-{from} {what}"));
        }
    }

    /// By minute: how many, and of what.
    pub(super) fn by_minute(self) -> BTreeMap<u64, (u32, String)> {
        self.most
    }
}

/// The kind of a request with its object; all claims of shards are one. Heartbeats come at their own pace, and no Event is
/// repeated.
fn what(request: &Request<bytes::Bytes>) -> Option<String> {
    let (method, uri) = (request.method(), request.uri());
    let path = uri.path();
    if claims_shard(request) {
        return Some(format!("{method} of claims"));
    }
    if path.contains("/leases") || path.contains("/events") {
        return None;
    }
    let object = match *method {
        Method::POST => object_in(request).ok()?["metadata"]["name"].as_str()?.to_owned(),
        _ => selection(uri.query().unwrap_or_default()),
    };
    Some(format!("{method} {path} {object}"))
}

/// Whether a request writes the claim of a shard.
pub(crate) fn claims_shard(request: &Request<bytes::Bytes>) -> bool {
    let is_claim = |name: &str| name.contains("-shard-");
    let path = request.uri().path();
    match *request.method() {
        Method::GET => false,
        Method::POST if path.ends_with("/leases") => {
            object_in(request).is_ok_and(|lease| lease["metadata"]["name"].as_str().is_some_and(is_claim))
        }
        _ => path.rsplit_once("/leases/").is_some_and(|(_, name)| is_claim(name)),
    }
}

/// The label selectors of a query: they tell the lists and watches of a path apart, at any version.
fn selection(query: &str) -> String {
    let selects = |part: &&str| part.starts_with("labelSelector");
    query.split('&').filter(selects).collect::<Vec<_>>().join("&")
}
