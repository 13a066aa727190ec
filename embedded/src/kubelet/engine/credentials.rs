//! The user that pulls an image. A registry knows the pod by its Secrets, or the user of this machine by the
//! configuration of Docker.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use docker_credential::DockerCredential;
use serde::Deserialize;

/// The registry of images whose names say no other.
const DOCKER_HUB: &str = "docker.io";
/// Under this name Docker keeps the credentials of its own registry.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// The contents of a Secret of the type `kubernetes.io/dockerconfigjson`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubelet) struct PullSecret {
    auths: BTreeMap<String, Login>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Login {
    username: Option<String>,
    password: Option<String>,
    /// User and password, encoded.
    auth: Option<String>,
    identitytoken: Option<String>,
}

impl PullSecret {
    /// Reads the contents, also of the older type `kubernetes.io/dockercfg`, which lack the outermost field; `None` if they are
    /// neither.
    pub(in crate::kubelet) fn read(data: &BTreeMap<String, Vec<u8>>) -> Option<Self> {
        if let Some(json) = data.get(".dockerconfigjson") {
            return serde_json::from_slice(json).ok();
        }
        let auths = serde_json::from_slice(data.get(".dockercfg")?).ok()?;
        Some(Self { auths })
    }
}

/// As whom to pull an image; `None` without a name.
pub(super) async fn find(image: &str, secrets: &[PullSecret]) -> Option<DockerCredentials> {
    let logins = || secrets.iter().flat_map(|secret| &secret.auths);
    let fitting = logins().filter(|(registry, _)| is_for(registry, image));
    // An entry for a part of the registry is meant more than one for all of it.
    let of_secret = fitting.max_by_key(|(registry, _)| registry.len()).map(|(_, login)| login.credentials());
    if of_secret.is_some() {
        return of_secret;
    }
    let host = registry_of(image).to_owned();
    // A helper is a program, which may ask somewhere.
    tokio::task::spawn_blocking(move || of_this_user(&host)).await.ok().flatten()
}

fn of_this_user(host: &str) -> Option<DockerCredentials> {
    let key = if host == DOCKER_HUB { DOCKER_HUB_KEY } else { host };
    let found = match docker_credential::get_credential(key).ok()? {
        DockerCredential::UsernamePassword(username, password) => DockerCredentials {
            username: Some(username),
            password: Some(password),
            ..DockerCredentials::default()
        },
        DockerCredential::IdentityToken(token) => {
            DockerCredentials { identitytoken: Some(token), ..DockerCredentials::default() }
        }
    };
    Some(DockerCredentials { serveraddress: Some(host.to_owned()), ..found })
}

impl Login {
    fn credentials(&self) -> DockerCredentials {
        let encoded = self.auth.as_ref().and_then(|auth| STANDARD.decode(auth.trim()).ok());
        let encoded = encoded.and_then(|pair| String::from_utf8(pair).ok());
        let (user, password) = match encoded.as_deref().and_then(|pair| pair.split_once(':')) {
            Some((user, password)) => (Some(user.to_owned()), Some(password.to_owned())),
            None => (self.username.clone(), self.password.clone()),
        };
        DockerCredentials {
            username: user,
            password,
            identitytoken: self.identitytoken.clone(),
            ..DockerCredentials::default()
        }
    }
}

/// The registry that an image is in.
fn registry_of(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => DOCKER_HUB,
    }
}

/// Whether a login is for the registry of an image, or for a part of it with this image.
fn is_for(login: &str, image: &str) -> bool {
    let login = login.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let host = registry_of(image);
    if host == DOCKER_HUB {
        return matches!(
            login,
            "docker.io" | "index.docker.io" | "index.docker.io/v1" | "registry-1.docker.io"
        );
    }
    let rest = image.strip_prefix(login);
    login == host
        || rest.is_some_and(|rest| login.starts_with(host) && rest.starts_with(['/', ':', '@']))
        || login.strip_suffix("/v1").or_else(|| login.strip_suffix("/v2")) == Some(host)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_login_is_for_its_registry_or_a_part_of_it() {
        for (login, image, is_its) in [
            ("registry.example", "registry.example/a/b:1", true),
            ("https://registry.example/v2/", "registry.example/a", true),
            ("registry.example/a", "registry.example/a/b", true),
            ("registry.example/a", "registry.example/ab", false),
            ("registry.example:5000", "registry.example/a", false),
            ("https://index.docker.io/v1/", "busybox", true),
            ("docker.io", "library/busybox:1", true),
            ("registry.example", "busybox", false),
            ("localhost:5000", "localhost:5000/a", true),
        ] {
            assert_eq!(is_for(login, image), is_its, "{login} {image}");
        }
    }

    #[tokio::test]
    async fn both_types_of_secrets_are_read() {
        let pair = STANDARD.encode("me:pass:word");
        let config = format!(r#"{{"auths": {{"a.example": {{"auth": "{pair}"}}}}}}"#);
        let old = r#"{"b.example": {"username": "you", "password": "p"}}"#;
        let secret = |key: &str, text: &str| [(key.to_owned(), text.as_bytes().to_vec())].into();
        let secrets = [
            PullSecret::read(&secret(".dockerconfigjson", &config)).unwrap(),
            PullSecret::read(&secret(".dockercfg", old)).unwrap(),
        ];
        let found = find("a.example/x", &secrets).await.unwrap();
        assert_eq!((found.username.as_deref(), found.password.as_deref()), (Some("me"), Some("pass:word")));
        let found = find("b.example/x", &secrets).await.unwrap();
        assert_eq!(found.username.as_deref(), Some("you"));
        assert!(PullSecret::read(&secret("other", "{}")).is_none());
    }
}
