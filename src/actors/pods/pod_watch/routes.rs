//! Routes: which stream shows which shard its pods, and up to which version. By these rules streams
//! follow each other without a list, and show nothing twice or out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::streams::{PodStep, StreamId};
use super::{Kind, PodChange};
use crate::actors::known_jobs::job_index::JobIndex;
use crate::actors::messages::subscription::SubscriptionId;
use crate::actors::pods::pod_places::PodPlaces;
use crate::cluster::watch::{Change, Step};
use crate::cluster::wire::{ObservedPod, Unreadable};
use crate::job::names::{CONTROLLER_UID_LABEL, SHARD_LABEL};
use crate::job::tidying::give_back;
use crate::job::uid::UidMap;
use crate::sharding::ShardId;

/// Most lists in progress. Shards that come meanwhile wait, and are listed together.
const MAX_LISTS: usize = 4;
/// Most shards whose numbers a selector lists; it would be too long for a URL otherwise.
const MAX_NAMED: usize = 512;
/// Streams are joined at once if their versions are this close: all that lies between them is sent again.
const CLOSE: u64 = 2_000;
/// Otherwise, if the stream that is behind has caught up this long ago at most, as by a bookmark.
const CAUGHT_UP: Duration = Duration::from_secs(5);
/// At the latest after this long. Bookmarks come once a minute.
const PATIENCE: Duration = Duration::from_secs(75);
/// For how long a stream may select a few shards that are gone.
const LEFTOVERS: Duration = Duration::from_secs(30);

/// Which stream shows which shard.
#[derive(Debug)]
pub(super) struct Routes {
    places: PodPlaces,
    pub(super) jobs: Arc<JobIndex>,
    routes: BTreeMap<ShardId, Route>,
    streams: BTreeMap<StreamId, Stream>,
    /// The shards that were shown an unusual pod. They are shown its later changes, though it may no
    /// longer concern them.
    unusual: UidMap<Vec<ShardId>>,
}

/// A shard that wants to be shown its pods.
#[derive(Debug)]
struct Route {
    member: SubscriptionId,
    /// Absent while the shard waits for a list.
    stream: Option<StreamId>,
    /// All changes up to this version have been shown.
    shown: u64,
}

#[derive(Debug)]
struct Stream {
    /// The shards that it was opened for.
    selects: BTreeSet<ShardId>,
    phase: Phase,
}

/// The life of a stream.
///
/// ```text
///         synced            the version is too old
///  Listing ────> Watching ────────────────────────> Listing
///                  ^    │ another one follows
///   (follows others)    └────────────────────> (closed)
/// ```
#[derive(Debug)]
enum Phase {
    /// Its list is in progress.
    Listing,
    /// All changes up to this version are known; 0 for a version that is no number.
    Watching { version: u64, moved: Instant },
}

/// The next step towards one stream that shows all shards, and no others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Upkeep {
    Nothing,
    Later,
    /// A new stream after this version is to follow these. `moved`: when the stream that is behind reached it.
    Join {
        sources: BTreeSet<StreamId>,
        after: u64,
        moved: Instant,
    },
}

impl Routes {
    pub(super) fn new(places: PodPlaces, jobs: Arc<JobIndex>) -> Self {
        let (routes, streams) = (BTreeMap::new(), BTreeMap::new());
        Self { places, jobs, routes, streams, unusual: UidMap::default() }
    }

    /// All streams are gone, and all shards wait for a list.
    pub(super) fn begin_anew(&mut self) {
        self.streams.clear();
        self.unusual = UidMap::default();
        self.routes.values_mut().for_each(|route| route.stream = None);
    }

    /// A shard wants a list that begins now, and all changes after it.
    pub(super) fn join(&mut self, shard: ShardId, member: SubscriptionId) {
        self.routes.insert(shard, Route { member, stream: None, shown: 0 });
    }

    pub(super) fn leave(&mut self, shard: ShardId, member: SubscriptionId) {
        if self.routes.get(&shard).is_some_and(|route| route.member == member) {
            self.routes.remove(&shard);
            self.forget_shown(|other| other == shard);
        }
    }

    /// Forgets which pods these shards were shown.
    fn forget_shown(&mut self, is_of: impl Fn(ShardId) -> bool) {
        self.unusual.retain(|_, shards| {
            shards.retain(|shard| !is_of(*shard));
            !shards.is_empty()
        });
        give_back(&mut self.unusual);
    }

    /// The shards that wait for a list.
    pub(super) fn waiting(&self) -> BTreeSet<ShardId> {
        self.routes.iter().filter(|(_, route)| route.stream.is_none()).map(|(shard, _)| *shard).collect()
    }

    /// Whether another list may begin.
    pub(super) fn may_list(&self) -> bool {
        self.streams.values().filter(|stream| matches!(stream.phase, Phase::Listing)).count() < MAX_LISTS
    }

    /// Records that this stream lists and watches these shards.
    pub(super) fn list(&mut self, id: StreamId, shards: &BTreeSet<ShardId>) {
        for shard in shards {
            if let Some(route) = self.routes.get_mut(shard) {
                route.stream = Some(id);
            }
        }
        self.streams.insert(id, Stream { selects: shards.clone(), phase: Phase::Listing });
    }

    /// Records that this stream was opened after this version to follow others, which are idle now. The
    /// version was reached when the time was `moved`: the opening of a stream catches up with nothing.
    pub(super) fn follow(&mut self, id: StreamId, before: &BTreeSet<StreamId>, after: u64, moved: Instant) {
        let selects = self.shown_by(before);
        for route in self.routes.values_mut() {
            let Some(last) = route.stream.filter(|stream| before.contains(stream)) else { continue };
            if let Some(Stream { phase: Phase::Watching { version, .. }, .. }) = self.streams.get(&last) {
                route.shown = route.shown.max(*version);
                route.stream = Some(id);
            }
        }
        self.streams.insert(id, Stream { selects, phase: Phase::Watching { version: after, moved } });
    }

    /// The shards that these streams show.
    pub(super) fn shown_by(&self, streams: &BTreeSet<StreamId>) -> BTreeSet<ShardId> {
        let is_shown = |route: &Route| route.stream.is_some_and(|stream| streams.contains(&stream));
        self.routes.iter().filter(|(_, route)| is_shown(route)).map(|(shard, _)| *shard).collect()
    }

    /// The label selector of pods of a kind, without those whose label names a shard that is not among
    /// these. If that would be too long, it selects all pods of the kind.
    pub(super) fn selector(&self, shards: &BTreeSet<ShardId>, kind: Kind) -> String {
        let others = self.places.0.shards().filter(|shard| !shards.contains(shard));
        let numbers: Vec<String> = others.map(|shard| shard.to_string()).collect();
        let not_of_others = format!("{SHARD_LABEL} notin ({})", numbers.join(","));
        let may_be_ours = (1..=MAX_NAMED).contains(&numbers.len()).then_some(not_of_others);
        let of_kind = match kind {
            Kind::Labelled => CONTROLLER_UID_LABEL.to_owned(),
            Kind::Unlabelled => format!("!{CONTROLLER_UID_LABEL}"),
        };
        [of_kind].into_iter().chain(may_be_ours).collect::<Vec<_>>().join(",")
    }

    /// Takes the streams that show no shard, which must be closed.
    pub(super) fn take_idle(&mut self) -> Vec<StreamId> {
        let in_use: BTreeSet<StreamId> = self.routes.values().filter_map(|route| route.stream).collect();
        self.streams.extract_if(.., |id, _| !in_use.contains(id)).map(|(id, _)| id).collect()
    }

    /// The upkeep that is due when the streams have not been as they should be for this long.
    pub(super) fn upkeep(&self, now: Instant, since: Duration) -> Upkeep {
        let (mut sources, mut positions, mut selects) = (BTreeSet::new(), Vec::new(), 0);
        for (id, stream) in &self.streams {
            if let Phase::Watching { version: version @ 1.., moved } = stream.phase {
                sources.insert(*id);
                positions.push((version, moved));
                selects += stream.selects.len();
            }
        }
        let behind = positions.iter().min_by_key(|(version, _)| *version);
        let ahead = positions.iter().max_by_key(|(version, _)| *version);
        let (Some(&(after, moved)), Some((ahead, _))) = (behind, ahead) else { return Upkeep::Nothing };
        let live = self.shown_by(&sources).len();
        let is_time = match sources.len() {
            1 if selects == live => return Upkeep::Nothing,
            1 => selects > 2 * live || since >= LEFTOVERS,
            _ => ahead - after <= CLOSE || now - moved <= CAUGHT_UP || since >= PATIENCE,
        };
        if is_time { Upkeep::Join { sources, after, moved } } else { Upkeep::Later }
    }

    /// Applies a step of a stream, and delivers its changes to the shards. Returns whether the stream is
    /// in another phase.
    pub(super) fn step(
        &mut self,
        id: StreamId,
        step: PodStep,
        now: Instant,
        deliver: &mut impl FnMut(ShardId, PodChange),
    ) -> bool {
        match step {
            Step::Reached(version) => self.reached(id, version, now),
            Step::Change(Change::Restarted) => {
                self.lists(id, deliver);
                return true;
            }
            Step::Change(Change::Synced { version }) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.phase = Phase::Watching { version, moved: now };
                }
                self.shards_of(id, |shard| deliver(shard, Change::Synced { version }));
                return true;
            }
            Step::Change(Change::Listed(pod)) => {
                self.pod_changed(id, 0, true, pod, |shard, pod| deliver(shard, Change::Listed(pod)));
            }
            Step::Change(Change::Applied(pod)) => {
                let version = pod.pod.version;
                self.reached(id, version, now);
                self.pod_changed(id, version, true, pod, |shard, pod| deliver(shard, Change::Applied(pod)));
            }
            Step::Change(Change::Deleted(pod)) => {
                let version = pod.pod.version;
                self.reached(id, version, now);
                self.pod_changed(id, version, false, pod, |shard, pod| deliver(shard, Change::Deleted(pod)));
            }
            Step::Change(Change::Unreadable(pod)) => self.unreadable(id, pod, deliver),
        }
        false
    }

    /// Shows a change of a pod to the shards that it concerns, and to those that were shown the pod before. `stays`: the stream
    /// goes on to show the pod.
    fn pod_changed(
        &mut self,
        id: StreamId,
        version: u64,
        stays: bool,
        pod: Box<ObservedPod>,
        mut tell: impl FnMut(ShardId, Box<ObservedPod>),
    ) {
        let uid = pod.pod.uid.clone();
        let mut before = self.unusual.remove(&uid).unwrap_or_default();
        give_back(&mut self.unusual);
        if before.is_empty() && self.places.is_foreign(&pod, &self.jobs) {
            return;
        }
        let leads = self.places.leads(&pod, &self.jobs);
        let now = self.places.of(&pod, &leads);
        let may_forget = !stays || leads.are_usual(&pod, &self.jobs);
        let told: Vec<ShardId> = before
            .iter()
            .copied()
            .filter(|shard| !now.contains(*shard))
            .chain(now.iter())
            .filter(|shard| self.shows(id, *shard, version))
            .collect();
        before.retain(|shard| !told.contains(shard) && self.routes.contains_key(shard));
        if !may_forget {
            before.extend(told.iter().filter(|shard| now.contains(**shard)));
        }
        if !before.is_empty() {
            self.unusual.insert(uid, before);
        }
        if let Some((last, others)) = told.split_last() {
            others.iter().for_each(|shard| tell(*shard, pod.clone()));
            tell(*last, pod);
        }
    }

    /// An unreadable pod matters to its Job, or without one to the shard in its label. A Job with a
    /// selector of its own may have left it behind with our finalizer. When it leaves, all other shards
    /// that were shown it before get that change.
    fn unreadable(&mut self, id: StreamId, pod: Unreadable, deliver: &mut impl FnMut(ShardId, PodChange)) {
        let of_label = pod.shard.as_deref().and_then(|label| self.places.0.shard_numbered(label));
        let shard = pod.job.as_ref().map(|job| self.places.of_job(job)).or(of_label);
        let shard = shard.filter(|shard| self.routes.contains_key(shard));
        if let Some(shard) = shard.filter(|_| !pod.has_left) {
            let known = self.unusual.entry(pod.uid.clone()).or_default();
            known.extend((!known.contains(&shard)).then_some(shard));
        }
        let before = if pod.has_left { self.unusual.remove(&pod.uid) } else { None };
        let (told, others): (Vec<ShardId>, Vec<ShardId>) =
            before.into_iter().flatten().partition(|other| self.shows(id, *other, pod.version));
        if !others.is_empty() {
            self.unusual.insert(pod.uid.clone(), others);
        }
        for other in told.into_iter().filter(|other| Some(*other) != shard) {
            deliver(other, Change::Unreadable(pod.clone()));
        }
        if let Some(shard) = shard {
            deliver(shard, Change::Unreadable(pod));
        }
    }

    /// Whether a stream shows a shard a change that led to this version; 0 for one that has no version.
    fn shows(&self, id: StreamId, shard: ShardId, version: u64) -> bool {
        let is_new = |route: &Route| version == 0 || version > route.shown;
        self.routes.get(&shard).is_some_and(|route| route.stream == Some(id) && is_new(route))
    }

    /// A list begins.
    fn lists(&mut self, id: StreamId, deliver: &mut impl FnMut(ShardId, PodChange)) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Listing;
        }
        for (shard, route) in self.routes.iter_mut().filter(|(_, route)| route.stream == Some(id)) {
            route.shown = 0;
            deliver(*shard, Change::Restarted);
        }
        let of_stream: BTreeSet<ShardId> = self.shown_by(&[id].into());
        self.forget_shown(|shard| of_stream.contains(&shard));
    }

    fn reached(&mut self, id: StreamId, to: u64, now: Instant) {
        if let Some(Stream { phase: Phase::Watching { version, moved }, .. }) = self.streams.get_mut(&id)
            && to > *version
        {
            (*version, *moved) = (to, now);
        }
    }

    fn shards_of(&self, id: StreamId, mut each: impl FnMut(ShardId)) {
        let shown = self.routes.iter().filter(|(_, route)| route.stream == Some(id));
        shown.for_each(|(shard, _)| each(*shard));
    }
}
