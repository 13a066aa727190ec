//! Messages between replicas and the API server.

use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::stream::{self, StreamExt as _};
use http::{Method, Request, Response, Uri};
use serde_json::Value;
use tokio::sync::oneshot;
use yardmaster::cluster::transport::{ByteStream, TransportError};

use super::{Broken, Event, Open, OwnWatch, PANIC, World, json, refusal};
use crate::checks::{Author, REFUSED, claims_shard};
use crate::ledger::Kind;
use crate::link::Passage;
use crate::network::{Answer, FASTEST, Sent};
use crate::plan::{Fault, Refused};
use crate::server::{PROCESSING, Reply, WatchId};
use crate::story::changes;
use crate::time::Time;

impl World {
    /// A replica has sent a request.
    pub(super) fn send(&mut self, from: usize, life: u32, at: Time, sent: Sent) {
        self.checks.sent(at, from, &sent, &self.ledger);
        let Some(slot) = self.slots.get_mut(from) else { return };
        match slot.link.request(&sent.request, at, &mut self.chance) {
            Passage::At(time) => self.agenda.add(time, Event::Arrives { from, life, sent_at: at, sent }),
            Passage::Vanishes => {
                let (method, path) = (sent.request.method(), sent.request.uri().path());
                let who = format!("replica-{from}");
                match is_of_story(method, path) {
                    true => self.log.tell(self.now, &who, format_args!("{method} {path} vanishes")),
                    false => self.log.line(self.now, format_args!("{who} {method} {path} vanishes")),
                }
                self.checks.settled(from, sent.request.uri());
                self.hung.push(sent.reply);
            }
            Passage::Breaks => self.breaks(from, life, at, sent.request.uri().clone(), sent.reply),
        }
    }

    fn breaks(&mut self, to: usize, life: u32, at: Time, uri: Uri, reply: oneshot::Sender<Answer>) {
        let answer = Err(TransportError("the connection broke".into()));
        self.agenda.add(at + FASTEST, Event::Answers { to, life, uri, reply, answer });
    }

    /// A request arrives at the API server, which carries it out.
    pub(super) fn arrives(&mut self, from: usize, life: u32, sent_at: Time, sent: Sent) {
        let Sent { request, reply, .. } = sent;
        let (method, uri) = (request.method().clone(), request.uri().clone());
        if self.now < self.conditions.down_until || sent_at < self.conditions.restored_at {
            return self.breaks(from, life, self.now, uri, reply);
        }
        self.checks.arrived(self.now, from, sent_at, &request, &self.ledger);
        let request = self.asked_of_caches(from, self.rewritten(request));
        let target = uri.clone();
        let refusal = self.refused(&request);
        let is_refused = refusal.is_some();
        let busy = refusal.as_ref().is_some_and(|refusal| refusal.status().as_u16() == 429);
        let sent_at = self.checks.decided(from, &request, sent_at, busy);
        let answered = match refusal {
            Some(refusal) => Reply::Whole(refusal),
            None => self.server.handle(request),
        };
        let code = match &answered {
            Reply::Whole(answer) => answer.status(),
            Reply::Watch(_, answer) => answer.status(),
        };
        let uri = uri.path_and_query().map_or("", |uri| uri.as_str());
        let who = format!("replica-{from}");
        match !code.is_success() && is_of_story(&method, uri) {
            true => self.log.tell(self.now, &who, format_args!("{method} {uri} -> {}", code.as_u16())),
            false => self.log.line(self.now, format_args!("{who} {method} {uri} -> {}", code.as_u16())),
        }
        if let Reply::Whole(answer) = &answered
            && !is_refused
        {
            self.checks.answered(self.now, from, &method, uri, answer);
        }
        let is_list = method == Method::GET
            && uri.contains('?')
            && code.is_success()
            && matches!(answered, Reply::Whole(_));
        let waits = if is_list { self.wait_for_caches(from) } else { Duration::ZERO };
        let waits = waits + self.slowness(&method, &target);
        let passage = match self.slots.get(from) {
            Some(slot) => slot.link.answer(self.now + PROCESSING + waits, &mut self.chance),
            None => Passage::Vanishes,
        };
        let answer = match (answered, passage) {
            (Reply::Whole(answer), Passage::Breaks) if is_list => self.cut(answer),
            (Reply::Whole(answer), _) => {
                whole(self.rarely_unreadable(self.unreadable(answer, &method), &method))
            }
            (Reply::Watch(id, head), Passage::At(last)) => {
                let (pieces, body) = mpsc::unbounded();
                let of_jobs = uri.starts_with("/apis/batch/v1/jobs");
                let of_pods =
                    uri.starts_with("/api/v1/pods") && uri.contains("labelSelector=yardmaster.dev%2Fshard");
                let lag = self.lag(from, &target);
                self.watches.insert(id, Open { to: from, life, pieces, last, of_jobs, of_pods, lag });
                head.map(|()| body.map(piece_or_break).boxed())
            }
            (Reply::Watch(id, head), _) => {
                self.server.close(id);
                head.map(|()| stream::empty().boxed())
            }
        };
        self.pump(Some(Author { replica: from, sent_at }));
        match passage {
            Passage::At(at) => {
                self.agenda.add(at, Event::Answers { to: from, life, uri: target, reply, answer: Ok(answer) })
            }
            Passage::Vanishes => {
                self.checks.settled(from, &target);
                self.hung.push(reply);
            }
            Passage::Breaks if is_list => {
                let at = self.now + FASTEST;
                self.agenda.add(at, Event::Answers { to: from, life, uri: target, reply, answer: Ok(answer) })
            }
            Passage::Breaks => self.breaks(from, life, self.now, target, reply),
        }
    }

    /// Whether something other than the API refuses a request.
    fn refused(&mut self, request: &Request<Bytes>) -> Option<Response<Bytes>> {
        let (method, path) = (request.method(), request.uri().path());
        let creates_pod = method == Method::POST && path.ends_with("/pods");
        if creates_pod {
            let hit = self.conditions.webhooks.iter().find(|(namespace, until)| {
                self.now < **until && path.contains(&format!("/namespaces/{namespace}/"))
            });
            if hit.is_some() {
                return Some(refusal(
                    500,
                    "InternalError",
                    "Internal error occurred: failed calling webhook \"w.example.com\"",
                ));
            }
        }
        let now = self.now;
        self.conditions.refusals.retain(|(until, _)| now < *until);
        for (_, fault) in &self.conditions.refusals {
            let Fault::Refuse { code, percent, what, .. } = fault else { continue };
            let of_pod = path.contains("/pods/");
            let is_meant = match what {
                Refused::All => true,
                Refused::Writes => method != Method::GET,
                Refused::PodPatches => method == Method::PATCH && of_pod,
                Refused::PodDeletes => method == Method::DELETE && of_pod,
                Refused::PodCreates => creates_pod,
                Refused::Statuses => path.ends_with("/status"),
                Refused::Reads => method == Method::GET,
                Refused::Protobuf => is_in_protobuf(request),
                Refused::Claims => claims_shard(request),
            };
            if is_meant && self.chance.percent(*percent) {
                return Some(refusal_with(*code));
            }
        }
        None
    }

    /// Brings what watches say to where it belongs. `author`: whose request has caused it.
    pub(super) fn pump(&mut self, author: Option<Author>) {
        for (id, piece) in self.server.pieces() {
            if self.own_watches.contains_key(&id) {
                self.own_piece(id, piece, author);
            } else if let Some(open) = self.watches.get_mut(&id) {
                let Some(slot) = self.slots.get(open.to) else { continue };
                let comes_twice = self.now < slot.link.events_come_twice_until && piece.is_some();
                for piece in std::iter::repeat_n(piece, if comes_twice { 2 } else { 1 }) {
                    open.last = slot.link.piece(self.now, open.lag, open.last, &mut self.chance);
                    self.agenda.add(open.last, Event::Piece { watch: id, piece });
                }
            }
        }
    }

    /// A piece of a watch arrives.
    pub(super) fn piece(&mut self, watch: WatchId, piece: Option<Bytes>) {
        let Some(open) = self.watches.get(&watch) else { return };
        let lives =
            self.slots.get(open.to).is_some_and(|slot| slot.lives == open.life && slot.life.is_some());
        let Some(piece) = piece.filter(|_| lives) else {
            self.watches.remove(&watch);
            return;
        };
        let piece = if open.of_jobs { self.unreadable_piece(piece) } else { piece };
        let piece = self.rarely_unreadable_piece(piece);
        let Some(open) = self.watches.get(&watch) else { return };
        if open.pieces.unbounded_send(Ok(piece)).is_err() {
            self.watches.remove(&watch);
            self.server.close(watch);
        }
    }

    /// Ends watches: all of a replica, or of all.
    pub(super) fn cut_watches(&mut self, of: Option<usize>) {
        let cut: Vec<WatchId> = self
            .watches
            .iter()
            .filter(|(_, open)| of.is_none_or(|replica| open.to == replica))
            .map(|(id, _)| *id)
            .collect();
        for id in cut {
            self.server.close(id);
            if let Some(open) = self.watches.remove(&id) {
                let _ = open.pieces.unbounded_send(Err(Broken::Reset));
            }
        }
    }

    /// Lets the reader of one watch of pods panic.
    pub(super) fn poison_watch(&mut self, replica: usize) {
        let of_pods = self.watches.values().find(|open| open.to == replica && open.of_pods);
        if let Some(open) = of_pods {
            let _ = open.pieces.unbounded_send(Err(Broken::Panic));
        }
    }

    /// Applies a piece of the world's own watch.
    fn own_piece(&mut self, id: WatchId, piece: Option<Bytes>, author: Option<Author>) {
        let Some(OwnWatch { path, rest }) = self.own_watches.get_mut(&id) else { return };
        let Some(piece) = piece else {
            // It has lasted as long as the API server lets it. Everything that has happened has come.
            let path = *path;
            self.own_watches.remove(&id);
            return self.watch(path, self.server.revision());
        };
        rest.extend_from_slice(&piece);
        let mut events = Vec::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            events.extend(serde_json::from_slice::<Value>(&line));
        }
        for event in events {
            if event["type"] == "ERROR" {
                return self.checks.broken(self.now, format!("the world's own watch has failed: {event}"));
            }
            if let Some(news) = changes::in_words(&self.ledger, &event) {
                let who = author.map(|author| format!("replica-{}", author.replica));
                self.log.tell(self.now, who.as_deref().unwrap_or(self.caller), format_args!("{news}"));
            }
            let Some(change) = self.ledger.take_in(self.now, event, author.map(|author| author.replica))
            else {
                continue;
            };
            self.checks.changed(self.now, &self.plan, &self.ledger, &change, author);
            match change.kind {
                Kind::Pod => {
                    if let Some(pod) = self.ledger.pods.get(&change.uid)
                        && let Some((later, duty)) = self.kubelet.changed(&change.uid, pod, change.created)
                    {
                        self.agenda.add(self.now + later, Event::Kubelet { pod: change.uid.clone(), duty });
                    }
                    let job = self.ledger.pods.get(&change.uid).and_then(|pod| pod.job.clone());
                    if let Some(job) = job
                        && self.ledger.jobs.get(&job).is_some_and(|job| !job.exists || job.deleting())
                    {
                        self.collect_later(job);
                    }
                }
                Kind::Job => {
                    if self.ledger.jobs.get(&change.uid).is_some_and(|job| !job.exists || job.deleting()) {
                        self.collect_later(change.uid);
                    }
                }
                Kind::Lease => {}
            }
        }
    }

    fn collect_later(&mut self, job: String) {
        let later = self.chance.millis(20..=500);
        self.agenda.add(self.now + later, Event::Collect(job));
    }

    /// A list whose connection breaks after a part. A proxy may end it in order all the same.
    fn cut(&mut self, answer: Response<Bytes>) -> Response<ByteStream> {
        let length = self.cuts.below(answer.body().len());
        let end = match self.cuts.percent(50) {
            true => stream::empty().boxed(),
            false => stream::once(async { Err(TransportError("the connection broke".into())) }).boxed(),
        };
        answer.map(|body| stream::once(async move { Ok(body.slice(..length)) }).chain(end).boxed())
    }

    /// Makes Jobs unreadable in a whole answer.
    fn unreadable(&self, answer: Response<Bytes>, method: &Method) -> Response<Bytes> {
        let hides = !self.conditions.undecodable.is_empty() && *method == Method::GET;
        let is_of_jobs = || json(&answer)["kind"].as_str().is_some_and(|kind| kind.starts_with("Job"));
        if hides && is_of_jobs() { answer.map(|body| self.unreadable_piece(body)) } else { answer }
    }

    /// Makes Jobs unreadable: as a newer API server might show them.
    fn unreadable_piece(&self, piece: Bytes) -> Bytes {
        let Ok(text) = std::str::from_utf8(&piece) else { return piece };
        let mut changed = None;
        for (name, until) in &self.conditions.undecodable {
            if self.now < *until {
                let before: &str = changed.as_deref().unwrap_or(text);
                changed = Some(garble(before, name));
            }
        }
        changed.map_or(piece.clone(), Bytes::from)
    }
}

/// Puts an object in the place of the number of `backoffLimit`, in the Job of this name.
fn garble(text: &str, name: &str) -> String {
    let mark = format!("\"name\":\"{name}\"");
    let Some(at) = text.find(&mark) else { return text.to_owned() };
    let (head, tail) = text.split_at(at);
    let field = "\"backoffLimit\":";
    let Some(begin) = tail.find(field).map(|begin| begin + field.len()) else { return text.to_owned() };
    let digits = tail[begin..].bytes().take_while(u8::is_ascii_digit).count();
    format!("{head}{}{{}}{}", &tail[..begin], &tail[begin + digits..])
}

/// A refusal with this code.
fn refusal_with(code: u16) -> Response<Bytes> {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        // Only a proxy does not find what exists. The API server would name the reason.
        404 => "",
        409 => "Conflict",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let mut answer = refusal(code, reason, REFUSED);
    if code == 429 {
        answer.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
    }
    answer
}

/// Whether the body of a request is in protobuf.
fn is_in_protobuf(request: &Request<Bytes>) -> bool {
    let format = request.headers().get(http::header::CONTENT_TYPE);
    format.is_some_and(|format| format == "application/vnd.kubernetes.protobuf")
}

/// Whether a story needs to know of a request when it fails: a write, but no heartbeat.
fn is_of_story(method: &Method, path: &str) -> bool {
    *method != Method::GET && !path.contains("-replica-")
}

/// The item that the reader of a watch gets.
///
/// # Panics
/// When that is what the world wants.
fn piece_or_break(piece: Result<Bytes, Broken>) -> Result<Bytes, TransportError> {
    piece.map_err(|broken| match broken {
        Broken::Reset => TransportError("the connection was reset".into()),
        Broken::Panic => std::panic::panic_any(PANIC),
    })
}

fn whole(answer: Response<Bytes>) -> Response<ByteStream> {
    answer.map(|body| stream::once(async move { Ok(body) }).boxed())
}
