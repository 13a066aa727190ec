//! The name of a Job on the command line.

use std::str::FromStr;

use futures::TryStreamExt as _;
use kube::Client;
use kube::api::ListParams;

use super::Failure;
use super::job_view::{JobView, all_jobs};
use super::lists::objects;
use super::namespace::parse_namespace;
use crate::job::job_id::is_subdomain;

/// Kinds that kubectl takes before the name of a Job.
const KINDS: [&str; 4] = ["job", "jobs", "job.batch", "jobs.batch"];
/// Most namespaces that are named.
const MOST: u32 = 5;

/// A Job as commands print it and as kubectl names it: `NAME`, `NAMESPACE/NAME` or `job/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobName {
    namespace: Option<String>,
    name: String,
}

impl FromStr for JobName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            None => (None, text),
            Some((kind, name)) if KINDS.contains(&kind) => (None, name),
            Some((namespace, name)) => (Some(parse_namespace(namespace)?), name),
        };
        if !is_subdomain(name) {
            return Err("expected NAME, NAMESPACE/NAME or job/NAME".to_owned());
        }
        Ok(Self { namespace, name: name.to_owned() })
    }
}

impl JobName {
    /// `metadata.name`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The namespace: that before the name or that of `--namespace`, else the default.
    ///
    /// # Errors
    ///
    /// If both are given and differ.
    pub(super) fn namespace(&self, flag: Option<&str>, default: &str) -> Result<String, Failure> {
        match (self.namespace.as_deref(), flag) {
            (Some(own), Some(flag)) if own != flag => {
                Err(Failure::bad_input(format!("{own}/{}: --namespace is {flag}", self.name)))
            }
            (own, flag) => Ok(own.or(flag).unwrap_or(default).to_owned()),
        }
    }
}

/// The error for a Job that does not exist. If Jobs of this name are in other namespaces, they are named.
pub(super) async fn not_found(client: &Client, namespace: &str, name: &str) -> anyhow::Error {
    let missing = format!("Job {namespace}/{name} not found");
    let same_name = ListParams::default().fields(&format!("metadata.name={name}")).limit(MOST);
    // Without the right to list all Jobs, the first half has to do.
    let found: Vec<JobView> = objects(all_jobs(client), &same_name).try_collect().await.unwrap_or_default();
    let namespaces: Vec<_> = found.into_iter().filter_map(|job| job.metadata.namespace).collect();
    match namespaces.as_slice() {
        [] => anyhow::anyhow!(missing),
        [only] => anyhow::anyhow!("{missing}; there is one in {only} (-n {only})"),
        several => anyhow::anyhow!("{missing}; there are some in {}", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(text: &str) -> JobName {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_accepted_as_they_are_printed() {
        for (text, namespace) in
            [("train", None), ("ml/train", Some("ml")), ("job/train", None), ("jobs.batch/train", None)]
        {
            let expected = JobName { namespace: namespace.map(Into::into), name: "train".into() };
            assert_eq!(parsed(text), expected, "{text}");
        }
        for text in ["", "/", "ml/", "/train", "a/b/c", "Train", "ML/train", "pod/a/b", "train?watch=1"] {
            assert!(text.parse::<JobName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_namespace_before_the_name_must_agree_with_the_flag() {
        let namespace = |text: &str, flag| parsed(text).namespace(flag, "default").ok();
        assert_eq!(namespace("train", None).as_deref(), Some("default"));
        assert_eq!(namespace("train", Some("ml")).as_deref(), Some("ml"));
        assert_eq!(namespace("ml/train", None).as_deref(), Some("ml"));
        assert_eq!(namespace("ml/train", Some("ml")).as_deref(), Some("ml"));
        assert_eq!(namespace("ml/train", Some("other")), None);
    }
}
