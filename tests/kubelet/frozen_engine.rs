//! Pods whose container engine takes requests, and answers none.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinHandle;
use yardmaster_embedded::kubelet::NODE;
use yardmaster_embedded::kubelet::engine::Engine;

use super::*;

/// Serves an engine that only says its version. Passes on the lines of all other requests, which it keeps waiting.
fn serve(socket: &Path) -> (JoinHandle<()>, UnboundedReceiver<String>) {
    let listener = UnixListener::bind(socket).unwrap();
    let (told, asked) = mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        let mut waiting = Vec::new();
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let line = request(&mut connection).await;
            if line.contains("/version") {
                let body = r#"{"ApiVersion": "1.41", "Version": "1"}"#;
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n");
                let head = format!("{head}Content-Type: application/json\r\n\r\n");
                connection.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            } else {
                waiting.push(connection);
                told.send(line).unwrap();
            }
        }
    });
    (serving, asked)
}

/// The line of a request without a body.
async fn request(connection: &mut UnixStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(read).unwrap().lines().next().unwrap().to_owned()
}

/// A pod that a kubelet finds on its node may have containers of a previous kubelet, which it removes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_deleted_while_its_kubelet_looks_for_what_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("engine");
    let (serving, mut asked) = serve(&socket);
    let engine = Engine::at(&format!("unix://{}", socket.display())).await.unwrap();
    let cluster = Cluster::with(KubeletMode::Containers(engine)).await;
    cluster.create("p", json!({"nodeName": NODE, "containers": [container("true")]})).await;
    let pod = async { while !asked.recv().await.unwrap().contains("pod-uid") {} };
    tokio::time::timeout(PATIENCE, pod).await.expect("its containers are not looked for");
    // A shorter grace period replaces the first one.
    cluster.pods.delete("p", &DeleteParams::default().grace_period(600)).await.unwrap();
    cluster.pods.delete("p", &DeleteParams::default().grace_period(1)).await.unwrap();
    cluster.gone("p").await;
    // The end of the cluster need not wait for it.
    serving.abort();
    cluster.stop().await;
}
