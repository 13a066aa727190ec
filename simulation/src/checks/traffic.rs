//! Requests: none in a hot loop, and none that the API server's validation rejects.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use serde_json::Value;

use crate::network::{Sent, Wait};
use crate::plan::tenant::TENANT;
use crate::plan::{Act, Fault, Plan, Rare, Step};
use crate::time::Time;

/// The message with which a world refuses what its API server would accept.
pub(crate) const REFUSED: &str = "refused by the simulation";

/// Most requests of one kind for one object in a second, and most writes of one status that say the same.
const OF_ONE_OBJECT: u32 = 40;
/// Most lists and watches of one selection in a second.
const OF_ONE_SELECTION: u32 = 20;

/// Most creations of a pod of one name in a second.
const OF_ONE_NAME: u32 = 5;

/// The requests of replicas in the current second.
#[derive(Debug)]
pub(super) struct Traffic {
    second: u64,
    requests: BTreeMap<(usize, String), u32>,
    /// Status writes whose answer a replica waits for, and since when. Absent if a sender may have panicked
    /// or started over: it then does not wait for earlier answers.
    under_way: Option<BTreeMap<(usize, String), (Time, Wait)>>,
    /// Creations of pods, by replica and name, that the API server was too busy to read, and when they were sent first.
    unread: BTreeMap<(usize, String), Time>,
    /// How many replicas act for one Job. Each looks at what the others do to its pods.
    owners: u32,
    /// The last write that only work explains.
    last_work: Option<(Time, String)>,
}

impl Traffic {
    pub(super) fn new(plan: &Plan) -> Self {
        let panics = |step: &Step| {
            matches!(
                step.act,
                Act::Fault(Fault::Panic { .. } | Fault::PanicShard { .. } | Fault::PanicWatch { .. })
                    | Act::Rare(Rare::PanicPart { .. })
            )
        };
        let under_way = (!plan.steps.iter().any(panics)).then(BTreeMap::new);
        let owners = if plan.settings.all_own_all { plan.settings.replicas } else { 1 };
        let (requests, unread) = (BTreeMap::new(), BTreeMap::new());
        Self { second: 0, requests, under_way, unread, owners: owners as u32, last_work: None }
    }

    /// When a request was decided that is sent at a time. `busy`: the API server does not read it.
    pub(super) fn decided(
        &mut self,
        from: usize,
        request: &Request<Bytes>,
        sent_at: Time,
        busy: bool,
    ) -> Time {
        if request.method() != Method::POST || !request.uri().path().ends_with("/pods") {
            return sent_at;
        }
        let Some(name) =
            object_in(request).ok().and_then(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()))
        else {
            return sent_at;
        };
        let decided = self.unread.remove(&(from, name.clone())).unwrap_or(sent_at);
        if busy {
            self.unread.insert((from, name), decided);
        }
        decided
    }

    /// Checks a status write: the one before must have been answered. Otherwise it repeats that one, or comes
    /// too early.
    fn overtakes(&mut self, at: Time, from: usize, sent: &Sent) -> Option<String> {
        let path = sent.request.uri().path();
        // The tenant gives names again at once: such writes may be of two Jobs.
        let is_tenants = path.contains(&format!("/namespaces/{TENANT}/"));
        if sent.request.method() != Method::PATCH || !path.ends_with("/status") || is_tenants {
            return None;
        }
        let key = (from, path.to_owned());
        let (before, wait) = self.under_way.as_mut()?.insert(key, (at, sent.wait.clone()))?;
        wait.goes_on()
            .then(|| format!("replica-{from} sends PATCH {path} while the one of {before} is under way"))
    }

    /// A replica knows what has become of a request, or will never know.
    pub(super) fn settled(&mut self, from: usize, uri: &Uri) {
        if let Some(under_way) = &mut self.under_way {
            under_way.remove(&(from, uri.path().to_owned()));
        }
    }

    /// The replica has ended, and waits for no more answers.
    pub(super) fn ended(&mut self, replica: usize) {
        self.under_way.iter_mut().for_each(|all| all.retain(|(from, _), _| *from != replica));
        self.unread.retain(|(from, _), _| *from != replica);
    }

    /// Checks that no replica writes after this time, at which everything was at rest.
    pub(super) fn writes_at_rest(&self, after: Time) -> Option<String> {
        let (at, last) = self.last_work.as_ref().filter(|(at, _)| *at > after)?;
        Some(format!("a write at {at}, while everything is at rest: {last}"))
    }

    /// Checks the pace of a replica.
    pub(super) fn sent(&mut self, at: Time, from: usize, sent: &Sent) -> Option<String> {
        if let Some(what) = self.overtakes(at, from, sent) {
            return Some(what);
        }
        let request = &sent.request;
        if is_work(request) {
            let what = format!("replica-{from} {} {}", request.method(), request.uri().path());
            self.last_work = Some((at, what));
        }
        let second = at.millis() / 1_000;
        if second != self.second {
            self.second = second;
            self.requests.clear();
        }
        let (what, most) = if request.method() == Method::POST {
            if !request.uri().path().ends_with("/pods") {
                return None;
            }
            let pod = match object_in(request) {
                Ok(pod) => pod,
                Err(what) => {
                    return Some(format!("replica-{from} has sent a pod that cannot be read: {what}"));
                }
            };
            let name = pod["metadata"]["name"].as_str().filter(|name| !name.is_empty())?;
            (format!("POST {}/{name}", request.uri()), OF_ONE_NAME)
        } else {
            let most = match (request.method(), request.uri().query()) {
                (&Method::GET, Some(_)) => OF_ONE_SELECTION * self.owners,
                // If an owner has not seen a resume, it removes the pods that others create. They read the
                // Job for each.
                (&Method::GET, None) => OF_ONE_OBJECT * self.owners.pow(2),
                _ => OF_ONE_OBJECT,
            };
            (format!("{} {}{}", request.method(), request.uri(), status_in(request)), most)
        };
        let count = self.requests.entry((from, what.clone())).or_insert(0);
        *count += 1;
        let count = *count;
        (count > most).then(|| format!("replica-{from} has sent {what} {count} times in a second"))
    }
}

/// Whether a request is a write that must not happen at rest. Heartbeats and Events may, and so may the
/// deletion of a Job by its TTL.
fn is_work(request: &Request<Bytes>) -> bool {
    let path = request.uri().path();
    let is_of_job = path.rsplit('/').nth(1) == Some("jobs");
    match *request.method() {
        Method::GET => false,
        Method::DELETE if is_of_job => false,
        // The tenant's Jobs may go on for as long as the world.
        _ => !path.contains("-replica-") && !path.contains("/events") && !is_of_tenant(path),
    }
}

fn is_of_tenant(path: &str) -> bool {
    path.contains(&format!("/namespaces/{TENANT}/"))
}

/// The status that a write contains. If a Job counts one pod with each write, it needs a write for each pod,
/// and each status differs from the one before.
fn status_in(request: &Request<Bytes>) -> String {
    let is_of_status = *request.method() == Method::PATCH && request.uri().path().ends_with("/status");
    let object = is_of_status.then(|| object_in(request).ok()).flatten();
    object.map(|object| format!(" {}", object["status"])).unwrap_or_default()
}

/// The object in the body of a request.
pub(super) fn object_in(request: &Request<Bytes>) -> Result<Value, String> {
    let body = request.body();
    if yardmaster_embedded::is_in_protobuf(body) {
        return yardmaster_embedded::decode_protobuf(body);
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Checks the answer to a request: the API server must not reject a write as invalid.
pub(super) fn rejected(from: usize, method: &Method, uri: &str, answer: &Response<Bytes>) -> Option<String> {
    let code = answer.status().as_u16();
    let is_write = *method != Method::GET;
    let message = String::from_utf8_lossy(answer.body());
    // A patch that names the UID of a pod is not meant for another pod of its name.
    let is_of_another = code == 422 && message.contains(r#""field":"metadata.uid""#);
    let is_of_world = message.contains(REFUSED);
    // The tenant may write statuses that make every later status of ours invalid.
    (is_write
        && !is_of_another
        && !is_of_world
        && !is_of_tenant(uri)
        && matches!(code, 400 | 405 | 406 | 413 | 415 | 422))
    .then(|| format!("replica-{from}: {method} {uri} -> {code} {message}"))
}
