//! The API server's record of writes: client, request, result and time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use yardmaster_embedded::AuditRecord;

/// A write in the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Line {
    /// User-Agent of the client.
    pub(crate) agent: String,
    /// HTTP method.
    pub(crate) method: String,
    /// Path of the object or collection.
    pub(crate) path: String,
    /// Name of a created object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    /// HTTP status. 0 if the connection broke.
    pub(crate) code: u16,
    /// Time at which it was read, in microseconds since 1970.
    pub(crate) received: i64,
    /// Time at which it was answered, in microseconds since 1970.
    pub(crate) answered: i64,
}

impl Line {
    /// The line for a record.
    pub(crate) fn of(record: AuditRecord) -> Self {
        Self {
            agent: record.user_agent,
            method: record.method.to_string(),
            path: record.path,
            created: record.created,
            code: record.code,
            received: record.received.as_microsecond(),
            answered: record.answered.as_microsecond(),
        }
    }

    /// Resource, with its subresource, and method: `pods/status PATCH`.
    pub(crate) fn what(&self) -> String {
        let (resource, _, subresource) = self.parts();
        match subresource {
            Some(subresource) => format!("{resource}/{subresource} {}", self.method),
            None => format!("{resource} {}", self.method),
        }
    }

    /// Name of the object, if known.
    pub(crate) fn name(&self) -> Option<&str> {
        self.parts().1.or(self.created.as_deref())
    }

    /// Plural of the resource, name and subresource.
    fn parts(&self) -> (&str, Option<&str>, Option<&str>) {
        let mut parts = self.path.split('/').skip(1);
        // `api/v1` or `apis/GROUP/VERSION`.
        let before = if parts.next() == Some("apis") { 2 } else { 1 };
        let mut segments = parts.skip(before).peekable();
        let first = segments.next().unwrap_or_default();
        let mut own = segments.clone();
        let (name, second) = (own.next(), own.next());
        match (first, second) {
            // The namespace precedes the resource, unless it is the resource.
            ("namespaces", Some(resource)) => (resource, own.next(), own.next()),
            _ => (first, name, second),
        }
    }
}

/// The writes of one client.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Writes {
    /// Requested writes by resource and method.
    pub(crate) by_kind: BTreeMap<String, u64>,
    /// Writes by HTTP status.
    pub(crate) by_code: BTreeMap<u16, u64>,
}

impl Writes {
    /// Number of writes of this kind.
    pub(crate) fn of(&self, kind: &str) -> u64 {
        self.by_kind.get(kind).copied().unwrap_or_default()
    }

    /// Number of writes.
    pub(crate) fn total(&self) -> u64 {
        self.by_kind.values().sum()
    }

    /// Adds one.
    pub(crate) fn add(&mut self, kind: String, code: u16, count: u64) {
        *self.by_kind.entry(kind).or_default() += count;
        *self.by_code.entry(code).or_default() += count;
    }
}

/// Reads the record line by line.
pub(crate) fn read(file: &Path, mut take: impl FnMut(Line)) -> Result<()> {
    let context = || file.display().to_string();
    for line in BufReader::new(File::open(file).with_context(context)?).lines() {
        take(serde_json::from_str(&line?).with_context(context)?);
    }
    Ok(())
}

/// The writes of each client, by its User-Agent.
pub(crate) fn by_client(file: &Path) -> Result<BTreeMap<String, Writes>> {
    let mut clients: BTreeMap<String, Writes> = BTreeMap::new();
    read(file, |line| {
        let what = line.what();
        clients.entry(line.agent).or_default().add(what, line.code, 1);
    })?;
    Ok(clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_into_resource_and_name() {
        for (method, path, created, what, name) in [
            ("POST", "/api/v1/namespaces/n/pods", Some("p"), "pods POST", Some("p")),
            ("PATCH", "/api/v1/namespaces/n/pods/p/status", None, "pods/status PATCH", Some("p")),
            ("PATCH", "/apis/batch/v1/namespaces/n/jobs/j/status", None, "jobs/status PATCH", Some("j")),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", None, "leases PUT", Some("l")),
            ("POST", "/api/v1/namespaces", Some("n"), "namespaces POST", Some("n")),
            ("DELETE", "/api/v1/namespaces/n", None, "namespaces DELETE", Some("n")),
            ("PATCH", "/api/v1/nodes/x/status", None, "nodes/status PATCH", Some("x")),
        ] {
            let line = Line {
                agent: String::new(),
                method: method.into(),
                path: path.into(),
                created: created.map(Into::into),
                code: 200,
                received: 0,
                answered: 0,
            };
            assert_eq!((line.what().as_str(), line.name()), (what, name), "{path}");
        }
    }
}
