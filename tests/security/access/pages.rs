//! A web page in the user's browser, which can send requests to loopback. Most of these servers ask for no token:
//! a page is refused whatever it knows.

use std::net::SocketAddr;

use yardmaster_embedded::{ApiServer, ApiServerConfig};

use super::wire::{MAPS, POD, PODS, address, bearer, open_server, request, send};

const JSON: &str = "Content-Type: application/json";

async fn get(address: SocketAddr, headers: &[&str]) -> u16 {
    let answer = request(address, "GET", PODS, headers, "").await;
    if answer.code == 200 { 200 } else { answer.status() }
}

#[tokio::test]
async fn a_name_that_leads_to_loopback_is_not_the_servers() {
    let server = open_server(ApiServerConfig::default()).await;
    let (address, port) = (address(&server), address(&server).port());
    for host in ["evil.example", &*format!("evil.example:{port}"), "127.0.0.1.evil.example", "10.0.0.1", ""] {
        assert_eq!(get(address, &[&format!("Host: {host}")]).await, 403, "{host}");
    }
    for host in [&*format!("127.0.0.1:{port}"), "localhost", "[::1]:1", "127.0.0.2"] {
        assert_eq!(get(address, &[&format!("Host: {host}")]).await, 200, "{host}");
    }
    assert_eq!(get(address, &[]).await, 400, "HTTP/1.1 has a Host");
    assert_eq!(get(address, &["Host: localhost", "Host: evil.example"]).await, 400);
    let absolute =
        format!("GET http://evil.example{PODS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(send(address, &absolute).await.status(), 403);
    server.shutdown().await;

    let host_names = vec!["jobs.example".to_owned()];
    let named = open_server(ApiServerConfig { host_names, ..ApiServerConfig::default() }).await;
    assert_eq!(get(self::address(&named), &["Host: jobs.example:80"]).await, 200);
    named.shutdown().await;
}

#[tokio::test]
async fn a_form_on_a_page_starts_nothing() {
    let server = open_server(ApiServerConfig::default()).await;
    let address = address(&server);
    let host = format!("Host: {address}");
    for headers in [
        // From a form, or a request without CORS.
        vec!["Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Content-Type: text/plain"],
        vec!["Origin: http://evil.example"],
        // From a sandboxed frame, or a file.
        vec!["Origin: null"],
        // From another server of this machine.
        vec!["Origin: http://localhost:3000", "Sec-Fetch-Site: same-site", JSON],
        // From browsers that leave Origin away, as with an image.
        vec!["Sec-Fetch-Site: cross-site"],
    ] {
        let all: Vec<&str> = [&[&*host], &*headers].concat();
        assert_eq!(request(address, "POST", PODS, &all, POD).await.status(), 403, "{headers:?}");
        assert_eq!(request(address, "GET", PODS, &all, "").await.status(), 403, "{headers:?}");
    }
    // A preflight is no way in, either.
    let preflight = [&*host, "Origin: http://evil.example", "Access-Control-Request-Method: POST"];
    let answer = request(address, "OPTIONS", PODS, &preflight, "").await;
    assert_eq!(answer.status(), 403);
    assert!(!answer.head.contains("access-control"), "{answer:?}");

    let pods = request(address, "GET", PODS, &[&host], "").await;
    assert!(pods.body.ends_with(r#""items":[]}"#), "{}", pods.body);
    let own = [&*host, &*format!("Origin: http://{address}"), "Sec-Fetch-Site: same-origin"];
    assert_eq!(request(address, "POST", PODS, &own, POD).await.code, 201);
    server.shutdown().await;
}

#[tokio::test]
async fn a_page_that_knows_the_token_is_refused_as_well() {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let headers = ["Host: localhost", "Origin: http://evil.example", &*bearer(&server), JSON];
    assert_eq!(request(address(&server), "POST", PODS, &headers, POD).await.status(), 403);
    server.shutdown().await;
}

#[tokio::test]
async fn the_types_that_forms_can_send_are_no_objects() {
    let server = open_server(ApiServerConfig::default()).await;
    let map = r#"{"metadata": {"generateName": "m-"}}"#;
    for (kind, code) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=b", 415),
        ("application/json, text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/json", 201),
        ("Application/JSON; charset=utf-8", 201),
        // No type is that of JSON, as with kube-apiserver.
        ("", 201),
    ] {
        let header = format!("Content-Type: {kind}");
        let headers =
            if kind.is_empty() { vec!["Host: localhost"] } else { vec!["Host: localhost", &header] };
        let answer = request(address(&server), "POST", MAPS, &headers, map).await;
        assert_eq!(answer.code, code, "{kind}: {answer:?}");
        let deletion = r#"{"propagationPolicy": "Background"}"#;
        let gone = request(address(&server), "DELETE", &format!("{MAPS}/none"), &headers, deletion).await;
        assert_eq!(gone.status(), if code == 201 { 404 } else { 415 }, "{kind}: {gone:?}");
    }
    server.shutdown().await;
}
