//! Tokens of ServiceAccounts: JSON Web Tokens with the claims of Kubernetes, which the server itself signs.
//!
//! A token names its account, and the pod that it is bound to, by UID. It is valid until its time is over,
//! and no longer than its account and its pod exist. Kubernetes also binds tokens to Secrets and Nodes, which
//! no part of this cluster asks for.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::Token;
use crate::authorization::User;
use crate::object::{self, Object};
use crate::resources;
use crate::store::Store;
use crate::time::seconds_after;

/// The issuer of all tokens, and their audience unless a request names others: the API server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The header of every token. No token says how it is verified: one with another header is foreign.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Seconds that a token stays valid after its end, and before its beginning, since clocks differ. Kubernetes
/// allows as much.
const LEEWAY: i64 = 60;

const ACCOUNTS: &str = "serviceaccounts";
const PODS: &str = "pods";

/// The key that signs the tokens of one server.
pub(crate) struct AccountKey(hmac::Key);

/// The claims of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenClaims {
    /// The audiences.
    pub(crate) aud: Vec<String>,
    /// The end, in seconds since 1970.
    pub(crate) exp: i64,
    /// The time of issue.
    pub(crate) iat: i64,
    /// The issuer.
    pub(crate) iss: String,
    /// The identity of the token itself.
    pub(crate) jti: String,
    /// The objects that the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub(crate) bound: Bound,
    /// The beginning.
    pub(crate) nbf: i64,
    /// The name of the user.
    pub(crate) sub: String,
}

/// The objects that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    /// The namespace of the account and the pod.
    pub(crate) namespace: String,
    /// The node that the pod is assigned to, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    /// The pod, if the token ends with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    /// The account.
    pub(crate) serviceaccount: Reference,
}

/// A reference to one object: names are reused, UIDs are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// The name.
    pub(crate) name: String,
    /// The UID; empty for a node that has no object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// A valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The account as a user.
    pub(crate) user: User,
    /// The audiences of the token among those that were asked for.
    pub(crate) audiences: Vec<String>,
}

/// Why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidAccountToken {
    /// This server has not signed it.
    #[error("invalid bearer token")]
    Foreign,
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    Early,
    /// It is for others.
    #[error("token audiences are not among the target audiences")]
    OtherAudience,
    /// The account was deleted, or made again.
    #[error("service account has been deleted")]
    AccountGone,
    /// The pod was deleted, or made again.
    #[error("service account token has been invalidated")]
    PodGone,
}

impl AccountKey {
    /// A key from a secret text.
    pub(crate) fn new(secret: &Token) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()))
    }

    /// The token with these claims.
    pub(crate) fn sign(&self, claims: &TokenClaims) -> String {
        // TokenClaims are texts and numbers, so they are JSON.
        let claims = serde_json::to_vec(claims).unwrap_or_default();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// The account of a token that is valid now for one of these audiences.
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: &[&str],
        store: &Store,
        now: Timestamp,
    ) -> Result<Account, InvalidAccountToken> {
        let claims = self.read(token).ok_or(InvalidAccountToken::Foreign)?;
        claims.check_time(now)?;
        let is_asked = |audience: &&String| audiences.contains(&audience.as_str());
        let audiences: Vec<String> = claims.aud.iter().filter(is_asked).cloned().collect();
        if audiences.is_empty() {
            return Err(InvalidAccountToken::OtherAudience);
        }
        let Bound { namespace, pod, serviceaccount, .. } = &claims.bound;
        if !serviceaccount.exists(store, ACCOUNTS, namespace, now) {
            return Err(InvalidAccountToken::AccountGone);
        }
        if pod.as_ref().is_some_and(|pod| !pod.exists(store, PODS, namespace, now)) {
            return Err(InvalidAccountToken::PodGone);
        }
        Ok(Account { user: claims.user(), audiences })
    }

    /// The claims of a token that this key has signed.
    fn read(&self, token: &str) -> Option<TokenClaims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, signed.as_bytes(), &signature).ok()?;
        if URL_SAFE_NO_PAD.decode(header).ok()? != HEADER.as_bytes() {
            return None;
        }
        let claims: TokenClaims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        (claims.iss == ISSUER).then_some(claims)
    }
}

impl TokenClaims {
    fn check_time(&self, now: Timestamp) -> Result<(), InvalidAccountToken> {
        let now = now.as_second();
        if now.saturating_sub(LEEWAY) > self.exp {
            return Err(InvalidAccountToken::Expired);
        }
        if now.saturating_add(LEEWAY) < self.nbf {
            return Err(InvalidAccountToken::Early);
        }
        Ok(())
    }

    fn user(&self) -> User {
        let Bound { namespace, node, pod, serviceaccount } = &self.bound;
        let mut user = User::service_account(namespace, &serviceaccount.name);
        user.uid = serviceaccount.uid.clone();
        let mut add = |name: &str, value: String| {
            if !value.is_empty() {
                user.extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value]);
            }
        };
        add("credential-id", format!("JTI={}", self.jti));
        for (kind, reference) in [("pod", pod), ("node", node)] {
            if let Some(Reference { name, uid }) = reference {
                add(&format!("{kind}-name"), name.clone());
                add(&format!("{kind}-uid"), uid.clone());
            }
        }
        user
    }
}

impl Reference {
    /// Whether the object is there, and was not to be gone a while ago.
    fn exists(&self, store: &Store, plural: &str, namespace: &str, now: Timestamp) -> bool {
        let key = object::key(Some(namespace), &self.name);
        let found = store.table(plural).and_then(|table| table.get(&key));
        found.is_some_and(|found| *found.header.uid == *self.uid && !is_overdue(&found, plural, now))
    }
}

/// Whether an object that is being deleted should be gone. Finalizers can hold it for ever.
fn is_overdue(object: &Object, plural: &str, now: Timestamp) -> bool {
    let Some(resource) = resources::stored(plural).filter(|_| object.header.deleting) else { return false };
    let deletion = object.decode(resource)["metadata"]["deletionTimestamp"].as_str().map(str::parse);
    // The server itself has written the time.
    deletion.and_then(Result::ok).is_some_and(|deletion: Timestamp| seconds_after(deletion, LEEWAY) < now)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::store::{Expect, HistoryLimits, NewVersion};

    fn now() -> Timestamp {
        Timestamp::from_second(1_767_225_600).unwrap()
    }

    fn claims() -> TokenClaims {
        let reference = |name: &str, uid: &str| Reference { name: name.into(), uid: uid.into() };
        TokenClaims {
            aud: vec![ISSUER.into(), "vault".into()],
            exp: now().as_second() + 600,
            iat: now().as_second(),
            iss: ISSUER.into(),
            jti: "j".into(),
            bound: Bound {
                namespace: "n".into(),
                node: Some(reference("worker", "")),
                pod: Some(reference("p", "pod-uid")),
                serviceaccount: reference("robot", "account-uid"),
            },
            nbf: now().as_second(),
            sub: "system:serviceaccount:n:robot".into(),
        }
    }

    /// A store with the account and the pod of the claims, changed by `change`.
    fn store(change: impl Fn(&str, &mut serde_json::Value)) -> Store {
        let store = Store::new(&resources::plurals(), HistoryLimits::default());
        for (plural, name, uid) in [(ACCOUNTS, "robot", "account-uid"), (PODS, "p", "pod-uid")] {
            let mut object = json!({"metadata": {"namespace": "n", "name": name, "uid": uid}});
            change(plural, &mut object);
            let (header, tail) = Object::encode(resources::stored(plural).unwrap(), object);
            let key = object::key(Some(&header.namespace), &header.name);
            store.table(plural).unwrap().put(&key, Expect::Absent, NewVersion { header, tail }).unwrap();
        }
        store
    }

    fn key(secret: &str) -> AccountKey {
        AccountKey::new(&Token::new(secret).unwrap())
    }

    fn verify(token: &str, store: &Store, seconds_later: i64) -> Result<Account, InvalidAccountToken> {
        key("secret").verify(token, &[ISSUER], store, seconds_after(now(), seconds_later))
    }

    #[test]
    fn a_token_is_its_account_as_a_user() {
        let token = key("secret").sign(&claims());
        let Account { user, audiences } = verify(&token, &store(|_, _| {}), 0).unwrap();
        assert_eq!(user.name, "system:serviceaccount:n:robot");
        assert_eq!(user.uid, "account-uid");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        assert_eq!(user.groups, groups);
        let extra =
            [("credential-id", "JTI=j"), ("node-name", "worker"), ("pod-name", "p"), ("pod-uid", "pod-uid")];
        let extra = extra
            .map(|(name, value)| (format!("authentication.kubernetes.io/{name}"), vec![value.to_owned()]));
        assert_eq!(user.extra, extra.into());
        assert_eq!(audiences, [ISSUER]);
    }

    #[test]
    fn a_token_is_for_its_audiences_alone() {
        let (store, token) = (store(|_, _| {}), key("secret").sign(&claims()));
        let audiences = |asked: &[&str]| {
            key("secret").verify(&token, asked, &store, now()).map(|account| account.audiences)
        };
        assert_eq!(audiences(&["vault", "others"]).unwrap(), ["vault"]);
        assert_eq!(audiences(&["others"]), Err(InvalidAccountToken::OtherAudience));
        let for_vault = key("secret").sign(&TokenClaims { aud: vec!["vault".into()], ..claims() });
        assert_eq!(verify(&for_vault, &store, 0), Err(InvalidAccountToken::OtherAudience));
    }

    #[test]
    fn a_token_has_its_time() {
        let (store, token) = (store(|_, _| {}), key("secret").sign(&claims()));
        for (later, valid) in [
            (-61, Err(InvalidAccountToken::Early)),
            (-60, Ok(())),
            (600, Ok(())),
            (660, Ok(())),
            (661, Err(InvalidAccountToken::Expired)),
            (i64::MAX, Err(InvalidAccountToken::Expired)),
        ] {
            assert_eq!(verify(&token, &store, later).map(drop), valid, "{later}");
        }
    }

    #[test]
    fn a_token_ends_with_its_account_and_its_pod() {
        let token = key("secret").sign(&claims());
        for (plural, refusal) in
            [(ACCOUNTS, InvalidAccountToken::AccountGone), (PODS, InvalidAccountToken::PodGone)]
        {
            let of_others = |field: &'static str| {
                move |changed: &str, object: &mut serde_json::Value| {
                    if changed == plural {
                        object["metadata"][field] = "other".into();
                    }
                }
            };
            for field in ["uid", "name", "namespace"] {
                assert_eq!(verify(&token, &store(of_others(field)), 0), Err(refusal), "{plural} {field}");
            }
            let deleted = store(|changed, object| {
                if changed == plural {
                    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z".into();
                }
            });
            assert!(verify(&token, &deleted, 90).is_ok(), "its deletion may not be known yet");
            assert_eq!(verify(&token, &deleted, 91), Err(refusal), "finalizers hold it");
        }
        let unbound = TokenClaims { bound: Bound { pod: None, ..claims().bound }, ..claims() };
        let without_pod = store(|plural, object| {
            if plural == PODS {
                object["metadata"]["uid"] = "other".into();
            }
        });
        assert!(verify(&key("secret").sign(&unbound), &without_pod, 0).is_ok());
    }

    #[test]
    fn only_the_key_of_the_server_signs() {
        let (store, token) = (store(|_, _| {}), key("secret").sign(&claims()));
        let foreign = key("another").sign(&claims());
        let (signed, _) = token.rsplit_once('.').unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let unsigned = format!("{}.{}.", encode(r#"{"alg":"none"}"#), parts[1]);
        let renamed = signed
            .replace(parts[1], &encode(&serde_json::to_string(&claims()).unwrap().replace("robot", "admin")));
        let forged = format!("{renamed}.{}", parts[2]);
        let other_header = format!("{}.{}", encode(r#"{"alg":"none"}"#), parts[1]);
        let signature = hmac::sign(&key("secret").0, other_header.as_bytes());
        let other_header = format!("{other_header}.{}", URL_SAFE_NO_PAD.encode(signature));
        let other_issuer = key("secret").sign(&TokenClaims { iss: "https://example.com".into(), ..claims() });
        let not_claims = {
            let signed = format!("{}.{}", parts[0], encode("[]"));
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key("secret").0, signed.as_bytes())))
        };
        for text in [
            &foreign,
            &unsigned,
            &forged,
            signed,
            &other_header,
            &other_issuer,
            &not_claims,
            "",
            "a",
            "a.b.c",
        ] {
            assert_eq!(verify(text, &store, 0), Err(InvalidAccountToken::Foreign), "{text}");
        }
        assert!(verify(&token, &store, 0).is_ok());
    }
}
