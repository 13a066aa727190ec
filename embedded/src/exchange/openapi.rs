//! `/openapi/v3`, generated once because clients fetch megabytes of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use crate::resources::{RESOURCES, Resource};
use crate::rules::openapi::{self, Served};

/// The documents of a server.
#[derive(Default)]
pub(crate) struct Documents {
    /// The response to `/openapi/v3`.
    pub(crate) index: Value,
    /// Documents by the path below it, such as `apis/batch/v1`.
    pub(crate) by_path: BTreeMap<String, Bytes>,
}

impl Documents {
    /// Generates the documents of all kinds that are served.
    pub(crate) fn new(serves: impl Fn(&Resource) -> bool) -> Self {
        let served: Vec<Served<'static>> = RESOURCES
            .iter()
            .filter(|resource| serves(resource))
            .map(|resource| Served {
                group: resource.group,
                version: resource.version,
                kind: resource.kind,
                plural: resource.plural,
                namespaced: resource.namespaced,
                status: resource.subresource("status").is_some(),
            })
            .collect();
        let index = openapi::index(&served);
        let paths = index["paths"].as_object();
        let by_path = paths
            .into_iter()
            .flatten()
            .filter_map(|(path, _)| Some((path.clone(), openapi::document(path, &served)?)))
            .collect();
        Self { index, by_path }
    }
}
