//! Owners, dependents and namespaces are deleted as Kubernetes' garbage collector and namespace controller do
//! it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::config::KubeConfigOptions;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::json;
use yardmaster_embedded::{ApiServer, ApiServerConfig};

const DEADLINE: Duration = Duration::from_secs(20);

async fn start() -> (ApiServer, Client) {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
    (server, Client::try_from(config).unwrap())
}

fn job(name: &str) -> Job {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }))
    .unwrap()
}

fn pod_of(owner: &Job, name: &str, finalizers: &[&str]) -> Pod {
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap();
    pod.metadata.owner_references = owner.controller_owner_ref(&()).map(|mut reference| {
        reference.block_owner_deletion = Some(true);
        vec![reference]
    });
    pod
}

async fn gone<K>(api: &Api<K>, object: &K)
where
    K: Resource + Clone + std::fmt::Debug + Send + for<'de> serde::Deserialize<'de> + 'static,
    K::DynamicType: Default,
{
    let (name, uid) = (object.name_any(), object.uid().unwrap());
    let deleted = await_condition(api.clone(), &name, conditions::is_deleted(&uid));
    tokio::time::timeout(DEADLINE, deleted).await.unwrap_or_else(|_| panic!("{name} stays")).unwrap();
}

fn policy(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

async fn drop_finalizers(pods: &Api<Pod>, name: &str) {
    let patch = json!({"metadata": {"finalizers": null}});
    pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn background_deletion_deletes_dependents() {
    let (server, client) = start().await;
    let (jobs, pods) =
        (Api::<Job>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let owner = jobs.create(&PostParams::default(), &job("j")).await.unwrap();
    let pod = pods.create(&PostParams::default(), &pod_of(&owner, "p", &[])).await.unwrap();
    jobs.delete("j", &policy(PropagationPolicy::Background)).await.unwrap();
    assert!(jobs.get_opt("j").await.unwrap().is_none(), "the owner is deleted at once");
    gone(&pods, &pod).await;
    server.shutdown().await;
}

#[tokio::test]
async fn foreground_deletion_waits_for_dependents() {
    let (server, client) = start().await;
    let (jobs, pods) =
        (Api::<Job>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let owner = jobs.create(&PostParams::default(), &job("j")).await.unwrap();
    let pod = pods.create(&PostParams::default(), &pod_of(&owner, "p", &["example.com/hold"])).await.unwrap();
    jobs.delete("j", &policy(PropagationPolicy::Foreground)).await.unwrap();
    let deleting = await_condition(pods.clone(), "p", |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
    });
    tokio::time::timeout(DEADLINE, deleting).await.unwrap().unwrap();
    let owner = jobs.get("j").await.unwrap();
    assert_eq!(owner.finalizers(), ["foregroundDeletion"], "the owner waits for its pod");
    drop_finalizers(&pods, "p").await;
    gone(&pods, &pod).await;
    gone(&jobs, &owner).await;
    server.shutdown().await;
}

#[tokio::test]
async fn orphan_deletion_keeps_dependents_without_owner() {
    let (server, client) = start().await;
    let (jobs, pods) =
        (Api::<Job>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let owner = jobs.create(&PostParams::default(), &job("j")).await.unwrap();
    pods.create(&PostParams::default(), &pod_of(&owner, "p", &[])).await.unwrap();
    jobs.delete("j", &policy(PropagationPolicy::Orphan)).await.unwrap();
    gone(&jobs, &owner).await;
    let pod = pods.get("p").await.unwrap();
    assert!(pod.owner_references().is_empty(), "the pod has no owner any more");
    assert!(pod.metadata.deletion_timestamp.is_none(), "the pod stays");
    server.shutdown().await;
}

#[tokio::test]
async fn an_object_whose_owner_never_existed_is_deleted() {
    let (server, client) = start().await;
    let (jobs, pods) =
        (Api::<Job>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let mut owner = jobs.create(&PostParams::default(), &job("j")).await.unwrap();
    owner.metadata.uid = Some("00000000-0000-0000-0000-00000000000a".into());
    let pod = pods.create(&PostParams::default(), &pod_of(&owner, "p", &[])).await.unwrap();
    gone(&pods, &pod).await;
    assert!(jobs.get_opt("j").await.unwrap().is_some(), "the object of that name is another one");
    server.shutdown().await;
}

#[tokio::test]
async fn a_namespace_is_deleted_after_its_contents_and_pods_first() {
    let (server, client) = start().await;
    let namespaces = Api::<Namespace>::all(client.clone());
    let new: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let namespace = namespaces.create(&PostParams::default(), &new).await.unwrap();
    let (jobs, pods) =
        (Api::<Job>::namespaced(client.clone(), "n"), Api::<Pod>::namespaced(client.clone(), "n"));
    let owner = jobs.create(&PostParams::default(), &job("j")).await.unwrap();
    pods.create(&PostParams::default(), &pod_of(&owner, "p", &["example.com/hold"])).await.unwrap();
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let deleting = await_condition(pods.clone(), "p", |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
    });
    tokio::time::timeout(DEADLINE, deleting).await.unwrap().unwrap();
    assert!(jobs.get("j").await.unwrap().metadata.deletion_timestamp.is_none(), "Jobs go after pods");
    let map = ConfigMap { metadata: pods.get("p").await.unwrap().metadata, ..ConfigMap::default() };
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta { name: map.metadata.name, ..Default::default() },
        ..Default::default()
    };
    let refused = Api::<ConfigMap>::namespaced(client, "n").create(&PostParams::default(), &map).await;
    match refused {
        Err(kube::Error::Api(status)) => assert_eq!((status.code, &*status.reason), (403, "Forbidden")),
        other => panic!("created in a terminating namespace: {other:?}"),
    }
    drop_finalizers(&pods, "p").await;
    gone(&namespaces, &namespace).await;
    assert!(jobs.get_opt("j").await.unwrap().is_none());
    server.shutdown().await;
}
