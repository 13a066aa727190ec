//! The objects that every cluster has: the Service `kubernetes` and, in each namespace, the ServiceAccount
//! `default` and the ConfigMap `kube-root-ca.crt`. A deleted object is created again, and a changed object
//! gets its contents back.
//!
//! In Kubernetes, kube-apiserver keeps the Service, and kube-controller-manager the others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::MANAGER;
use super::feed::{Feed, TableEvent};
use crate::admission::namespaces;
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::object::{self, Object, meta};
use crate::resources::{self, Resource};
use crate::rules::Subresource;
use crate::server::Server;
use crate::verbs::{Writer, create, update};

const NAMESPACES: &str = "namespaces";
const API_SERVER: &str = "kube-apiserver";

/// The name of the ConfigMap with the API server's certificate authority.
pub(crate) const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

/// An object that every cluster has.
struct SystemObject {
    resource: &'static Resource,
    /// The only namespace that has it; `None` if each has one.
    namespace: Option<&'static str>,
    /// The object as it is created.
    object: Value,
    /// The field with its contents, in which changes are reverted.
    contents: Option<&'static str>,
    /// The field manager of its writes.
    manager: &'static str,
}

/// All objects that a cluster has from its start to its end.
pub(crate) struct SystemObjects(Vec<SystemObject>);

impl SystemObjects {
    /// The objects of a cluster with this API server. Without `controllers`, only those of kube-apiserver.
    pub(crate) fn new(endpoint: &Endpoint, controllers: bool) -> Self {
        let authority = endpoint.authority();
        let mut objects = vec![SystemObject::kubernetes_service(endpoint.address(), authority.is_some())];
        if controllers {
            objects.push(SystemObject::default_service_account());
            objects.push(SystemObject::root_certificates(authority.unwrap_or_default()));
        }
        Self(objects.into_iter().flatten().collect())
    }

    /// Creates what is missing, and restores what has changed, in all namespaces.
    pub(crate) fn ensure(&self, server: &Server) {
        let names = server.store.table(NAMESPACES).and_then(|table| {
            let page = table.page("", None, None, None, |_| true).ok()?;
            Some(page.items.iter().map(|namespace| namespace.header.name.to_string()).collect())
        });
        self.ensure_in(server, &names.unwrap_or_default());
    }

    fn ensure_in(&self, server: &Server, names: &BTreeSet<String>) {
        for name in names {
            let active = namespaces::get(server, name).is_some_and(|found| !found.header.deleting);
            let here = self.0.iter().filter(|one| active && one.namespace.is_none_or(|only| only == *name));
            for one in here {
                if let Err(error) = one.ensure(server, name) {
                    // Another write came first, or the namespace begins to terminate. The event of that
                    // change is next.
                    tracing::debug!(error = %error.message, namespace = name, kind = one.resource.kind, "not kept");
                }
            }
        }
    }

    /// Keeps the objects until the server stops.
    pub(super) async fn run(self: Arc<Self>, server: Arc<Server>) {
        let watched =
            |plural: &str| plural == NAMESPACES || self.0.iter().any(|one| one.resource.plural == plural);
        let mut feed = Feed::start(&server, watched);
        while let Some((plural, event)) = feed.next().await {
            let objects: Vec<Arc<Object>> = match event {
                TableEvent::Changes(changes) => changes.into_iter().map(|change| change.new).collect(),
                // A deletion may be among the missed changes.
                TableEvent::Relisted(_) => {
                    self.ensure(&server);
                    continue;
                }
            };
            let touched = objects.iter().filter_map(|object| self.namespace_of(plural, object));
            self.ensure_in(&server, &touched.collect());
        }
    }

    /// The namespace whose objects a change of this object may concern.
    fn namespace_of(&self, plural: &str, object: &Object) -> Option<String> {
        let header = &object.header;
        if plural == NAMESPACES {
            return Some(header.name.to_string());
        }
        let mut ours = self.0.iter().filter(|one| one.resource.plural == plural);
        ours.any(|one| one.name() == &*header.name).then(|| header.namespace.to_string())
    }
}

impl SystemObject {
    /// The Service through which pods find the API server. There is no network of Services, so its address
    /// and port are the server's own.
    fn kubernetes_service(address: SocketAddr, tls: bool) -> Option<Self> {
        let (ip, port) = (address.ip().to_string(), address.port());
        let name = if tls { "https" } else { "http" };
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "clusterIP": ip, "clusterIPs": [ip], "type": "ClusterIP",
                "ipFamilies": [if address.is_ipv6() { "IPv6" } else { "IPv4" }],
                "ports": [{"name": name, "protocol": "TCP", "port": port, "targetPort": port}],
            },
        });
        let kept = Self::new("services", service, API_SERVER)?;
        Some(Self { namespace: Some("default"), contents: Some("spec"), ..kept })
    }

    fn default_service_account() -> Option<Self> {
        Self::new("serviceaccounts", json!({"metadata": {"name": "default"}}), MANAGER)
    }

    /// The ConfigMap with the API server's certificate authority, which is empty without TLS.
    fn root_certificates(authority: &str) -> Option<Self> {
        let description = "Certificate authority of the API server";
        let map = json!({
            "metadata": {
                "name": ROOT_CERTIFICATES, "annotations": {"kubernetes.io/description": description},
            },
            "data": {"ca.crt": authority},
        });
        let kept = Self::new("configmaps", map, MANAGER)?;
        Some(Self { contents: Some("data"), ..kept })
    }

    /// An object that each namespace has, with defaults, so that it compares with the stored one.
    fn new(plural: &str, mut object: Value, manager: &'static str) -> Option<Self> {
        let resource = resources::stored(plural)?;
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        resource.strategy.default_object(&mut object);
        Some(Self { resource, namespace: None, object, contents: None, manager })
    }

    fn name(&self) -> &str {
        meta(&self.object, "name")
    }

    /// Creates the object in a namespace, or restores its contents there.
    fn ensure(&self, server: &Server, namespace: &str) -> Result<(), ApiError> {
        let key = object::key(Some(namespace), self.name());
        let writer = Writer::internal(server, self.manager);
        let Some(found) = server.table(self.resource).get(&key) else {
            return create::insert(server, self.resource, Some(namespace), self.object.clone(), writer)
                .map(drop);
        };
        let Some(contents) = self.contents else { return Ok(()) };
        if found.decode(self.resource)[contents] == self.object[contents] {
            return Ok(());
        }
        update::modify(server, self.resource, &key, Subresource::Main, writer, |old| {
            let mut restored = old.clone();
            restored[contents] = self.object[contents].clone();
            Ok(restored)
        })
        .map(drop)
    }
}
