//! Clients that open connections and send little, so that others find no place.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use yardmaster_embedded::{ApiServer, ApiServerConfig, HttpLimits};

use super::wire::{MAPS, PATIENCE, PODS, address, bearer, begin, client, get, request, send, until_closed};

/// A time that is short for a test, and long for a machine that is busy.
const SHORT: Duration = Duration::from_secs(2);

async fn server(limits: HttpLimits) -> ApiServer {
    let config = ApiServerConfig { limits, api_only: true, ..ApiServerConfig::default() };
    ApiServer::start(config).await.unwrap()
}

fn is_closed(stream: &TcpStream) -> bool {
    !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn half_open_connections_keep_nobody_out() {
    let server = server(HttpLimits::default()).await;
    let address = address(&server);
    let client = client(&server);
    let mut half_open = Vec::new();
    for number in 0..500 {
        half_open
            .push(begin(address, if number % 2 == 0 { "" } else { "GET /api HTTP/1.1\r\nHost: loc" }).await);
    }
    assert_eq!(get(&client, PODS).await, 200);
    // Only the last ones are still there.
    let limit = HttpLimits::default().newcomers;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let open = half_open.iter().filter(|stream| !is_closed(stream)).count();
        if open <= limit {
            break;
        }
        assert!(Instant::now() < deadline, "{open} half-open connections");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_closed(&half_open[0]), "the oldest is closed first");
    assert_eq!(get(&client, PODS).await, 200, "the connection of a known client stays");
    server.shutdown().await;
}

#[tokio::test]
async fn requests_without_the_token_make_no_connection_a_known_one() {
    let limits = HttpLimits { newcomers: 4, ..HttpLimits::default() };
    let server = server(limits).await;
    let anonymous = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = begin(address(&server), anonymous).await;
    let mut answer = [0; 12];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let _others: Vec<_> =
        futures::stream::iter(0..4).then(|_| begin(address(&server), anonymous)).collect().await;
    until_closed(&mut first).await;
    server.shutdown().await;
}

#[tokio::test]
async fn slow_headers_have_little_time() {
    let server = server(HttpLimits { arrival: SHORT, ..HttpLimits::default() }).await;
    for beginning in ["", "GET /api HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = begin(address(&server), beginning).await;
        assert_eq!(until_closed(&mut stream).await, "");
    }
    // Single bytes do not prolong it.
    let stream = begin(address(&server), "GET /api HTTP/1.1\r\n").await;
    let begun = Instant::now();
    while stream.try_write(b"X").is_ok() {
        assert!(begun.elapsed() < PATIENCE, "still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.shutdown().await;
    let default = HttpLimits::default();
    assert!(default.arrival <= Duration::from_secs(32) && default.idle <= Duration::from_secs(120));
}

#[tokio::test]
async fn idle_connections_end_and_watches_do_not() {
    let limits = HttpLimits { arrival: SHORT, idle: SHORT, body: SHORT, ..HttpLimits::default() };
    let server = server(limits).await;
    let watch = http::Request::get(format!("{MAPS}?watch=true")).body(kube::client::Body::empty()).unwrap();
    let client = client(&server);
    let mut watch = client.send(watch).await.unwrap().into_body();

    let known = format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", bearer(&server));
    let mut idle = begin(address(&server), &known).await;
    assert!(until_closed(&mut idle).await.starts_with("HTTP/1.1 200"));
    tokio::time::sleep(3 * SHORT).await;

    let json = ["Host: localhost", "Content-Type: application/json", &*bearer(&server)];
    let map = json!({"metadata": {"name": "seen"}}).to_string();
    assert_eq!(request(address(&server), "POST", MAPS, &json, &map).await.code, 201);
    let mut seen = String::new();
    while !seen.contains(r#""name":"seen""#) {
        let frame = tokio::time::timeout(PATIENCE, watch.frame()).await.expect("an event");
        let frame = frame.expect("the watch goes on").unwrap();
        seen.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| data)));
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_slow_body_holds_no_slot_and_ends() {
    let limits = HttpLimits { body: SHORT, ..HttpLimits::default() };
    let config =
        ApiServerConfig { limits, max_inflight: Some(1), api_only: true, ..ApiServerConfig::default() };
    let server = ApiServer::start(config).await.unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\n{}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n{{",
        bearer(&server)
    );
    let mut slow = Vec::new();
    for _ in 0..5 {
        slow.push(begin(address(&server), &head).await);
    }
    assert_eq!(get(&client(&server), MAPS).await, 200);
    for mut stream in slow {
        let answer = until_closed(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn requests_are_bounded_in_size() {
    let server = server(HttpLimits::default()).await;
    let token = bearer(&server);
    let get = |more: &str| {
        format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\n{token}\r\nConnection: close\r\n{more}\r\n")
    };
    assert_eq!(send(address(&server), &get("")).await.code, 200);
    let many: String = (0..200).map(|number| format!("X-{number}: x\r\n")).collect();
    assert_eq!(send(address(&server), &get(&many)).await.code, 431);
    let long = format!("X-Long: {}\r\n", "x".repeat(300_000));
    assert_eq!(send(address(&server), &get(&long)).await.code, 431);
    let declared = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\n{token}\r\nContent-Length: {}\r\n\r\n{}",
        4 << 20,
        "x".repeat((3 << 20) + 1)
    );
    assert_eq!(send(address(&server), &declared).await.status(), 413);
    server.shutdown().await;
}

#[tokio::test]
async fn warnings_are_bounded_and_told_once() {
    let server = server(HttpLimits::default()).await;
    let headers = ["Host: localhost", "Content-Type: application/json", &*bearer(&server)];
    let mut map = json!({"metadata": {"name": "m"}});
    for number in 0..5_000 {
        map[format!("unknown-{number}")] = "x".repeat(100).into();
    }
    let answer = request(address(&server), "POST", MAPS, &headers, &map.to_string()).await;
    assert_eq!(answer.code, 201);
    let warnings: Vec<&str> = answer.head.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert!((1..=64).contains(&warnings.len()), "{} headers", warnings.len());
    let size: usize = warnings.iter().map(|line| line.len()).sum();
    assert!(size < 16 << 10, "{size} bytes");

    let twice = r#"{"metadata": {"name": "n"}, "x": 1, "x": 2, "x": 3}"#;
    let answer = request(address(&server), "POST", MAPS, &headers, twice).await;
    let mut warnings: Vec<&str> = answer.head.lines().filter(|line| line.starts_with("warning: ")).collect();
    let all = warnings.len();
    warnings.sort_unstable();
    warnings.dedup();
    assert_eq!((answer.code, warnings.len()), (201, all), "{answer:?}");
    server.shutdown().await;
}
