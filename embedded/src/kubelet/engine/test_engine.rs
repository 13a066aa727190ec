//! An engine of this process, for tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::{Engine, PATIENCE, Shared};

/// An engine at a socket. It gives an answer to the line of each request, or dies in the place of one.
pub(super) fn serve(
    socket: &Path,
    mut answer: impl FnMut(&str) -> Option<String> + Send + 'static,
) -> Engine {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            if let Some(text) = answer(&request(&mut connection).await) {
                connection.write_all(text.as_bytes()).await.unwrap();
            }
        }
    });
    at(socket)
}

/// The engine at a socket, without asking it.
pub(super) fn at(socket: &Path) -> Engine {
    let client =
        || Docker::connect_with_unix(socket.to_str().unwrap(), PATIENCE, API_DEFAULT_VERSION).unwrap();
    Engine(Arc::new(Shared::new(client(), client(), "1/0".into(), false, SystemVersion::default())))
}

/// An answer.
pub(super) fn reply(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// The line of a request, once all of it was read.
pub(super) async fn request(connection: &mut UnixStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(connection.read_u8().await.unwrap());
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0_u8; length.unwrap_or_default()];
    connection.read_exact(&mut body).await.unwrap();
    head.lines().next().unwrap().to_owned()
}
