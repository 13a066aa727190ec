//! Another user of the same machine, who can connect to every port of loopback.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use yardmaster_embedded::{ApiServer, ApiServerConfig, Authentication, Token};

use super::wire::{self, MAPS, POD, PODS, address, bearer, client, request};

const HOST: &str = "Host: localhost";
const JSON: &str = "Content-Type: application/json";

#[tokio::test]
async fn without_the_token_nothing_can_be_read_or_started() {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let address = address(&server);
    let wrong = ["Authorization: Bearer guessed", "Authorization: Bearer ", "Authorization: Basic YTpi"];
    let shorter = bearer(&server);
    let shorter = &shorter[..shorter.len() - 1];
    for headers in [
        vec![HOST, JSON],
        vec![HOST, JSON, wrong[0]],
        vec![HOST, JSON, wrong[1]],
        vec![HOST, JSON, wrong[2]],
        vec![HOST, JSON, shorter],
    ] {
        for (method, path, body) in [
            ("POST", PODS, POD),
            ("GET", PODS, ""),
            ("GET", "/api/v1/secrets?watch=true", ""),
            ("DELETE", "/api/v1/namespaces/default", ""),
            ("GET", "/", ""),
            ("GET", "/api", ""),
            ("GET", "/openapi/v3", ""),
            ("GET", "/healthz/ping", ""),
            ("POST", "/version", ""),
            ("GET", "/no/such/path", ""),
        ] {
            let answer = request(address, method, path, &headers, body).await;
            assert_eq!(answer.status(), 401, "{method} {path} with {headers:?}");
            assert!(answer.body.contains(r#""reason":"Unauthorized""#), "{answer:?}");
        }
    }
    assert_eq!(wire::get(&client(&server), PODS).await, 200);
    assert_eq!(request(address, "GET", PODS, &[HOST, &bearer(&server)], "").await.code, 200);
    server.shutdown().await;
}

#[tokio::test]
async fn anybody_may_know_that_the_server_lives_and_of_which_version_it_is() {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(request(address(&server), "GET", path, &[HOST], "").await.code, 200, "{path}");
        // As with kube-apiserver, a token that is wrong is worse than none.
        let wrong = [HOST, "Authorization: Bearer guessed"];
        assert_eq!(request(address(&server), "GET", path, &wrong, "").await.status(), 401, "{path}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn every_server_has_a_token_of_its_own() {
    let (one, other) = tokio::join!(
        ApiServer::start(ApiServerConfig::default()),
        ApiServer::start(ApiServerConfig::default())
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.token().unwrap().expose().len(), 64, "256 bits in hexadecimal digits");
    assert_ne!(one.token().unwrap().expose(), other.token().unwrap().expose());
    let stolen = bearer(&one);
    assert_eq!(request(address(&other), "GET", PODS, &[HOST, &stolen], "").await.status(), 401);
    assert!(
        !format!("{:?}", ApiServerConfig { authentication: given("planted"), ..ApiServerConfig::default() })
            .contains("planted")
    );
    one.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn the_token_that_kubelets_see_opens_nothing_here() {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let caught = super::logs::token_shown_to_kubelets(&server).await;
    let headers = [HOST, &*format!("Authorization: {caught}")];
    assert_eq!(request(address(&server), "GET", PODS, &headers, "").await.status(), 401);
    server.shutdown().await;
}

#[tokio::test]
async fn a_token_outlives_a_restart_with_the_objects() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let data_dir = Some(directory.path().join("data"));
        ApiServer::start(ApiServerConfig { data_dir, api_only: true, ..ApiServerConfig::default() })
    };
    let first = start().await.unwrap();
    let token = bearer(&first);
    first.shutdown().await;
    let again = start().await.unwrap();
    assert_eq!(request(address(&again), "GET", MAPS, &[HOST, &token], "").await.code, 200);
    again.shutdown().await;

    // Others could read it: it is replaced.
    let file = directory.path().join("data/credentials/token");
    assert_eq!(mode(&file), 0o600);
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let mended = start().await.unwrap();
    assert_eq!(request(address(&mended), "GET", MAPS, &[HOST, &token], "").await.status(), 401);
    assert_eq!((mode(&file), wire::get(&client(&mended), MAPS).await), (0o600, 200));
    mended.shutdown().await;
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn clients_that_send_tokens_over_tls_only_are_served_as_well() {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let secure = server.secure_kubeconfig();
    let cluster = secure.clusters[0].cluster.clone().unwrap();
    assert!(cluster.server.unwrap().starts_with("https://127.0.0.1:"));
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(secure, &options).await.unwrap();
    assert_eq!(wire::get(&kube::Client::try_from(config).unwrap(), PODS).await, 200);
    assert_eq!(wire::get(&client(&server), PODS).await, 200, "and those in clear");
    server.shutdown().await;
}

fn given(token: &str) -> Authentication {
    Authentication::Token(Token::new(token).unwrap())
}
