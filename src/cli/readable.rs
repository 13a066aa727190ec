//! Objects as commands read them from lists and watches.
//!
//! The types of Kubernetes refuse times that its API servers store, so one object of a tenant would make a whole
//! list unreadable. A [`Readable`] object has the nearest times that can be read.

use std::borrow::Cow;
use std::fmt::Debug;

use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::Value;

use crate::cluster::wire::lenient::time_of;

/// The times of an object.
const TIMES: [&str; 12] = [
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
    "/spec/template/metadata/creationTimestamp",
    "/spec/template/metadata/deletionTimestamp",
    "/spec/acquireTime",
    "/spec/renewTime",
    "/status/startTime",
    "/status/completionTime",
    "/firstTimestamp",
    "/lastTimestamp",
    "/eventTime",
    "/series/lastObservedTime",
];
/// The times of a condition.
const CONDITION_TIMES: [&str; 2] = ["lastProbeTime", "lastTransitionTime"];

/// An object that can be read whatever its times are. It has no `managedFields`: no command needs them, and they have times, too.
#[derive(Clone, Debug)]
pub(super) struct Readable<K>(pub(super) K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(from)?;
        mend(&mut object);
        K::deserialize(object).map(Self).map_err(D::Error::custom)
    }
}

impl<K: Resource> Resource for Readable<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// The events of a watch, which reconnects by itself.
pub(super) fn events<K>(
    api: Api<Readable<K>>,
    config: watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let read = |event| match event {
        Event::Init => Event::Init,
        Event::InitApply(Readable(object)) => Event::InitApply(object),
        Event::InitDone => Event::InitDone,
        Event::Apply(Readable(object)) => Event::Apply(object),
        Event::Delete(Readable(object)) => Event::Delete(object),
    };
    watch(api, config).default_backoff().map_ok(read).boxed()
}

/// Gives an object times that can be read, and takes its `managedFields` away.
fn mend(object: &mut Value) {
    for time in TIMES {
        mend_time(object.pointer_mut(time));
    }
    for metadata in ["/metadata", "/spec/template/metadata"] {
        if let Some(Value::Object(fields)) = object.pointer_mut(metadata) {
            fields.remove("managedFields");
        }
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        for time in CONDITION_TIMES {
            mend_time(condition.get_mut(time));
        }
    }
}

/// Replaces a time by the nearest that can be read. Other values stay, so that an error names them.
fn mend_time(time: Option<&mut Value>) {
    if let Some(time) = time
        && let Some(nearest) = time.as_str().and_then(|text| time_of(text).ok())
    {
        *time = nearest.to_string().into();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use http::{Request, Response};
    use jiff::Timestamp;
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::json;

    use super::*;
    use crate::cli::event_view::EventView;
    use crate::cli::pod_view::PodView;

    const LATEST: &str = "9999-12-31T23:59:59Z";

    fn metadata() -> Value {
        json!({
            "name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": LATEST, "deletionTimestamp": LATEST,
            "managedFields": [{"manager": "m", "operation": "Update", "time": LATEST}],
        })
    }

    fn job() -> Value {
        let failed = json!({"type": "Failed", "status": "True", "lastProbeTime": LATEST, "lastTransitionTime": LATEST});
        json!({
            "metadata": metadata(),
            "spec": {"template": {"metadata": metadata(), "spec": {"containers": []}}},
            "status": {"startTime": LATEST, "completionTime": LATEST, "conditions": [failed]},
        })
    }

    fn read<K: DeserializeOwned>(object: Value) -> K {
        serde_json::from_str::<Readable<K>>(&object.to_string()).unwrap().0
    }

    #[test]
    fn no_time_that_an_api_server_stores_makes_an_object_unreadable() {
        let status = read::<Job>(job()).status.unwrap();
        assert_eq!(status.start_time.unwrap().0, Timestamp::MAX);
        let times = json!({"acquireTime": LATEST, "renewTime": "-0001-01-01T00:00:00.000000Z"});
        read::<Lease>(json!({"metadata": metadata(), "spec": times}));
        let ended = json!({"terminated": {"exitCode": 1, "startedAt": LATEST, "finishedAt": LATEST}});
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": LATEST});
        let container = json!({"name": "c", "restartCount": -1, "state": ended});
        let pod: PodView = read(json!({
            "metadata": metadata(), "spec": {},
            "status": {"startTime": LATEST, "conditions": [ready], "containerStatuses": [container]},
        }));
        assert_eq!(pod.status.unwrap().container_statuses[0].restart_count, 0);
        let series = json!({"count": 1, "lastObservedTime": LATEST});
        let event: EventView = read(json!({"lastTimestamp": LATEST, "eventTime": LATEST, "series": series}));
        assert_eq!(event.seen_at(), Some(Timestamp::MAX));
    }

    #[test]
    fn other_values_stay() {
        let annotations = json!({"creationTimestamp": LATEST});
        let object =
            json!({"metadata": {"annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(read::<Value>(object.clone()), object);
        let soon = json!({"metadata": {"creationTimestamp": "soon"}}).to_string();
        assert!(serde_json::from_str::<Readable<Job>>(&soon).is_err());
    }

    #[tokio::test]
    async fn one_job_does_not_end_the_watch_of_all() {
        let list = json!({"kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": "7"},
            "items": [job()]});
        let answer = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::new(Body::from(list.to_string().into_bytes()));
            async { Ok::<_, Infallible>(answer) }
        });
        let jobs: Api<Readable<Job>> = Api::all(Client::new(answer, "default"));
        let seen: Vec<Event<Job>> =
            events(jobs, watcher::Config::default()).take(3).try_collect().await.unwrap();
        assert!(
            matches!(&seen[..], [Event::Init, Event::InitApply(job), Event::InitDone] if job.name_any() == "x")
        );
    }
}
