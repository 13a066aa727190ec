//! The access of pods to the API server by their ServiceAccounts, as Kubernetes gives it. Variables have the
//! address, and a mount in each container has a token, the certificate authority and the namespace.
//!
//! In Kubernetes an admission plugin adds volume and mounts to the object. This kubelet adds them to its own
//! view of a pod, when it begins with it. So the object stays as it was created, and the answers of the API
//! server can be compared with those of one without the plugin. Besides, a cluster without a kubelet has no
//! use for the volume.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::KubeletMode;
use super::client::{Data, PodClient};
use super::context::Context;
use super::engine::{Engine, Network};
use super::environment::Variables;
use super::pod::{Container, Pod, PodSpec, Volume, VolumeMount};
use super::setup::SetupError;
use crate::controllers::ROOT_CERTIFICATES;
use crate::pod_entrance::PodEntrance;

/// The volume. Kubernetes ends its name with random letters. Here processes find it by a variable, whose name
/// is the same for each pod.
const VOLUME: &str = "kube-api-access";
/// The path at which clients look for it.
pub(super) const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Seconds of a token, as in Kubernetes.
const TOKEN_SECONDS: i64 = 3607;
/// Permissions of the files in containers, whose users differ, as in Kubernetes.
const CONTAINER_MODE: i32 = 0o644;
/// Permissions of the files of processes, which all run as the user of the cluster.
pub(super) const PROCESS_MODE: i32 = 0o600;
/// How long an answer of the API server counts: many pods of one account start together.
const FRESH: Duration = Duration::from_secs(1);

/// The objects that pods share for their access, as they were read a moment ago.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Whether pods of an account get a token that do not say so themselves.
    mounts: Recent<bool>,
    /// The certificate authority of a namespace.
    authorities: Recent<Data>,
}

/// Values that were read a moment ago, by namespace and name.
#[derive(Debug)]
struct Recent<T>(parking_lot::Mutex<HashMap<(String, String), RecentValue<T>>>);

/// A value with the time at which it was read. It is locked while it is read.
type RecentValue<T> = Arc<Mutex<Option<(Instant, T)>>>;

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(parking_lot::Mutex::default())
    }
}

impl<T: Clone> Recent<T> {
    /// The value, which is read unless it is there. Others that want the same value wait meanwhile. A lack of it
    /// does not count.
    async fn get<E>(
        &self,
        namespace: &str,
        name: &str,
        read: impl Future<Output = Result<Option<T>, E>>,
    ) -> Result<Option<T>, E> {
        let known = self.entry(namespace, name);
        let mut known = known.lock().await;
        if let Some((_, value)) = known.as_ref().filter(|known| is_fresh(known)) {
            return Ok(Some(value.clone()));
        }
        let value = read.await?;
        *known = value.clone().map(|value| (Instant::now(), value));
        Ok(value)
    }

    /// The entry of a value. Drops the entries of old values that nothing waits for.
    fn entry(&self, namespace: &str, name: &str) -> RecentValue<T> {
        let mut entries = self.0.lock();
        entries.retain(|_, entry| {
            let has_fresh = || entry.try_lock().is_ok_and(|known| known.as_ref().is_some_and(is_fresh));
            Arc::strong_count(entry) > 1 || has_fresh()
        });
        Arc::clone(entries.entry((namespace.to_owned(), name.to_owned())).or_default())
    }
}

fn is_fresh<T>((read, _): &(Instant, T)) -> bool {
    read.elapsed() < FRESH
}

impl Accounts {
    async fn mounts_token(&self, client: &PodClient, name: &str) -> bool {
        // An answer is awaited: an account may say that its pods get no token.
        loop {
            let read = async {
                let account = client.account(name).await?;
                Ok::<_, kube::Error>(account.map(|one| one.automount_service_account_token.unwrap_or(true)))
            };
            match self.mounts.get(client.namespace(), name, read).await {
                // Without the account there is no token, for which the pod then waits.
                Ok(mounts) => return mounts.unwrap_or(true),
                Err(_) => sleep(FRESH).await,
            }
        }
    }

    /// The certificate authority of the API server, by which the pods of a namespace know it.
    pub(super) async fn authority(&self, client: &PodClient) -> Result<Option<Data>, SetupError> {
        let read = client.config_map(ROOT_CERTIFICATES, false);
        self.authorities.get(client.namespace(), ROOT_CERTIFICATES, read).await
    }
}

/// The pod with the access that it is to have.
pub(super) async fn give(context: &Context, client: &PodClient, pod: Arc<Pod>) -> Arc<Pod> {
    if context.api.is_none() || matches!(context.mode, KubeletMode::Simulated) {
        return pod;
    }
    let spec = &pod.spec;
    let is_wanted = match spec.automount_service_account_token {
        Some(own) => own,
        None => tokio::select! {
            mounts = context.accounts.mounts_token(client, spec.account()) => mounts,
            // It does not start any more.
            () = context.closing.cancelled() => false,
        },
    };
    if !is_wanted {
        return pod;
    }
    let mut pod = Arc::unwrap_or_clone(pod);
    let mode = if matches!(context.mode, KubeletMode::Containers(_)) { CONTAINER_MODE } else { PROCESS_MODE };
    mount(&mut pod.spec, mode);
    Arc::new(pod)
}

/// Adds the volume, and mounts it in the containers that mount nothing else at its path.
pub(super) fn mount(spec: &mut PodSpec, mode: i32) {
    let lacks_it =
        |container: &&mut Container| container.volume_mounts.iter().all(|one| one.mount_path != PATH);
    let is_free = |name: &str| spec.volumes.iter().all(|volume| volume.name != name);
    let numbered = (1..).map(|number| format!("{VOLUME}-{number}"));
    let Some(name) = std::iter::once(VOLUME.to_owned()).chain(numbered).find(|name| is_free(name)) else {
        return;
    };
    let mut mounts = 0;
    for container in spec.init_containers.iter_mut().chain(&mut spec.containers).filter(lacks_it) {
        container.volume_mounts.push(VolumeMount {
            name: name.clone(),
            mount_path: PATH.to_owned(),
            read_only: true,
            ..VolumeMount::default()
        });
        mounts += 1;
    }
    if mounts > 0 {
        spec.volumes.push(volume(name, mode));
    }
}

fn volume(name: String, mode: i32) -> Volume {
    let token = core::ServiceAccountTokenProjection {
        path: "token".into(),
        expiration_seconds: Some(TOKEN_SECONDS),
        ..core::ServiceAccountTokenProjection::default()
    };
    let authority = core::ConfigMapProjection {
        name: ROOT_CERTIFICATES.into(),
        items: Some(vec![core::KeyToPath { key: "ca.crt".into(), path: "ca.crt".into(), mode: None }]),
        ..core::ConfigMapProjection::default()
    };
    let field = core::ObjectFieldSelector { field_path: "metadata.namespace".into(), api_version: None };
    let namespace = core::DownwardAPIVolumeFile {
        path: "namespace".into(),
        field_ref: Some(field),
        ..core::DownwardAPIVolumeFile::default()
    };
    let sources = vec![
        core::VolumeProjection { service_account_token: Some(token), ..core::VolumeProjection::default() },
        core::VolumeProjection { config_map: Some(authority), ..core::VolumeProjection::default() },
        core::VolumeProjection {
            downward_api: Some(core::DownwardAPIProjection { items: Some(vec![namespace]) }),
            ..core::VolumeProjection::default()
        },
    ];
    let projected = core::ProjectedVolumeSource { default_mode: Some(mode), sources: Some(sources) };
    Volume { name, projected: Some(projected), is_access: true, ..Volume::default() }
}

/// The address at which a pod reaches the API server; `None` if it cannot.
pub(super) async fn address(
    api: Option<&PodEntrance>,
    spec: &PodSpec,
    engine: Option<&Engine>,
    network: Option<&Network>,
) -> Option<SocketAddr> {
    let api = api?;
    let Some(engine) = engine.filter(|_| !spec.host_network) else { return Some(api.address()) };
    let host = engine.host_in(network).await?;
    match api.address_in_network(host).await {
        Ok(address) => Some(address),
        Err(error) => {
            tracing::warn!(%host, %error, "containers do not reach the API server");
            None
        }
    }
}

/// The variables of the Service `kubernetes`, which every container of a cluster has.
pub(super) fn variables(address: SocketAddr) -> Variables {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let url = format!("tcp://{address}");
    [
        ("KUBERNETES_SERVICE_HOST".to_owned(), host.clone()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), port.clone()),
        ("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), port.clone()),
        ("KUBERNETES_PORT".to_owned(), url.clone()),
        (format!("KUBERNETES_PORT_{port}_TCP"), url),
        (format!("KUBERNETES_PORT_{port}_TCP_PROTO"), "tcp".to_owned()),
        (format!("KUBERNETES_PORT_{port}_TCP_ADDR"), host),
        (format!("KUBERNETES_PORT_{port}_TCP_PORT"), port),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    /// The volumes of a pod with access, and the volumes that its containers mount at the path.
    fn mounted(spec: Value) -> (Vec<String>, Vec<Option<String>>) {
        let mut spec: PodSpec = serde_json::from_value(spec).unwrap();
        mount(&mut spec, CONTAINER_MODE);
        let of_path = |container: &Container| {
            let mut mounts = container.volume_mounts.iter();
            mounts.find(|mount| mount.mount_path == PATH).map(|mount| mount.name.clone())
        };
        let containers = spec.init_containers.iter().chain(&spec.containers);
        (spec.volumes.iter().map(|volume| volume.name.clone()).collect(), containers.map(of_path).collect())
    }

    #[test]
    fn each_container_has_the_volume_unless_it_mounts_another_there() {
        let own = json!([{"name": "own", "mountPath": PATH}]);
        let plain = json!({"name": "c"});
        let name = |name: &str| Some(name.to_owned());
        let (volumes, mounts) = mounted(json!({
            "volumes": [{"name": "own", "emptyDir": {}}], "initContainers": [plain],
            "containers": [plain, {"name": "d", "volumeMounts": own}],
        }));
        assert_eq!(volumes, ["own", VOLUME]);
        assert_eq!(mounts, [name(VOLUME), name(VOLUME), name("own")]);

        let (volumes, mounts) = mounted(
            json!({"volumes": [{"name": "own"}], "containers": [{"name": "d", "volumeMounts": own}]}),
        );
        assert_eq!((volumes, mounts), (vec!["own".to_owned()], vec![name("own")]));

        let (volumes, mounts) = mounted(json!({"volumes": [{"name": VOLUME}], "containers": [plain]}));
        let other = format!("{VOLUME}-1");
        assert_eq!((volumes, mounts), (vec![VOLUME.to_owned(), other.clone()], vec![Some(other)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_read_once_for_pods_that_start_together() {
        let (recent, reads) = (Recent::default(), std::cell::Cell::new(0));
        let get = async |answer: Result<Option<u8>, u8>| {
            let read = async {
                reads.set(reads.get() + 1);
                answer
            };
            (recent.get("n", "a", read).await, reads.get())
        };
        for (answer, expected) in [
            (Err(1), (Err(1), 1)),
            (Ok(None), (Ok(None), 2)),
            (Ok(Some(5)), (Ok(Some(5)), 3)),
            (Ok(Some(6)), (Ok(Some(5)), 3)),
        ] {
            assert_eq!(get(answer).await, expected);
        }
        sleep(FRESH).await;
        assert_eq!(get(Ok(Some(7))).await, (Ok(Some(7)), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_whose_read_hangs_holds_up_no_other() {
        let recent = Recent::default();
        let get = async |namespace, name, value: u8| {
            recent.get(namespace, name, async { Ok::<_, ()>(Some(value)) }).await
        };
        let others = async {
            assert_eq!(get("n", "b", 1).await, Ok(Some(1)));
            assert_eq!(get("m", "a", 2).await, Ok(Some(2)));
            sleep(FRESH).await;
            assert_eq!(get("n", "c", 3).await, Ok(Some(3)));
        };
        tokio::select! {
            biased;
            read = recent.get("n", "a", std::future::pending::<Result<_, ()>>()) => panic!("{read:?}"),
            done = tokio::time::timeout(FRESH * 2, others) => done.unwrap(),
        }
        let mut kept: Vec<_> = recent.0.lock().keys().map(|(_, name)| name.clone()).collect();
        kept.sort();
        assert_eq!(kept, ["a", "c"], "old values are dropped, unless they are being read");
    }

    #[test]
    fn the_variables_are_those_of_the_service() {
        let of = |address: &str| variables(address.parse().unwrap());
        let all = of("10.88.0.1:4711");
        for (name, value) in [
            ("KUBERNETES_SERVICE_HOST", "10.88.0.1"),
            ("KUBERNETES_SERVICE_PORT", "4711"),
            ("KUBERNETES_PORT", "tcp://10.88.0.1:4711"),
            ("KUBERNETES_PORT_4711_TCP_PORT", "4711"),
        ] {
            assert_eq!(all[name], value, "{name}");
        }
        let sixth = of("[::1]:443");
        assert_eq!(
            (&*sixth["KUBERNETES_SERVICE_HOST"], &*sixth["KUBERNETES_PORT"]),
            ("::1", "tcp://[::1]:443")
        );
    }
}
