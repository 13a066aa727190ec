//! Each kind of discovery means the same in protobuf as in JSON, in both directions.

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

use super::client::{Client, JSON, Watcher, pod};
use crate::object::Object;
use crate::protobuf;
use crate::protobuf::tests::{frame, without_empty};
use crate::resources::stored;
use crate::store::{Expect, NewVersion};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The fields that clients write of a kind, besides metadata and type.
fn sample(api_version: &str, kind: &str) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "o"});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let about = json!({"kind": "Job", "namespace": "default", "name": "o", "uid": "u"});
    let asked = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    match (api_version, kind) {
        (_, "Namespace" | "ServiceAccount") => json!({}),
        (_, "Eviction") => json!({"deleteOptions": {"gracePeriodSeconds": 0, "dryRun": ["All"]}}),
        (_, "Binding") => json!({"target": {"kind": "Node", "name": "o"}}),
        (_, "ConfigMap") => json!({"data": {"k": "v"}, "binaryData": {"b": "AP8="}}),
        (_, "Secret") => json!({"data": {"k": "AP8="}, "type": "Opaque"}),
        (_, "Node") => json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}, "status": {
            "capacity": {"cpu": "1500m"}, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        }}),
        (_, "Pod") => template,
        (_, "PersistentVolumeClaim") => json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}),
        (_, "LimitRange") => json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        (_, "ResourceQuota") => json!({"spec": {"hard": {"pods": "2"}}}),
        (_, "Service") => {
            json!({"spec": {"clusterIP": "None", "ports": [{"port": 80, "targetPort": "web"}]}})
        }
        ("v1", "Event") => json!({
            "involvedObject": about, "reason": "Started", "message": "m", "type": "Normal", "count": 2,
            "source": {"component": "job-controller"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z",
        }),
        (_, "Event") => json!({
            "regarding": about, "reason": "Started", "note": "m", "type": "Normal", "action": "Start",
            "eventTime": "2026-01-01T00:00:00.000012Z", "reportingController": "job-controller",
            "reportingInstance": "i", "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.500000Z"},
        }),
        (_, "Job") => json!({"spec": {"parallelism": 0, "template": template}}),
        (_, "CronJob") => {
            json!({"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template}}}})
        }
        (_, "Lease") => json!({"spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.123456Z"}}),
        (_, "Role" | "ClusterRole") => json!({"rules": rules}),
        (_, "RoleBinding" | "ClusterRoleBinding") => json!({"subjects": [subject], "roleRef": role}),
        (_, "PriorityClass") => json!({"value": 7, "description": "d"}),
        (_, "PodGroup") => json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}),
        (_, "Workload") => json!({"spec": {"podGroupTemplates": [
            {"name": "g", "schedulingPolicy": {"gang": {"minCount": 2}}},
        ]}}),
        (_, "SelfSubjectReview") => json!({}),
        (_, "TokenReview") => json!({"spec": {"token": "t", "audiences": ["a"]}}),
        (_, "SelfSubjectAccessReview") => json!({"spec": {"resourceAttributes": asked}}),
        (_, "SubjectAccessReview" | "LocalSubjectAccessReview") => json!({"spec": {
            "user": "u", "groups": ["g"], "extra": {"scopes": ["a", "b"]}, "resourceAttributes": asked,
        }}),
        other => panic!("no sample of {other:?}: kinds that clients write need one"),
    }
}

/// A resource or subresource of discovery.
struct Served {
    /// Path of its objects' collection.
    collection: String,
    /// Name of the subresource, if it is one.
    subresource: Option<String>,
    api_version: String,
    kind: String,
    verbs: Vec<String>,
}

impl Served {
    fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    fn sample(&self) -> Value {
        let mut object = sample(&self.api_version, &self.kind);
        object["metadata"] = json!({"name": "o"});
        object
    }
}

async fn served(client: &Client) -> Vec<Served> {
    let mut all = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for root in ["/api", "/apis"] {
        let groups = client.send("GET", root, DISCOVERY, JSON, "").await.json();
        for group in groups["items"].as_array().unwrap() {
            let name = text(&group["metadata"]["name"]);
            for version in group["versions"].as_array().unwrap() {
                let group_version = [&name, &text(&version["version"])].map(String::as_str).join("/");
                let group_version = group_version.trim_start_matches('/');
                for resource in version["resources"].as_array().unwrap() {
                    let space = if resource["scope"] == "Namespaced" { "namespaces/default/" } else { "" };
                    let collection = format!("{root}/{group_version}/{space}{}", text(&resource["resource"]));
                    let subresources = resource["subresources"].as_array().into_iter().flatten();
                    for one in std::iter::once(resource).chain(subresources) {
                        let kind = &one["responseKind"];
                        let verbs = one["verbs"].as_array().unwrap().iter().map(text).collect();
                        let of_kind = [text(&kind["group"]), text(&kind["version"])].join("/");
                        all.push(Served {
                            collection: collection.clone(),
                            subresource: one["subresource"].as_str().map(str::to_owned),
                            api_version: if of_kind == "/" {
                                group_version
                            } else {
                                of_kind.trim_start_matches('/')
                            }
                            .into(),
                            kind: text(&kind["kind"]),
                            verbs,
                        });
                    }
                }
            }
        }
    }
    all
}

/// The same server twice: one gets its bodies in JSON, the other in protobuf.
struct Pair {
    text: Client,
    binary: Client,
}

impl Pair {
    /// Sends an object to both servers, and returns their answer, which is the same.
    async fn send(&self, method: &str, path: &str, (api_version, kind): (&str, &str), body: &Value) -> Value {
        let mut bare = body.clone();
        let fields = bare.as_object_mut().unwrap();
        fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        let mut encoded = BytesMut::new();
        protobuf::write_object(&mut encoded, api_version, kind, bare.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{api_version} {kind}: {error}"));
        bare["apiVersion"] = api_version.into();
        bare["kind"] = kind.into();
        let wanted = self.text.send(method, path, JSON, JSON, bare.to_string()).await;
        let got = self.binary.send(method, path, JSON, PROTOBUF, encoded.freeze()).await;
        assert!(matches!(wanted.code, 200 | 201), "{method} {path}: {}", wanted.text());
        assert_eq!((got.code, got.text()), (wanted.code, wanted.text()), "{method} {path}");
        got.json()
    }
}

fn pair() -> Pair {
    let [text, binary] = [(); 2].map(|()| Client::with_gates(1, &["GenericWorkload"]));
    Pair { text, binary }
}

#[tokio::test(start_paused = true)]
async fn bodies_of_every_kind_are_accepted_and_mean_the_same_as_in_json() {
    let servers = pair();
    let all = served(&servers.text).await;
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let mut written = Vec::new();
    for one in all.iter().filter(|one| one.has("create") && one.subresource.is_none()) {
        let of = (one.api_version.as_str(), one.kind.as_str());
        // The older place of bindings needs a pod that is not yet bound.
        if one.kind == "Binding" {
            continue;
        }
        let mut object = servers.send("POST", &one.collection, of, &one.sample()).await;
        let path = format!("{}/o", one.collection);
        if one.has("update") {
            object["metadata"]["labels"] = json!({"changed": "yes"});
            object = servers.send("PUT", &path, of, &object).await;
            assert_eq!(object["metadata"]["labels"]["changed"], "yes", "{path}");
        }
        // A binding changes the pod between the updates of its parts.
        object["metadata"]["resourceVersion"].take();
        for part in all.iter().filter(|part| part.collection == one.collection) {
            match part.subresource.as_deref() {
                Some(name @ ("status" | "finalize")) => {
                    servers.send("PUT", &format!("{path}/{name}"), of, &object).await;
                }
                Some(name @ ("binding" | "eviction")) => {
                    let (of, path) =
                        ((part.api_version.as_str(), part.kind.as_str()), format!("{path}/{name}"));
                    servers.send("POST", &path, of, &part.sample()).await;
                }
                _ => {}
            }
        }
        if one.has("delete") {
            servers.send("DELETE", &path, ("v1", "DeleteOptions"), &options).await;
        }
        written.push(of);
    }
    assert!(written.contains(&("v1", "Event")) && written.contains(&("events.k8s.io/v1", "Event")));
    assert!(written.len() > 20, "{written:?}");
}

/// The events of a watch in protobuf.
fn frames(watcher: &mut Watcher) -> Vec<Value> {
    let mut events = Vec::new();
    for chunk in watcher.chunks() {
        let mut unread: &[u8] = &chunk;
        while let Some((length, tail)) = unread.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let (event, object) = frame(&unread[..4 + length]).unwrap();
            events.push(json!({"type": event, "object": object}));
            unread = &tail[length..];
        }
    }
    events
}

#[tokio::test(start_paused = true)]
async fn watches_of_every_kind_that_clients_write_show_the_same_in_both_formats() {
    const METADATA: &str = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let client = Client::with_gates(1, &["GenericWorkload"]);
    let mut watched = 0;
    for one in served(&client).await.iter().filter(|one| one.has("create") && one.has("watch")) {
        let query =
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let path = format!("{}?{query}", one.collection);
        let mut watches = Vec::new();
        for form in ["", METADATA] {
            let text = client.watch(&path, &format!("{JSON}{form}")).await;
            let binary = client.watch(&path, &format!("{PROTOBUF}{form}")).await;
            watches.push((text, binary));
        }
        let created =
            client.send("POST", &one.collection, JSON, JSON, Bytes::from(one.sample().to_string())).await;
        assert_eq!(created.code, 201, "{}", created.text());
        // Events of both groups share their names.
        client.send("DELETE", &format!("{}/o", one.collection), JSON, JSON, "").await;
        for (mut text, mut binary) in watches {
            let (wanted, got) = (text.events(), frames(&mut binary));
            let without_empty =
                |events: Vec<Value>| events.iter().filter_map(without_empty).collect::<Vec<_>>();
            let (wanted, got) = (without_empty(wanted), without_empty(got));
            assert!(wanted.len() > 1, "{path}");
            assert_eq!(got, wanted, "{path}");
        }
        watched += 1;
    }
    assert!(watched > 15, "{watched}");
}

#[tokio::test(start_paused = true)]
async fn lists_of_every_kind_that_clients_write_show_the_same_in_both_formats() {
    const PARTIAL: &str = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let client = Client::with_gates(1, &["GenericWorkload"]);
    let mut listed = 0;
    for one in served(&client).await.iter().filter(|one| one.has("create") && one.has("list")) {
        assert_eq!(client.post(&one.collection, &one.sample()).await.code, 201, "{}", one.collection);
        for form in ["", PARTIAL] {
            let path = format!("{}?limit=1", one.collection);
            let list = async |format| client.send("GET", &path, &format!("{format}{form}"), JSON, "").await;
            let mut wanted = list(JSON).await.json();
            for object in wanted["items"].as_array_mut().unwrap() {
                // In protobuf only the list has a kind.
                object.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
            }
            let got = list(PROTOBUF).await;
            assert_eq!(got.header("content-type"), PROTOBUF, "{path}");
            let got = protobuf::decode(&got.body).unwrap();
            assert_eq!(without_empty(&got), without_empty(&wanted), "{path}");
            assert_eq!(got["items"].as_array().map(Vec::len), Some(1), "{path}");
        }
        // Events of both groups share their names.
        client.send("DELETE", &format!("{}/o", one.collection), JSON, JSON, "").await;
        listed += 1;
    }
    assert!(listed > 15, "{listed}");
}

#[tokio::test(start_paused = true)]
async fn after_an_object_of_a_later_version_watches_are_in_json() {
    let client = Client::new(1);
    let path = format!("{}?watch=true", super::PODS);
    let mut binary = client.watch(&path, PROTOBUF).await;
    super::create_pods(&client, &["known"]).await;
    let mut later = pod("later", "a");
    later["metadata"]["namespace"] = "default".into();
    later["spec"]["newField"] = true.into();
    let pods = stored("pods").unwrap();
    let (header, tail) = Object::encode(pods, later);
    let table = client.server.server.store.table("pods").unwrap();
    assert!(table.put(&"default/later".into(), Expect::Absent, NewVersion { header, tail }).is_ok());
    let seen = frames(&mut binary);
    assert_eq!(seen.iter().map(|event| &event["object"]["metadata"]["name"]).collect::<Vec<_>>(), ["known"]);
    assert!(binary.has_ended());
    let either = "application/vnd.kubernetes.protobuf,application/json";
    let mut next = client.watch(&path, either).await;
    let seen = next.events();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1]["object"]["spec"]["newField"], true);
    let list = client.send("GET", super::PODS, either, JSON, "").await;
    assert_eq!((list.header("content-type"), list.json()["items"].as_array().unwrap().len()), (JSON, 2));
}
