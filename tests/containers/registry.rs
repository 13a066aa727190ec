//! A registry of images, since tests reach no other. The engine asks it in place of the usual registries.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{engine, programs};

/// The registries that the engine finds here.
pub(crate) const MIRRORED: [&str; 4] = ["docker.io", "registry.k8s.io", "quay.io", "ghcr.io"];
/// Images that arrive at once. They have a layer that no engine has seen before, as has the slow one.
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

/// The name of an image of the registry that only [`USER`] may ask.
pub(crate) fn locked_image(name: &str) -> String {
    format!("127.0.0.1:{}/{name}:1", locked_port())
}

/// The digest of an image.
pub(crate) fn digest(name: &str) -> String {
    images().lock().unwrap().manifest(name).unwrap()
}

/// The port of the registry, which starts with the first question.
pub(crate) fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| serve(routes()))
}

/// The port of the registry that only [`USER`] may ask.
pub(crate) fn locked_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| serve(routes().layer(middleware::from_fn(admit))))
}

/// User and password of the locked registry.
pub(crate) const USER: &str = "robot:hunter2";

async fn admit(request: Request, next: Next) -> Response {
    let wanted = format!("Basic {}", STANDARD.encode(USER));
    let given = request.headers().get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
    if given == Some(&wanted) {
        return next.run(request).await;
    }
    let asks = [(header::WWW_AUTHENTICATE, "Basic realm=\"images\"")];
    (
        StatusCode::UNAUTHORIZED,
        asks,
        r#"{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}"#,
    )
        .into_response()
}

/// Serves on a free port.
fn serve(routes: Router) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, routes).await.unwrap();
        });
    });
    port
}

/// The blobs by digest, and the manifests by the names of images.
#[derive(Default)]
struct Blobs {
    by_digest: HashMap<String, (&'static str, Bytes)>,
    /// The digests of manifests by the last part of an image's name.
    manifests: HashMap<String, String>,
    /// The digest of the layer that arrives slowly.
    slow: String,
}

/// The parts of the server share this.
type Shared = Arc<Mutex<Blobs>>;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn routes() -> Router {
    Router::new()
        .route("/v2/", get(|| async { "{}" }))
        .route("/v2/{*path}", get(answer))
        .with_state(images().clone())
}

fn images() -> &'static Shared {
    static IMAGES: OnceLock<Shared> = OnceLock::new();
    IMAGES.get_or_init(Shared::default)
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

    /// The digest of an image's manifest, which is made with the first question; `None` if there is no such image.
    fn manifest(&mut self, name: &str) -> Option<String> {
        if let Some(known) = self.manifests.get(name) {
            return Some(known.clone());
        }
        let Contents { layers, settings } = Contents::of(name)?;
        let layers: Vec<_> = layers.into_iter().map(|layer| self.add(LAYER, layer)).collect();
        let digests: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture, "os": "linux", "config": settings,
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let config = self.add(CONFIG, config.to_string().into());
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        let manifest = self.add(MANIFEST, manifest.to_string().into());
        if name == SLOW {
            self.slow = digests.last().and_then(Value::as_str).unwrap().to_owned();
        }
        let digest = manifest["digest"].as_str().unwrap().to_owned();
        self.manifests.insert(name.to_owned(), digest.clone());
        Some(digest)
    }
}

/// The contents of an image.
struct Contents {
    layers: Vec<Vec<u8>>,
    settings: Value,
}

impl Contents {
    /// The contents of the image with this last part of its name, whatever its registry and its tag are.
    fn of(name: &str) -> Option<Self> {
        let mut settings = json!({"Env": ["PATH=/bin"]});
        let own = match name {
            "busybox" | "alpine" => None,
            "bash" => Some(programs::bash()),
            "python" => Some(programs::python()),
            // The results of Perl depend on its release.
            "perl" => Some(programs::script("bin/perl", "echo perl \"$@\"")),
            "report" => {
                settings = json!({
                    "Env": ["PATH=/bin"], "Entrypoint": ["/bin/report"], "Cmd": ["nothing"], "User": "1000",
                    "WorkingDir": "/srv",
                });
                Some(programs::script("bin/report", "echo \"report of $*, by $(id -u) in $(pwd)\""))
            }
            QUICK | PLAIN | SLOW => Some(own_layer(name)),
            _ => return None,
        };
        Some(Self {
            layers: [Some(engine::busybox_archive()), own].into_iter().flatten().collect(),
            settings,
        })
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

/// Answers with a manifest, `NAME/manifests/REFERENCE`, or another blob, `NAME/blobs/DIGEST`.
async fn answer(State(blobs): State<Shared>, Path(path): Path<String>) -> Response {
    // Making an image takes a while, and the tests have nothing else to do meanwhile.
    let mut blobs = blobs.lock().unwrap();
    let mut parts = path.rsplitn(3, '/');
    let [Some(reference), Some(kind), Some(name)] = [parts.next(), parts.next(), parts.next()] else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let is_tag = kind == "manifests" && !reference.contains(':');
    let digest = match is_tag {
        true => blobs.manifest(name.rsplit('/').next().unwrap_or_default()),
        false => Some(reference.to_owned()),
    };
    let found = digest.and_then(|digest| {
        let (media_type, bytes) = blobs.by_digest.get(&digest)?.clone();
        Some((digest, media_type, bytes))
    });
    let Some((digest, media_type, bytes)) = found else { return StatusCode::NOT_FOUND.into_response() };
    let is_slow = digest == blobs.slow;
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CONTENT_LENGTH, bytes.len().to_string()),
        (header::HeaderName::from_static("docker-content-digest"), digest),
    ];
    let body = if is_slow { slowly(bytes) } else { Body::from(bytes) };
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
