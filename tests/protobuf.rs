//! Watches and answers in protobuf carry the same content as those in JSON, over the embedded API server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use http::{Request, Response, header};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use tokio::time::timeout;
use yardmaster::cluster::gate::{Answer, Fence, GateConfig, Order, Priority, Write, WriteError, WriteGate};
use yardmaster::cluster::reads::Reader;
use yardmaster::cluster::resource::Resource;
use yardmaster::cluster::transport::{ByteStream, Transport, TransportError, connect};
use yardmaster::cluster::watch::{Change, Selection, watch};
use yardmaster::cluster::wire::{JobDecoder, ObservedJob, ObservedPod, PodDecoder};
use yardmaster::job::job_id::JobId;
use yardmaster::job::manifest::{Encoding, Maker, PodManifest};
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster::job::overlay::{HostAvoidance, Overlay, Quantity, ResourceList, Variable, VariableValue};
use yardmaster::job::pod::{Behind, IndexFailures, NewPod, Phase, Place};
use yardmaster::telemetry::metrics::Metrics;
use yardmaster_embedded::{ApiServer, ApiServerConfig, Fault, FaultScope};

const PATIENCE: Duration = Duration::from_secs(20);

/// A transport that records the format of each answer. It can request JSON only.
struct FormatRecorder {
    inner: Arc<dyn Transport>,
    json_only: bool,
    formats: Arc<Mutex<Vec<String>>>,
}

impl Transport for FormatRecorder {
    fn open(
        &self,
        mut request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        if self.json_only {
            let accept = request.headers()[header::ACCEPT].to_str().unwrap();
            let others: Vec<_> = accept.split(',').filter(|clause| !clause.contains("protobuf")).collect();
            let others = header::HeaderValue::from_str(&others.join(",")).unwrap();
            request.headers_mut().insert(header::ACCEPT, others);
        }
        let formats = Arc::clone(&self.formats);
        let answer = self.inner.open(request);
        async move {
            let answer = answer.await?;
            let format = answer.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
            formats.lock().unwrap().push(format);
            Ok(answer)
        }
        .boxed()
    }
}

/// An API server, its configuration, and a client for its pods.
async fn stage() -> (ApiServer, kube::Config, Api<Pod>) {
    stage_of(ApiServerConfig::default()).await
}

async fn stage_of(config: ApiServerConfig) -> (ApiServer, kube::Config, Api<Pod>) {
    let server = ApiServer::start(config).await.unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
    let pods = Api::default_namespaced(kube::Client::try_from(config.clone()).unwrap());
    (server, config, pods)
}

type Formats = Arc<Mutex<Vec<String>>>;

/// A transport to the API server, and the formats of its answers.
fn recorder(config: &kube::Config, json_only: bool) -> (Arc<FormatRecorder>, Formats) {
    let formats = Formats::default();
    let inner = connect(config.clone(), "test").unwrap().transport;
    (Arc::new(FormatRecorder { inner, json_only, formats: Arc::clone(&formats) }), formats)
}

/// The changes that a watch of all pods reports, and the formats of its answers.
fn changes(
    config: &kube::Config,
    json_only: bool,
) -> (impl Stream<Item = Change<Box<ObservedPod>>> + Unpin, Formats) {
    let (transport, formats) = recorder(config, json_only);
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let metrics = Arc::new(Metrics::new());
    (watch(transport, Selection::all(Resource::PODS), decoder, metrics, 7), formats)
}

async fn next<T>(changes: &mut (impl Stream<Item = T> + Unpin)) -> T {
    timeout(PATIENCE, changes.next()).await.expect("a change in time").unwrap()
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"a": "b"}, "finalizers": [EXTERNAL_FINALIZER]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    json_patch::merge(&mut pod["spec"], &spec);
    serde_json::from_value(pod).unwrap()
}

async fn patch(pods: &Api<Pod>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const JSON: &str = "application/json";

#[tokio::test]
async fn both_formats_report_the_same_changes() {
    let (server, config, pods) = stage().await;
    pods.create(&PostParams::default(), &pod("early", json!({"nodeName": "n"}))).await.unwrap();
    let (mut binary, binary_formats) = changes(&config, false);
    let (mut text, text_formats) = changes(&config, true);
    let mut seen = Vec::new();
    for step in 0..8 {
        match step {
            3 => drop(pods.create(&PostParams::default(), &pod("late", json!({}))).await.unwrap()),
            4 => {
                let ended = json!({"exitCode": -1, "finishedAt": "2026-01-01T00:00:20Z"});
                let failed = json!({
                    "phase": "Failed",
                    "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                    "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
                        "restartCount": 2, "state": {"terminated": ended}}],
                });
                patch(&pods, "late", failed).await;
            }
            5 => server.faults().break_watches(),
            6 => drop(pods.delete("late", &DeleteParams::default()).await.unwrap()),
            7 => {
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                pods.patch("late", &PatchParams::default(), &free).await.unwrap();
            }
            _ => {}
        }
        if step != 5 {
            let change = next(&mut binary).await;
            assert_eq!(change, next(&mut text).await, "step {step}");
            seen.push(change);
        }
    }
    assert!(matches!(
        seen.as_slice(),
        [
            Change::Restarted,
            Change::Listed(_),
            Change::Synced { .. },
            Change::Applied(_),
            Change::Applied(_),
            Change::Applied(_),
            Change::Deleted(_)
        ]
    ));
    assert_eq!(*binary_formats.lock().unwrap(), [PROTOBUF, PROTOBUF]);
    assert_eq!(*text_formats.lock().unwrap(), [JSON, JSON]);
    server.shutdown().await;
}

#[tokio::test]
async fn both_formats_list_the_same() {
    let feature_gates = [("WatchList".to_owned(), false)].into();
    let (server, config, pods) = stage_of(ApiServerConfig { feature_gates, ..Default::default() }).await;
    for name in ["a", "b", "c"] {
        pods.create(&PostParams::default(), &pod(name, json!({}))).await.unwrap();
    }
    patch(&pods, "b", json!({"phase": "Failed", "reason": "Evicted"})).await;
    let (mut binary, binary_formats) = changes(&config, false);
    let (mut text, text_formats) = changes(&config, true);
    for step in 0..5 {
        let change = next(&mut binary).await;
        assert_eq!(change, next(&mut text).await, "step {step}");
        match step {
            0 => assert_eq!(change, Change::Restarted),
            1..=3 => assert!(matches!(change, Change::Listed(_)), "{change:?}"),
            _ => assert!(matches!(change, Change::Synced { .. }), "{change:?}"),
        }
    }
    // Streaming lists are refused.
    assert_eq!(binary_formats.lock().unwrap()[..2], [JSON, "application/vnd.kubernetes.protobuf"]);
    assert_eq!(text_formats.lock().unwrap()[..2], [JSON, JSON]);

    let mut lists = Vec::new();
    for json_only in [false, true] {
        let (transport, formats) = recorder(&config, json_only);
        let jobs = JobDecoder::new();
        let reader = Reader::new(transport, EXTERNAL_FINALIZER, jobs, Arc::new(Metrics::new()));
        let selection = Selection::all(Resource::PODS).labelled("a");
        let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
        lists.push((
            reader.list_pods(&decoder, &selection).await.unwrap(),
            reader
                .list_pod_metadata(&Selection::all(Resource::PODS).labelled("a=b"), |pod| {
                    &*pod.pod.name != "c"
                })
                .await
                .unwrap(),
        ));
        let format = if json_only { JSON } else { "application/vnd.kubernetes.protobuf" };
        assert_eq!(*formats.lock().unwrap(), [format, format]);
    }
    let [(binary, binary_metadata), (text, text_metadata)] = &lists[..] else { panic!() };
    assert_eq!((&binary.pods, binary.version), (&text.pods, text.version));
    assert_eq!(
        (&binary_metadata.pods, binary_metadata.version),
        (&text_metadata.pods, text_metadata.version)
    );
    let names =
        |pods: &[Box<ObservedPod>]| pods.iter().map(|pod| pod.pod.name.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (names(&binary.pods), names(&binary_metadata.pods)),
        (vec!["a".into(), "b".into(), "c".into()], vec!["a".into(), "b".into()])
    );
    assert_eq!(
        (binary.pods[1].pod.phase, binary_metadata.pods[1].pod.phase),
        (Phase::Failed, Phase::Pending)
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_forgotten_version_leads_to_a_new_list() {
    let (server, config, pods) = stage().await;
    let (mut changes, formats) = changes(&config, false);
    assert_eq!(next(&mut changes).await, Change::Restarted);
    assert!(matches!(next(&mut changes).await, Change::Synced { .. }));
    server.faults().inject(Fault::ExpireWatches, FaultScope::default(), Some(1));
    pods.create(&PostParams::default(), &pod("p", json!({}))).await.unwrap();
    assert_eq!(next(&mut changes).await, Change::Restarted);
    assert!(matches!(next(&mut changes).await, Change::Listed(_)));
    assert!(matches!(next(&mut changes).await, Change::Synced { .. }));
    assert_eq!(*formats.lock().unwrap(), [PROTOBUF, PROTOBUF]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_new_pod_is_the_same_in_both_formats() {
    let (server, config, pods) = stage().await;
    for (name, json_only, format) in
        [("binary", false, "application/vnd.kubernetes.protobuf"), ("text", true, JSON)]
    {
        let (transport, formats) = recorder(&config, json_only);
        let metrics = Arc::new(Metrics::new());
        let gate = WriteGate::open(transport, GateConfig::default(), EXTERNAL_FINALIZER, metrics);
        let job =
            created(&config, &reader(&config, json_only), name, "NonIndexed").await.job.clone().unwrap();
        let place = Place { number: 0, attempt: 0 };
        let new = made(
            &job,
            NewPod { place, index_failures: None, backoff: None, lineage: None, behind: Behind::default() },
        );
        let create = || {
            let order = Order::new(Priority::Create, "job".into(), Fence::unlimited());
            gate.submit(order, Write::CreatePod { pod: new.clone() })
        };
        let Answer::Pod(created) = create().await.unwrap() else { panic!("no pod") };
        let stored = pods.get(&new.name()).await.unwrap().metadata;
        assert_eq!((&*created.namespace, &*created.pod.name), ("default", &*new.name()));
        assert_eq!(created.pod.uid.to_string(), stored.uid.unwrap());
        assert_eq!(created.pod.version.to_string(), stored.resource_version.unwrap());
        assert_eq!(created.labels.get("app"), Some("x"));
        assert!(created.pod.tracked);
        assert!(matches!(create().await, Err(WriteError::AlreadyExists { .. })));
        assert_eq!(formats.lock().unwrap().first().unwrap(), format);
    }
    server.shutdown().await;
}

/// A Job whose template has all that is changed for an index.
fn job(name: &str, mode: &str) -> Value {
    let env = |name: &str| json!([{"name": name, "value": "given"}]);
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": 3, "parallelism": 3, "completionMode": mode,
            "template": {
                "metadata": {
                    "labels": {"app": "x", "batch.kubernetes.io/job-completion-index": "of-the-user"},
                    "annotations": {"note": "\"y\" é", "batch.kubernetes.io/job-index-failure-count": "7"},
                    "finalizers": ["example.com/kept"],
                },
                "spec": {
                    "restartPolicy": "Never", "hostname": "own", "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": -1, "effect": "NoExecute"}],
                    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                                {"matchFields": [
                                    {"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]},
                                ]},
                            ]},
                            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                                "matchExpressions": [{"key": "disk", "operator": "Exists"}],
                            }}],
                        },
                        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                            "weight": 5, "podAffinityTerm": {"topologyKey": "zone"},
                        }]},
                    },
                    "initContainers": [{"name": "setup", "image": "i"}],
                    "containers": [
                        {"name": "main", "image": "i", "env": env("A"), "resources": {
                            "requests": {"cpu": "100m", "memory": "7Mi"}, "limits": {"memory": "8Mi"},
                        }},
                        {"name": "side", "image": "i", "env": env("JOB_COMPLETION_INDEX")},
                    ],
                },
            },
        },
    })
}

fn reader(config: &kube::Config, json_only: bool) -> Reader {
    let (transport, metrics) = (recorder(config, json_only).0, Arc::new(Metrics::new()));
    Reader::new(transport, EXTERNAL_FINALIZER, JobDecoder::new(), metrics)
}

/// Creates a Job, and reads it.
async fn created(config: &kube::Config, reader: &Reader, name: &str, mode: &str) -> Arc<ObservedJob> {
    let jobs: Api<Job> = Api::default_namespaced(kube::Client::try_from(config.clone()).unwrap());
    let created = serde_json::from_value(job(name, mode)).unwrap();
    jobs.create(&PostParams::default(), &created).await.unwrap();
    reader.get_job("default", name).await.unwrap().unwrap()
}

fn made(job: &yardmaster::job::spec::Job, new: NewPod) -> PodManifest {
    Maker::new(job, EXTERNAL_FINALIZER, 7, None).unwrap().manifest(new)
}

/// An overlay with everything, on what the template of [`job`] has.
fn overlay(required: bool) -> Overlay {
    let variable = |name, value: &str| Variable { name, value: VariableValue::Text(value.into()) };
    let memory = |container: &str, list, amount: &str| Quantity {
        container: container.into(),
        list,
        resource: "memory",
        amount: amount.into(),
    };
    Overlay {
        labels: vec![("app", "y".into()), ("example.com/attempt", "2".into())],
        annotations: vec![("note", "z".into())],
        env: vec![variable("A", "of the overlay"), variable("ATTEMPT", "2")],
        quantities: vec![
            memory("main", ResourceList::Limits, "2Gi"),
            memory("main", ResourceList::Requests, "1Gi"),
            memory("side", ResourceList::Limits, "3Mi"),
            memory("absent", ResourceList::Limits, "4Mi"),
        ],
        avoidance: Some(HostAvoidance { required, hosts: vec!["node-1".into(), "node-2".into()] }),
    }
}

/// The pod that the API server stores for a manifest, without the fields that differ between any two pods.
async fn stored(transport: &dyn Transport, manifest: PodManifest) -> Value {
    let content = match manifest.encoding() {
        Encoding::Json => JSON,
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
    };
    let request = Request::post("/api/v1/namespaces/default/pods").header(header::CONTENT_TYPE, content);
    let answer = transport.send(request.body(manifest.body()).unwrap()).await.unwrap();
    let mut pod: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(answer.status(), 201, "{pod}");
    let metadata = pod["metadata"].as_object_mut().unwrap();
    assert_eq!(metadata["name"], manifest.name());
    for own in ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        metadata.remove(own);
    }
    metadata["annotations"].as_object_mut().unwrap().remove("yardmaster.dev/place").unwrap();
    pod
}

#[tokio::test]
async fn a_pod_is_the_same_whatever_it_is_created_in() {
    let (server, config, _) = stage().await;
    let (transport, _) = recorder(&config, false);
    let (in_both, in_json) = (reader(&config, false), reader(&config, true));
    for (name, mode) in [("plain", "NonIndexed"), ("indexed", "Indexed")] {
        let observed = created(&config, &in_both, name, mode).await;
        let (job, indexed) = (observed.job.clone().unwrap(), mode == "Indexed");
        let manifest = |attempt, index_failures, overlay: &Overlay| {
            let place = Place { number: 1, attempt };
            let new =
                NewPod { place, index_failures, backoff: None, lineage: None, behind: Behind::default() };
            made(&job, new).with_overlay(Some(Arc::new(overlay.clone())))
        };
        let failures = Some(IndexFailures { counted: 2, ignored: 1 });
        let [none, required, preferred] = [Overlay::default(), overlay(true), overlay(false)];
        let in_text = [
            manifest(0, None, &none),
            manifest(1, failures, &none),
            manifest(4, None, &required),
            manifest(5, None, &preferred),
        ];
        let spec = in_both.pod_spec(&job.id()).await.unwrap().unwrap();
        assert_eq!(spec.generation, observed.generation);
        job.spec.template.know_protobuf(spec.spec, indexed);
        let in_protobuf = [
            manifest(2, None, &none),
            manifest(3, failures, &none),
            manifest(6, None, &required),
            manifest(7, None, &preferred),
        ];
        for (text, protobuf) in in_text.into_iter().zip(in_protobuf) {
            assert_eq!((text.encoding(), protobuf.encoding()), (Encoding::Json, Encoding::Protobuf));
            let (text, protobuf) = (stored(&*transport, text).await, stored(&*transport, protobuf).await);
            assert_eq!(text, protobuf, "{text:#}\n{protobuf:#}");
        }
        let of = |namespace: &str, name: &str, uid| JobId::new(namespace.into(), name.into(), uid);
        let none = [
            in_both.pod_spec(&of("default", name, "another".into())).await.unwrap(),
            in_both.pod_spec(&of("default", "absent", job.uid.clone())).await.unwrap(),
            in_json.pod_spec(&job.id()).await.unwrap(),
        ];
        assert_eq!(none, [None, None, None]);
    }
    server.shutdown().await;
}
