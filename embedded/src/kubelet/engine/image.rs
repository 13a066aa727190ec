//! Images: which pull policy asks for a pull, and how one that fails is repeated, as a kubelet does it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::TryStreamExt as _;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::super::pulls::{PullObserver, Watched};
use super::super::setup::SetupError;
use super::layers::Layers;
use super::{Engine, PullSecret, credentials, is_absent, said};

/// The pause after the first pull that failed. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two pulls.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Reasons of containers that wait for their image, as a kubelet gives them.
const PULL_FAILED: &str = "ErrImagePull";
const BACK_OFF: &str = "ImagePullBackOff";
const NEVER_PULLED: &str = "ErrImageNeverPull";
const INVALID_NAME: &str = "InvalidImageName";
const INSPECT_FAILED: &str = "ImageInspectError";

/// An image that the engine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kubelet) struct LocalImage {
    /// The ID, which is a digest.
    pub(in crate::kubelet) id: String,
    /// The user of its containers; empty for root.
    pub(super) user: String,
    /// Whether it says what to run.
    pub(super) has_command: bool,
    /// The signal that asks its containers to stop, unless that is SIGTERM.
    pub(super) stop_signal: Option<String>,
    /// Bytes of its layers.
    pub(in crate::kubelet) size: i64,
}

/// An image that a pod asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::kubelet) struct ImageRequest<'a> {
    /// The name as the pod has it.
    pub(in crate::kubelet) name: &'a str,
    /// The pull policy; `None` for the usual one.
    pub(in crate::kubelet) policy: Option<&'a str>,
}

/// Whether the engine has an image that may be used.
#[derive(Debug)]
pub(in crate::kubelet) enum Found {
    /// It has.
    Present(LocalImage),
    /// It has to pull it first.
    Absent(Pull),
}

/// The right to pull an image: no other pull of it runs meanwhile.
#[derive(Debug)]
pub(in crate::kubelet) struct Pull {
    engine: Engine,
    /// The name as the pod has it.
    given: String,
    /// The name with a tag or a digest.
    name: String,
    pulls: OwnedMutexGuard<Pulls>,
}

/// An image after its pull.
#[derive(Debug)]
pub(in crate::kubelet) struct Pulled {
    pub(in crate::kubelet) image: LocalImage,
    /// How long the pull took.
    pub(in crate::kubelet) took: Duration,
}

/// The pulls of all images. An image is pulled once at a time, for all that wait for it.
#[derive(Debug, Default)]
pub(super) struct Images(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Pulls>>>>);

/// The knowledge of the pulls of one image.
#[derive(Debug, Default)]
struct Pulls {
    failed: u32,
    /// When the next may begin, and why the last one failed.
    pause: Option<(Instant, String)>,
}

impl Pulls {
    fn has_failed(&mut self, why: &str) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failed.min(8)).min(LONGEST_PAUSE);
        self.failed += 1;
        self.pause = Some((Instant::now() + pause, why.to_owned()));
    }

    /// Why the last pull failed, while the pause after it lasts.
    fn pausing(&self) -> Option<&str> {
        let (end, why) = self.pause.as_ref()?;
        (Instant::now() < *end).then_some(why)
    }
}

impl Engine {
    /// Looks for an image. If its policy asks for a pull, waits until that may begin.
    ///
    /// # Errors
    /// If it is not there and must not be pulled now. All reasons may pass, as they may for a kubelet.
    pub(in crate::kubelet) async fn find_image(
        &self,
        ImageRequest { name: given, policy }: ImageRequest<'_>,
    ) -> Result<Found, SetupError> {
        if !is_name(given) {
            return Err(invalid(given));
        }
        let name = with_tag(given);
        let policy = policy.unwrap_or("IfNotPresent");
        if policy != "Always" {
            match self.inspect(&name).await? {
                Some(found) => return Ok(Found::Present(found)),
                None if policy == "Never" => {
                    let message =
                        format!("Container image {name:?} is not present with pull policy of Never");
                    return Err(SetupError::waiting(NEVER_PULLED, message));
                }
                None => {}
            }
        }
        let pulls = Arc::clone(self.0.images.0.lock().entry(name.clone()).or_default());
        let pulls = pulls.lock_owned().await;
        // Another container may have waited for the same pull.
        if policy != "Always"
            && let Some(found) = self.inspect(&name).await?
        {
            return Ok(Found::Present(found));
        }
        if let Some(why) = pulls.pausing() {
            let message = format!("{}{why}", backing_off(given));
            return Err(SetupError::waiting(BACK_OFF, message));
        }
        Ok(Found::Absent(Pull { engine: self.clone(), given: given.to_owned(), name, pulls }))
    }

    /// The image with this name, if the engine has it.
    async fn inspect(&self, name: &str) -> Result<Option<LocalImage>, SetupError> {
        let found = match self.0.docker.inspect_image(name).await {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => {
                let why = said(&error);
                let message = format!("Failed to inspect image {name:?}: {why}");
                return Err(if is_no_name(&why) {
                    invalid(name)
                } else {
                    SetupError::waiting(INSPECT_FAILED, message)
                });
            }
        };
        let config = found.config.unwrap_or_default();
        let is_given = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
        Ok(Some(LocalImage {
            id: found.id.unwrap_or_default(),
            has_command: is_given(&config.entrypoint) || is_given(&config.cmd),
            user: config.user.unwrap_or_default(),
            stop_signal: config.stop_signal.filter(|signal| !signal.is_empty()),
            size: found.size.unwrap_or_default(),
        }))
    }
}

impl Pull {
    /// Pulls the image.
    ///
    /// # Errors
    /// If that fails, or if the image is not there afterwards.
    pub(in crate::kubelet) async fn run(
        mut self,
        secrets: &[PullSecret],
        observer: &dyn PullObserver,
    ) -> Result<Pulled, SetupError> {
        let begun = Instant::now();
        let failed = |why: String| SetupError::waiting(PULL_FAILED, why);
        if let Err(error) = self.fetch(secrets, observer).await {
            let why = said(&error);
            if is_no_name(&why) {
                return Err(invalid(&self.given));
            }
            self.pulls.has_failed(&why);
            return Err(failed(format!("Failed to pull image {:?}: {why}", self.given)));
        }
        let took = begun.elapsed();
        *self.pulls = Pulls::default();
        let image = self.engine.inspect(&self.name).await?;
        let image =
            image.ok_or_else(|| failed(format!("image {:?} was pulled, and is not there", self.name)))?;
        Ok(Pulled { image, took })
    }

    async fn fetch(&self, secrets: &[PullSecret], observer: &dyn PullObserver) -> Result<(), Error> {
        let credentials = credentials::find(&self.name, secrets).await;
        let options = CreateImageOptionsBuilder::default().from_image(&self.name).build();
        let watched = Watched::begin(observer, &self.given);
        let mut layers = Layers::default();
        let mut steps = self.engine.0.docker.create_image(Some(options), None, credentials);
        while let Some(step) = steps.try_next().await? {
            if let Some(size) = layers.apply(&step) {
                watched.progressed(size);
            }
        }
        Ok(())
    }
}

/// The beginning of the message of a container that waits until its image may be pulled again.
fn backing_off(name: &str) -> String {
    format!("Back-off pulling image {name:?}: {PULL_FAILED}: ")
}

/// The Events of a container that waits for its image: whether it is a Warning, its reason and its note. Returns `None`
/// for any other wait.
pub(in crate::kubelet) fn events_of_wait(
    reason: &str,
    message: &str,
) -> Option<[(bool, &'static str, String); 2]> {
    let cause = match reason {
        PULL_FAILED => (true, "Failed", message),
        BACK_OFF => {
            let (note, _) = message.split_once(&format!(": {PULL_FAILED}: ")).unwrap_or((message, ""));
            (false, "BackOff", note)
        }
        NEVER_PULLED => (true, NEVER_PULLED, message),
        INVALID_NAME | INSPECT_FAILED => (true, "InspectFailed", message),
        _ => return None,
    };
    Some([(cause.0, cause.1, cause.2.to_owned()), (true, "Failed", format!("Error: {reason}"))])
}

fn invalid(name: &str) -> SetupError {
    SetupError::waiting(INVALID_NAME, format!("couldn't parse image name {name:?}: invalid reference format"))
}

/// Whether an engine says this of a name that no image can have.
fn is_no_name(said: &str) -> bool {
    said.contains("invalid reference format")
}

/// Whether an image can have this name: parts in lower case, the first of which may be that of a host.
fn is_name(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or_default();
    let (parts, last) = name.rsplit_once('/').map_or((None, name), |(parts, last)| (Some(parts), last));
    let last = last.split(':').next().unwrap_or_default();
    let is_host = |part: &str| part == "localhost" || part.contains(['.', ':']);
    let is_part = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        !part.is_empty() && part.bytes().all(fits)
    };
    let mut parts = parts.into_iter().flat_map(|parts| parts.split('/'));
    parts.next().is_none_or(|first| is_host(first) || is_part(first)) && parts.all(is_part) && is_part(last)
}

/// The name of an image with a tag or a digest. Without both, an engine would pull all tags.
fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    if name.contains('@') || last.contains(':') { name.to_owned() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;
    use tokio::sync::oneshot;

    use super::super::test_engine::{at, request};
    use super::*;
    use crate::kubelet::pulls::Unobserved;

    #[tokio::test]
    async fn a_pull_that_is_given_up_ends_at_the_engine() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine");
        let listener = UnixListener::bind(&socket).unwrap();
        let (begins, begun) = oneshot::channel();
        let engine = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let line = request(&mut connection).await;
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"status\":\"Pulling\"}\n").await.unwrap();
            begins.send(line).unwrap();
            connection.read(&mut [0]).await
        });
        let asked = ImageRequest { name: "localhost/a", policy: Some("Always") };
        let Found::Absent(pull) = at(&socket).find_image(asked).await.unwrap() else { panic!("no pull") };
        tokio::select! {
            pulled = pull.run(&[], &Unobserved) => panic!("{pulled:?}"),
            line = begun => assert!(line.unwrap().contains("/images/create")),
        }
        let closed = tokio::time::timeout(Duration::from_secs(60), engine).await.unwrap().unwrap();
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }

    #[test]
    fn a_name_without_tag_and_digest_gets_the_usual_tag() {
        for (name, expected) in [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("host:5000/busybox", "host:5000/busybox:latest"),
            ("host:5000/a/busybox:1", "host:5000/a/busybox:1"),
            ("busybox@sha256:0", "busybox@sha256:0"),
        ] {
            assert_eq!(with_tag(name), expected);
        }
    }

    #[test]
    fn names_of_images_have_lower_case_and_no_empty_parts() {
        for (name, is_one) in [
            ("busybox", true),
            ("Host.example:5000/a/b:Tag", true),
            ("localhost/a@sha256:00", true),
            ("UPPER", false),
            ("a/UPPER:1", false),
            ("a//b", false),
            ("", false),
            ("/a", false),
        ] {
            assert_eq!(is_name(name), is_one, "{name:?}");
        }
    }

    #[test]
    fn a_wait_for_an_image_has_the_events_of_a_kubelet() {
        let message = format!("{}no route: to host", backing_off("a:1"));
        let expected = [
            (false, "BackOff", "Back-off pulling image \"a:1\"".to_owned()),
            (true, "Failed", "Error: ImagePullBackOff".to_owned()),
        ];
        assert_eq!(events_of_wait(BACK_OFF, &message), Some(expected));
        for (reason, event) in [
            (PULL_FAILED, "Failed"),
            (NEVER_PULLED, "ErrImageNeverPull"),
            (INVALID_NAME, "InspectFailed"),
            (INSPECT_FAILED, "InspectFailed"),
        ] {
            let [told, error] = events_of_wait(reason, "why: x").unwrap();
            assert_eq!(told, (true, event, "why: x".to_owned()));
            assert_eq!(error, (true, "Failed", format!("Error: {reason}")));
        }
        assert_eq!(events_of_wait("CreateContainerConfigError", "why"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pulls_that_fail_are_repeated_after_pauses_that_double_up_to_five_minutes() {
        let mut pulls = Pulls::default();
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            pulls.has_failed("no route");
            assert_eq!(pulls.pausing(), Some("no route"));
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert!(pulls.pausing().is_some(), "{seconds}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(pulls.pausing(), None, "{seconds}");
        }
    }
}
