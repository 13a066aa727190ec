#![allow(clippy::unwrap_used)]
use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::*;

/// Nothing arrives within this time.
const SILENCE: Duration = Duration::from_millis(300);
/// Limit of everything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST: &[u8] = b"GET /api/v1/pods?watch=true HTTP/1.1\r\n\r\n";

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap()
}

/// A connection through a proxy: the proxy, the replica's side, the API server's side, and its number.
async fn connected() -> (Proxy, TcpStream, TcpStream, u64) {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Proxy::start(upstream.local_addr().unwrap()).unwrap();
    let mut replica = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = soon(upstream.accept()).await.unwrap();
    replica.write_all(REQUEST).await.unwrap();
    assert_eq!(read(&mut server, REQUEST.len()).await, REQUEST);
    let (number, request) = proxy.connections().remove(0);
    assert_eq!(request, "GET /api/v1/pods (watch)");
    (proxy, replica, server, number)
}

async fn read(from: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    soon(from.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// All bytes up to the end of the connection, and whether it ended.
async fn rest(from: &mut TcpStream, patience: Duration) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let ended =
        timeout(patience, async { while from.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {} });
    let ended = ended.await.is_ok();
    (bytes, ended)
}

#[tokio::test]
async fn bytes_pass_in_both_directions_until_a_side_closes() {
    let (proxy, mut replica, mut server, _) = connected().await;
    server.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut replica, 6).await, b"answer");
    drop(replica);
    assert_eq!(rest(&mut server, PATIENCE).await, (Vec::new(), true));
    drop(server);
    soon(async {
        while !proxy.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_blackhole_swallows_both_directions_and_keeps_both_sides_connected() {
    let (proxy, mut replica, mut server, number) = connected().await;
    assert!(proxy.set(number, Mode::Swallow));
    replica.write_all(b"lost request").await.unwrap();
    server.write_all(b"lost answer").await.unwrap();
    assert_eq!(rest(&mut server, SILENCE).await, (Vec::new(), false));
    assert_eq!(rest(&mut replica, SILENCE).await, (Vec::new(), false));
    assert_eq!(proxy.swallowed(), 23);
    // Another connection is not affected.
    assert_eq!(proxy.shared.lock().new, Mode::Pass);
    proxy.restore();
    assert_eq!(rest(&mut server, PATIENCE).await, (Vec::new(), true), "what was swallowed never arrives");
    assert_eq!(rest(&mut replica, PATIENCE).await, (Vec::new(), true));
}

#[tokio::test]
async fn of_a_half_open_connection_only_the_server_hears_the_end() {
    let (proxy, mut replica, mut server, number) = connected().await;
    assert!(proxy.set(number, Mode::HalfOpen));
    assert_eq!(rest(&mut server, PATIENCE).await, (Vec::new(), true));
    replica.write_all(b"into the void").await.unwrap();
    assert_eq!(rest(&mut replica, SILENCE).await, (Vec::new(), false));
    assert_eq!(proxy.swallowed(), 13);
    proxy.restore();
    assert_eq!(rest(&mut replica, PATIENCE).await, (Vec::new(), true));
}

#[tokio::test]
async fn a_delay_delays_and_loses_nothing() {
    let (proxy, mut replica, mut server, number) = connected().await;
    let begun = Instant::now();
    assert!(proxy.set(number, Mode::Delay(SILENCE)));
    // Pieces that follow each other are all on their way at once.
    for part in ["a", "b", "c"] {
        server.write_all(part.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(read(&mut replica, 3).await, b"abc");
    assert!(begun.elapsed() >= SILENCE);
    proxy.restore();
    server.write_all(b"again").await.unwrap();
    assert_eq!(read(&mut replica, 5).await, b"again");
}

#[tokio::test]
async fn a_cut_ends_the_connection_in_the_middle_of_an_answer() {
    let (proxy, mut replica, mut server, _) = connected().await;
    proxy.cut_next_answer();
    assert_eq!(proxy.cut(), None);
    replica.write_all(b"this still arrives").await.unwrap();
    assert_eq!(read(&mut server, 18).await, b"this still arrives");
    server.write_all(&[b'x'; 1000]).await.unwrap();
    let (bytes, ended) = rest(&mut replica, PATIENCE).await;
    assert!(ended && !bytes.is_empty() && bytes.len() < 1000, "{} bytes, {ended}", bytes.len());
    assert_eq!(proxy.cut().as_deref(), Some("GET /api/v1/pods (watch)"));
    assert!(rest(&mut server, PATIENCE).await.1, "both sides are closed");
}

#[tokio::test]
async fn an_isolated_replica_reaches_nothing_on_new_connections_either() {
    let (proxy, mut replica, mut server, _) = connected().await;
    proxy.set_all(Mode::Swallow);
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    other.write_all(REQUEST).await.unwrap();
    replica.write_all(b"lost").await.unwrap();
    assert_eq!(rest(&mut server, SILENCE).await, (Vec::new(), false));
    assert_eq!(rest(&mut other, SILENCE).await, (Vec::new(), false));
    assert_eq!(proxy.swallowed(), REQUEST.len() as u64 + 4);
    drop(proxy);
    assert_eq!(rest(&mut replica, PATIENCE).await, (Vec::new(), true), "a dropped proxy closes all");
}
