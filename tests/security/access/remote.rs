//! Other hosts: TLS, and a certificate authority that the kubeconfig names.

use kube::config::{KubeConfigOptions, Kubeconfig};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Authentication, EmbeddedError};

use super::wire::{PODS, begin, get, until_closed};

/// A server that listens on all addresses.
async fn server(data_dir: Option<&std::path::Path>) -> ApiServer {
    let config = ApiServerConfig {
        listen: ([0, 0, 0, 0], 0).into(),
        host_names: vec!["jobs.example".into()],
        data_dir: data_dir.map(Into::into),
        api_only: true,
        ..ApiServerConfig::default()
    };
    ApiServer::start(config).await.unwrap()
}

async fn client(kubeconfig: Kubeconfig) -> kube::Client {
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

/// The same kubeconfig with another address of the server.
fn at(mut kubeconfig: Kubeconfig, host: &str) -> Kubeconfig {
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    let port = cluster.server.as_ref().unwrap().rsplit_once(':').unwrap().1.to_owned();
    cluster.server = Some(format!("https://{host}:{port}"));
    kubeconfig
}

#[tokio::test]
async fn the_kubeconfig_names_the_authority_of_the_server() {
    let server = server(None).await;
    let kubeconfig = server.kubeconfig();
    assert!(server.url().starts_with("https://"), "{}", server.url());
    assert_eq!(get(&client(kubeconfig.clone()).await, PODS).await, 200);
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(get(&client(at(kubeconfig.clone(), host)).await, PODS).await, 200, "{host}");
    }
    // The clients of its own process trust it, too.
    assert_eq!(get(&kube::Client::try_from(server.client_config()).unwrap(), PODS).await, 200);

    let mut without = kubeconfig.clone();
    without.clusters[0].cluster.as_mut().unwrap().certificate_authority_data = None;
    let refused = client(without).await.apiserver_version().await;
    assert!(matches!(refused, Err(kube::Error::HyperError(_) | kube::Error::Service(_))), "{refused:?}");

    // A man in the middle has another authority.
    let other = self::server(None).await;
    let mut mixed = kubeconfig;
    mixed.clusters[0].cluster.as_mut().unwrap().certificate_authority_data =
        other.kubeconfig().clusters[0].cluster.clone().unwrap().certificate_authority_data;
    assert!(client(mixed).await.apiserver_version().await.is_err());
    server.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn nothing_is_served_in_clear() {
    let server = server(None).await;
    let port: u16 = server.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let text = format!("GET {PODS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = until_closed(&mut begin(([127, 0, 0, 1], port).into(), &text).await).await;
    assert!(!answer.contains("HTTP/1.1"), "{answer:?}");
    server.shutdown().await;

    let config = ApiServerConfig {
        listen: ([0, 0, 0, 0], 0).into(),
        authentication: Authentication::Anonymous,
        ..ApiServerConfig::default()
    };
    assert!(matches!(ApiServer::start(config).await, Err(EmbeddedError::TokenRequired(_))));
}

#[tokio::test]
async fn a_kubeconfig_outlives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let first = server(Some(&data)).await;
    let kubeconfig = first.kubeconfig();
    first.shutdown().await;
    let again = server(Some(&data)).await;
    let (mut old, new) = (kubeconfig, again.kubeconfig());
    // The free port is another one.
    old.clusters[0].cluster.as_mut().unwrap().server =
        new.clusters[0].cluster.as_ref().unwrap().server.clone();
    assert_eq!(get(&client(old).await, PODS).await, 200);
    again.shutdown().await;
}
