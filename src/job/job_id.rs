//! The identity of a Job, and the only answer to the question whose a pod is.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::uid::{Uid, UidHasher};
use crate::mutants::{Mutant, is};

/// A map keyed by Job.
pub type JobMap<T> = HashMap<JobId, T, UidHasher>;
/// A set of Jobs.
pub type JobSet = HashSet<JobId, UidHasher>;

/// Longest name of an object in Kubernetes: a DNS subdomain (RFC 1123).
const MAX_NAME: usize = 253;
/// Longest UID that is believed, in bytes. API servers give 36.
const MAX_UID: usize = 128;

/// Namespace, name and UID of a Job, together.
///
/// # Whose is it The author of a pod chooses the owner references and labels that name a Job: its name, its
/// UID, both, or those of another's Job. The namespace is the one thing that the API server vouches for. So
/// a pod is a Job's under two conditions: its controller reference is of kind `Job` of `batch/v1`, and the
/// identity that it [claims](Self::claimed) equals the Job's. All tables of pods and Jobs are keyed by this
/// type: a reference with another's UID finds nothing but itself.
///
/// Kubernetes' garbage collector compares the same four: namespace, kind, name and UID.
#[derive(Clone, PartialOrd, Ord)]
pub struct JobId(Arc<Parts>);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Parts {
    uid: Uid,
    namespace: Arc<str>,
    name: Arc<str>,
}

/// The one function that decides whose a pod is.
impl PartialEq for JobId {
    fn eq(&self, other: &Self) -> bool {
        match is(Mutant::OwnershipByUid) {
            false => Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0,
            true => self.0.uid == other.0.uid,
        }
    }
}

impl Eq for JobId {}

/// All parts are hashed: an author who gives many Jobs one UID must not make a table slow.
impl Hash for JobId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match is(Mutant::OwnershipByUid) {
            false => self.0.hash(state),
            true => self.0.uid.hash(state),
        }
    }
}

impl JobId {
    /// The identity of a Job as the API server shows it.
    pub fn new(namespace: Arc<str>, name: Arc<str>, uid: Uid) -> Self {
        Self(Arc::new(Parts { uid, namespace, name }))
    }

    /// The identity that an object in `namespace` claims for its Job. `None` if no Job can have this name or UID: such a
    /// Job need not be looked for.
    pub fn claimed(namespace: &Arc<str>, name: &str, uid: &str) -> Option<Self> {
        let is_uid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let has_uid = !uid.is_empty() && uid.len() <= MAX_UID && uid.bytes().all(is_uid);
        (has_uid && is_subdomain(name)).then(|| Self::new(namespace.clone(), name.into(), uid.into()))
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> &Arc<str> {
        &self.0.namespace
    }

    /// `metadata.name`.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// `metadata.uid`. Alone it proves nothing about a pod: see [`JobId`].
    pub fn uid(&self) -> &Uid {
        &self.0.uid
    }
}

/// Whether a text is a DNS subdomain of RFC 1123, as names of Jobs are.
pub fn is_subdomain(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = part.as_bytes();
        bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge)
            && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_part)
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace(), self.name(), self.uid())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The Job of this name and UID in the namespace `n`, as tests make them.
#[cfg(test)]
impl From<&str> for JobId {
    fn from(name: &str) -> Self {
        Self::new("n".into(), name.into(), name.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claimed(namespace: &str, name: &str, uid: &str) -> Option<JobId> {
        JobId::claimed(&namespace.into(), name, uid)
    }

    #[test]
    fn a_claim_is_a_jobs_only_if_namespace_name_and_uid_agree() {
        let job = JobId::new("victim".into(), "train".into(), "u-1".into());
        for (namespace, name, uid, is_its) in [
            ("victim", "train", "u-1", true),
            ("evil", "train", "u-1", false),
            ("victim", "other", "u-1", false),
            ("victim", "train", "u-2", false),
        ] {
            assert_eq!(claimed(namespace, name, uid).unwrap() == job, is_its, "{namespace}/{name} {uid}");
        }
    }

    #[test]
    fn a_name_or_uid_that_no_job_can_have_is_no_job() {
        let longest = "a".repeat(MAX_NAME);
        for name in ["a", "pi-with-timeout", "a.b-c.9", "0", &*longest] {
            assert!(claimed("n", name, "u").is_some(), "{name}");
        }
        let too_long = "a".repeat(MAX_NAME + 1);
        let hostile = [
            "?watch=1&n=1",
            "?n=1",
            "../pods/x",
            "%2e%2e",
            "a/b",
            "a#b",
            "a b",
            "A",
            "-a",
            "a-",
            "a..b",
            ".",
        ];
        for name in hostile.into_iter().chain(["", "é", "a\u{202e}b", &*too_long]) {
            assert!(claimed("n", name, "u").is_none(), "{name}");
        }
        let long_uid = "u".repeat(MAX_UID + 1);
        for uid in ["", "ü", "a b", "a\n2026 WARN", "a\u{1b}[2J", &*long_uid] {
            assert!(claimed("n", "a", uid).is_none(), "{uid}");
        }
    }
}
