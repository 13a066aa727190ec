//! A list and the watch after it, until that ends.

use std::pin::pin;
use std::time::Duration;

use futures::stream::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use tokio::time::{Instant, sleep, timeout};

use super::broken::{Broken, broken};
use super::event::Event;
use super::framing::{Framing, Read};
use super::position::Position;
use super::{BRIEF_SECONDS, BUFFER, Change, LARGE, SILENCE, Step, WATCH_SECONDS, Watcher};
use crate::cluster::list::{ListBody, NotRead};
use crate::cluster::transport::{ByteStream, refusal, retry_after};
use crate::cluster::wire::{DecodeError, Decoder, Unreadable};

impl<D: Decoder> Watcher<D> {
    /// Lists if no version is known, then watches until the watch ends.
    pub(super) async fn list_and_watch(&mut self, position: &mut Position) -> Result<(), Broken> {
        let must_list = position.version.is_none();
        let streams = must_list && self.streams.take();
        if must_list && !streams {
            self.list(position).await?;
        }
        self.follow(position, streams).await
    }

    /// Lists in one answer, at one version.
    async fn list(&mut self, position: &mut Position) -> Result<(), Broken> {
        let answer = self.open(&[], D::ACCEPT, self.patience.list).await?;
        let mut list = ListBody::of(answer.headers())?;
        let mut body = pin!(answer.into_body());
        self.restart().await?;
        // However long it is: an API server that has begun is given up only when it falls silent.
        while let Some(piece) =
            timeout(self.patience.list, body.next()).await.map_err(|_| Broken::Unanswered)?
        {
            let piece = piece?;
            self.meter.bytes.inc_by(piece.len() as u64);
            list.push(piece);
            while let Some(object) = list.next(&self.decoder)? {
                match object {
                    Ok(object) => self.send(Change::Listed(object)).await?,
                    Err(NotRead { object: Some(object), .. }) => self.unreadable(object).await?,
                    Err(NotRead { error, object: None }) => self.skip(&error),
                }
            }
        }
        let version = list.end()?;
        position.version = Some(version);
        position.progress = true;
        self.send(Change::Synced { version }).await
    }

    /// Watches from the position, or begins with a streaming list.
    async fn follow(&mut self, position: &mut Position, lists: bool) -> Result<(), Broken> {
        let seconds = match position.was_silent {
            true => BRIEF_SECONDS,
            false => WATCH_SECONDS + self.seed % (WATCH_SECONDS / 4),
        };
        let seconds = seconds.to_string();
        let mut parameters =
            vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &seconds)];
        let version = position.version.unwrap_or_default().to_string();
        if lists {
            parameters.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]);
        } else {
            parameters.push(("resourceVersion", &version));
        }
        let patience = if lists { self.patience.list } else { self.patience.watch };
        let answer = match self.open(&parameters, D::ACCEPT, patience).await {
            Err(Broken::Refused { refusal, .. }) if lists && matches!(refusal.code, 400 | 403 | 422) => {
                return Err(Broken::NoStreamingLists);
            }
            answer => answer?,
        };
        position.opened = Some(Instant::now());
        if lists {
            self.restart().await?;
        }
        self.read(answer, position, lists).await
    }

    /// Reads the events of an open watch until it ends or falls silent. Events before the end of a streaming
    /// list are objects of that list.
    async fn read(
        &mut self,
        answer: Response<ByteStream>,
        position: &mut Position,
        mut lists: bool,
    ) -> Result<(), Broken> {
        let Some(mut events) = Framing::of(answer.headers()) else {
            return Err(Broken::Failed("the answer is in a format that was not requested".into()));
        };
        let mut body = pin!(answer.into_body());
        position.was_silent = false;
        let mut shown = position.version.unwrap_or_default();
        loop {
            let piece = tokio::select! {
                biased;
                piece = body.next() => piece,
                () = sleep(self.patience.list), if lists => return Err(Broken::Unanswered),
                () = sleep(SILENCE), if !lists => {
                    position.was_silent = true;
                    break;
                }
            };
            let Some(piece) = piece else { break };
            let piece = piece?;
            self.meter.bytes.inc_by(piece.len() as u64);
            events.push(piece);
            while let Some(event) = events.next(&self.decoder)? {
                let version = match &event {
                    Ok(Event::Applied { object, .. } | Event::Deleted(object)) => D::version(object),
                    Ok(Event::Unreadable(object)) => object.version,
                    _ => 0,
                };
                // A watch shows changes in the order of their versions. An event that is repeated would look like a change.
                if !lists && (1..=shown).contains(&version) {
                    continue;
                }
                self.handle(event, position, &mut lists).await?;
                shown = shown.max(position.version.unwrap_or_default());
            }
        }
        match (lists, events.is_cut()) {
            (true, _) => Err(Broken::Failed("the list broke off".into())),
            (false, true) => Err(Broken::Failed("the watch broke off within an event".into())),
            (false, false) => Ok(()),
        }
    }

    async fn handle(
        &mut self,
        event: Read<D>,
        position: &mut Position,
        lists: &mut bool,
    ) -> Result<(), Broken> {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                self.skip(&e);
                return Ok(());
            }
        };
        let (kind, change) = match event {
            Event::Applied { kind, object } => {
                self.advance(position, D::version(&object), *lists);
                (kind, if *lists { Change::Listed(object) } else { Change::Applied(object) })
            }
            Event::Deleted(object) => {
                self.advance(position, D::version(&object), *lists);
                ("DELETED", Change::Deleted(object))
            }
            Event::Bookmark { version: 0, .. } => {
                return Err(Broken::Failed("a bookmark has no version that is a number".into()));
            }
            Event::Bookmark { version, ends_list } => {
                self.meter.count("BOOKMARK");
                if !*lists || ends_list {
                    position.progress = true;
                    position.version = position.version.max(Some(version));
                }
                if *lists && ends_list {
                    *lists = false;
                    return self.send(Change::Synced { version }).await;
                }
                if !*lists {
                    return self.step(Step::Reached(version)).await;
                }
                return Ok(());
            }
            Event::Unreadable(object) => {
                self.advance(position, object.version, *lists);
                return self.unreadable(object).await;
            }
            Event::Error(refusal) => {
                self.meter.count("ERROR");
                // Its caches do not have the newest state in time. A list comes from etcd then.
                return Err(match refusal.code {
                    504 if *lists => Broken::CachesBehind,
                    _ => broken(refusal, None),
                });
            }
        };
        self.meter.count(kind);
        self.send(change).await
    }

    /// Moves the position to an object of a watch. A watch can resume from each of its objects, a list only
    /// from its end.
    fn advance(&self, position: &mut Position, version: u64, lists: bool) {
        if lists {
            return;
        }
        position.progress = true;
        if version > 0 {
            position.version = Some(version);
        }
    }

    async fn open(
        &self,
        parameters: &[(&str, &str)],
        accept: &'static str,
        patience: Duration,
    ) -> Result<Response<ByteStream>, Broken> {
        let mut request = self.selection.request(parameters).map_err(|e| Broken::Failed(e.to_string()))?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        let answered = async {
            let response = self.transport.open(request).await?;
            if response.status() == StatusCode::OK {
                return Ok(response);
            }
            let retry_after = retry_after(&response);
            Err(broken(refusal(response).await?, retry_after))
        };
        timeout(patience, answered).await.unwrap_or(Err(Broken::Unanswered))
    }

    async fn restart(&self) -> Result<(), Broken> {
        self.meter.lists.inc();
        self.send(Change::Restarted).await
    }

    async fn send(&self, change: Change<D::Object>) -> Result<(), Broken> {
        let is_large = match &change {
            Change::Listed(object) | Change::Applied(object) | Change::Deleted(object) => {
                D::bytes(object) > LARGE
            }
            _ => false,
        };
        if is_large {
            self.out.reserve_many(BUFFER).await.map_err(|_| Broken::Stopped)?;
        }
        self.step(Step::Change(change)).await
    }

    async fn step(&self, step: Step<D::Object>) -> Result<(), Broken> {
        self.out.send(step).await.map_err(|_| Broken::Stopped)
    }

    async fn unreadable(&self, object: Unreadable) -> Result<(), Broken> {
        let Unreadable { namespace, name, error, .. } = &object;
        let resource = self.selection.resource.plural;
        tracing::warn!(resource, %namespace, %name, %error, "an object cannot be read");
        self.meter.count("UNREADABLE");
        self.send(Change::Unreadable(object)).await
    }

    fn skip(&self, error: &DecodeError) {
        tracing::warn!(resource = self.selection.resource.plural, %error, "an object was skipped");
        self.meter.count("UNREADABLE");
    }
}
