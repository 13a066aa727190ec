//! An owner of the Job, who carries out the plans: its view of the world lags, its requests are delayed,
//! answers are lost.

use super::world::{PodEvent, World};
use crate::job::limits::Limits;
use crate::job::plan::{Plan, PodDeletion};
use crate::job::pod::Place;
use crate::job::pod::{NewPod, PodRef};
use crate::job::reconcile::reconcile;
use crate::job::spec::Job;
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::JobStatus;
use crate::job::uid::Uid;

/// A request on its way to the API server.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Create(NewPod),
    /// With whether the owner knew that the pod has ended.
    Delete(PodDeletion, bool),
    Release(PodRef),
    Status(Box<JobStatus>, u64),
}

/// An answer on its way back.
#[derive(Clone, Debug)]
enum Answer {
    Created(Place, Created),
    Changed(Uid, Changed),
    Written(Box<Job>, u64),
    NotWritten { conflict: bool },
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fortune {
    /// Done and answered.
    Done,
    /// Refused, or lost on its way to the API server.
    Refused,
    /// Done, but the answer is lost. If an action takes two requests, only the first one is done.
    Lost,
}

/// An owner of the Job.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) state: JobState,
    pub(super) requests: Vec<Request>,
    answers: Vec<Answer>,
    /// Requests that were sent before a crash and are still on their way. Nobody receives their answers.
    late_requests: Vec<Request>,
    job_version: u64,
    pods_seen: usize,
    jobs_seen: usize,
    /// Another owner writes this Job's status, too. Counts stay exact if the pods are listed again after each
    /// status of another owner: no known pod may be older than that status.
    pub(super) contested: bool,
}

impl Owner {
    /// Takes the Job over: reads it, then lists its pods.
    pub(super) fn take_over(world: &World, limits: Limits, contested: bool) -> Self {
        let mut state = JobState::new(world.job.clone(), limits);
        for pod in world.pods.values() {
            state.observe_pod(pod.clone(), world.now);
        }
        state.pods_listed(&world.pods.keys().cloned().collect(), world.version);
        Self {
            state,
            requests: Vec::new(),
            answers: Vec::new(),
            late_requests: Vec::new(),
            job_version: world.job_version,
            pods_seen: world.pod_watch.len(),
            jobs_seen: world.job_watch.len(),
            contested,
        }
    }

    /// Restarts from the world's current state.
    pub(super) fn crash(&mut self, world: &World) {
        let restarted = Self::take_over(world, self.state.limits, self.contested);
        let before = std::mem::replace(self, restarted);
        self.late_requests = before.late_requests;
        self.late_requests.extend(before.requests);
    }

    /// Makes a plan and begins it.
    pub(super) fn plan(&mut self, world: &World) -> Plan {
        let plan = reconcile(&self.state, world.now);
        assert_eq!(plan, reconcile(&self.state, world.now), "the same state gives another plan");
        // A watch that shows a pod as released answers for the request that released it.
        let planned = plan.deletes.iter().map(|deletion| &deletion.pod).chain(&plan.releases);
        for pod in planned.filter(|pod| self.state.pods.get(&pod.uid).is_some()) {
            let uid = &pod.uid;
            assert!(
                !self.awaits(uid),
                "a second request for {uid} while the first is not answered: {plan:?}"
            );
        }
        self.state.begin(&plan, world.now);
        self.requests.extend(plan.creates.iter().cloned().map(Request::Create));
        let has_ended = |uid: &Uid| self.state.pods.get(uid).is_none_or(|pod| pod.phase.is_final());
        let deletes = plan.deletes.iter().map(|deletion| (deletion.clone(), has_ended(&deletion.pod.uid)));
        self.requests.extend(deletes.map(|(deletion, ended)| Request::Delete(deletion, ended)));
        self.requests.extend(plan.releases.iter().cloned().map(Request::Release));
        let status = plan.status.iter().map(|write| Box::new(write.status.clone()));
        self.requests.extend(status.map(|status| Request::Status(status, self.job_version)));
        plan
    }

    /// Whether a request about a pod is not answered.
    fn awaits(&self, uid: &Uid) -> bool {
        let requested = |request: &Request| match request {
            Request::Delete(deletion, _) => deletion.pod.uid == *uid,
            Request::Release(pod) => pod.uid == *uid,
            Request::Create(_) | Request::Status(..) => false,
        };
        let answered = |answer: &Answer| matches!(answer, Answer::Changed(of, _) if of == uid);
        self.requests.iter().any(requested) || self.answers.iter().any(answered)
    }

    /// A request reaches the API server.
    pub(super) fn execute(&mut self, world: &mut World, which: usize, fortune: Fortune) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.remove(which % self.requests.len());
        self.answers.push(perform(world, request, fortune));
    }

    /// A request from before a crash reaches the API server.
    pub(super) fn arrive_late(&mut self, world: &mut World, which: usize) {
        if !self.late_requests.is_empty() {
            match self.late_requests.remove(which % self.late_requests.len()) {
                Request::Create(new) => world.create_late(&new),
                request => _ = perform(world, request, Fortune::Lost),
            }
        }
    }

    /// An answer arrives.
    pub(super) fn hear(&mut self, world: &World, which: usize) {
        if self.answers.is_empty() {
            return;
        }
        let now = world.now;
        match self.answers.remove(which % self.answers.len()) {
            Answer::Created(place, created) => self.state.created(place, created, now),
            Answer::Changed(uid, changed) => self.state.changed(&uid, changed, now),
            Answer::Written(job, version) => {
                self.job_version = version;
                self.state.observe_job(*job);
                self.state.status_written(now);
            }
            Answer::NotWritten { conflict } => {
                self.state.status_refused(conflict, now);
                if conflict {
                    self.take_in(world, world.job.clone(), world.job_version);
                }
            }
        }
    }

    fn take_in(&mut self, world: &World, job: Job, version: u64) {
        if version <= self.job_version {
            return;
        }
        if self.contested && job.status != self.state.job.status {
            return self.crash(world);
        }
        self.job_version = version;
        self.state.observe_job(job);
    }

    /// The next events of the pod watch arrive.
    pub(super) fn watch_pods(&mut self, world: &World, events: usize) {
        for event in world.pod_watch.iter().skip(self.pods_seen).take(events) {
            match event {
                PodEvent::Seen(pod) => _ = self.state.observe_pod(pod.clone(), world.now),
                PodEvent::Gone(uid) => _ = self.state.pod_vanished(uid),
            }
            self.pods_seen += 1;
        }
    }

    /// The next event of the Job watch arrives. During a status write, its answer arrives first.
    pub(super) fn watch_job(&mut self, world: &World) {
        let writing = self.requests.iter().any(|r| matches!(r, Request::Status(..)))
            || self.answers.iter().any(|a| matches!(a, Answer::Written(..) | Answer::NotWritten { .. }));
        if writing {
            return;
        }
        if let Some((version, job)) = world.job_watch.get(self.jobs_seen) {
            self.jobs_seen += 1;
            self.take_in(world, job.clone(), *version);
        }
    }

    /// Whether requests, answers or watch events are on their way.
    pub(super) fn is_busy(&self, world: &World) -> bool {
        !(self.requests.is_empty() && self.answers.is_empty())
            || self.pods_seen < world.pod_watch.len()
            || self.jobs_seen < world.job_watch.len()
    }

    /// Delivers everything that is on its way.
    pub(super) fn deliver_all(&mut self, world: &mut World) {
        while !self.late_requests.is_empty() {
            self.arrive_late(world, 0);
        }
        while self.is_busy(world) {
            while !self.requests.is_empty() {
                self.execute(world, 0, Fortune::Done);
            }
            while !self.answers.is_empty() {
                self.hear(world, 0);
            }
            self.watch_pods(world, usize::MAX);
            self.watch_job(world);
        }
    }
}

/// The API server handles a request.
fn perform(world: &mut World, request: Request, fortune: Fortune) -> Answer {
    let (arrives, returns) = (fortune != Fortune::Refused, fortune == Fortune::Done);
    match request {
        Request::Create(new) => {
            let created = if arrives { world.create(&new, returns) } else { Created::Refused };
            Answer::Created(new.place, if returns { created } else { Created::Refused })
        }
        Request::Release(pod) => {
            let changed = if arrives { world.release(&pod) } else { Changed::Refused };
            Answer::Changed(pod.uid, if returns { changed } else { Changed::Refused })
        }
        Request::Delete(PodDeletion { pod, forget, .. }, has_ended) => {
            if has_ended && !forget && arrives {
                world.check_pruning(&pod.uid);
            }
            if forget && arrives {
                world.strip(&pod.uid);
            }
            let deletes = returns || (arrives && !forget);
            let changed = if deletes { world.delete(&pod.uid) } else { Changed::Refused };
            Answer::Changed(pod.uid, if returns { changed } else { Changed::Refused })
        }
        Request::Status(status, version) => {
            let written = arrives && world.put_status(&status, version);
            match written {
                true if returns => Answer::Written(Box::new(world.job.clone()), world.job_version),
                _ => Answer::NotWritten { conflict: returns && !written },
            }
        }
    }
}
