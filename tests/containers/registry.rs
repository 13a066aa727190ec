//! A registry of images, since tests reach no other. Each of its images has a layer that no engine has seen before.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::engine;

/// Images that arrive at once.
pub(crate) const QUICK: &str = "quick";
pub(crate) const PLAIN: &str = "plain";
/// An image that does not arrive before it may.
pub(crate) const SLOW: &str = "slow";
/// The file in the layer of its own, which has its name in it.
pub(crate) const FILE: &str = "data/name";
/// Bytes of that layer beside it.
const FILLING: usize = 1 << 20;
/// Bytes of a slow layer that arrive in vain.
const PIECE: usize = 100;

/// Whether the slow image may arrive.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Lets the slow image arrive.
pub(crate) fn release() {
    RELEASED.store(true, Ordering::Relaxed);
}

/// The name of an image of this registry.
pub(crate) fn image(name: &str) -> String {
    format!("127.0.0.1:{}/{name}:1", port())
}

/// The port of the registry, which starts with the first question.
pub(crate) fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, routes()).await.unwrap();
            });
        });
        port
    })
}

/// The blobs by digest, and the manifests by the names of images.
struct Blobs {
    by_digest: HashMap<String, (&'static str, Bytes)>,
    manifests: HashMap<String, String>,
    slow: String,
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn routes() -> Router {
    let mut blobs = Blobs { by_digest: HashMap::new(), manifests: HashMap::new(), slow: String::new() };
    for name in [QUICK, PLAIN, SLOW] {
        let layer = blobs.add_image(name);
        if name == SLOW {
            blobs.slow = layer;
        }
    }
    Router::new()
        .route("/v2/", get(|| async { "{}" }))
        .route("/v2/{name}/manifests/{reference}", get(manifest))
        .route("/v2/{name}/blobs/{digest}", get(blob))
        .with_state(Arc::new(blobs))
}

impl Blobs {
    fn add(&mut self, media_type: &'static str, bytes: Vec<u8>) -> Value {
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256:{hex}");
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        self.by_digest.insert(digest, (media_type, bytes.into()));
        descriptor
    }

    /// Adds an image of busybox with a file. Returns the digest of the file's layer.
    fn add_image(&mut self, name: &str) -> String {
        let layers = [self.add(LAYER, engine::busybox_archive()), self.add(LAYER, own_layer(name))];
        let digests = layers.each_ref().map(|layer| layer["digest"].as_str().unwrap().to_owned());
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let config = self.add(CONFIG, config.to_string().into());
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        let manifest = self.add(MANIFEST, manifest.to_string().into());
        self.manifests.insert(name.to_owned(), manifest["digest"].as_str().unwrap().to_owned());
        let [_, own] = digests;
        own
    }
}

/// A layer that was never there before.
fn own_layer(name: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut append = |path: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content).unwrap();
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    append(FILE, format!("{name}\n").as_bytes());
    append("data/unique", format!("{now} {}", std::process::id()).as_bytes());
    append("data/filling", &vec![0; FILLING]);
    archive.into_inner().unwrap()
}

async fn manifest(
    State(blobs): State<Arc<Blobs>>,
    Path((name, reference)): Path<(String, String)>,
) -> Response {
    let digest = blobs.manifests.get(&name).filter(|_| reference == "1").unwrap_or(&reference);
    served(&blobs, digest, false)
}

async fn blob(State(blobs): State<Arc<Blobs>>, Path((_, digest)): Path<(String, String)>) -> Response {
    served(&blobs, &digest, digest == blobs.slow)
}

fn served(blobs: &Blobs, digest: &str, is_slow: bool) -> Response {
    let Some((media_type, bytes)) = blobs.by_digest.get(digest) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, (*media_type).to_owned()),
        (header::CONTENT_LENGTH, bytes.len().to_string()),
        (header::HeaderName::from_static("docker-content-digest"), digest.to_owned()),
    ];
    let body = if is_slow { slowly(bytes.clone()) } else { Body::from(bytes.clone()) };
    (headers, body).into_response()
}

/// A body whose bytes come one piece after the other until all of it may come.
fn slowly(bytes: Bytes) -> Body {
    let pieces = futures::stream::unfold(bytes, |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        let is_released = RELEASED.load(Ordering::Relaxed);
        if !is_released {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let piece = rest.split_to(if is_released { rest.len() } else { PIECE.min(rest.len()) });
        Some((piece, rest))
    });
    Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>))
}
