//! The selection of a watch, and its requests.

use bytes::Bytes;
use form_urlencoded::Serializer;
use http::{Request, header};

use crate::cluster::resource::Resource;

/// The objects of one resource to list and watch.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Their resource.
    pub resource: Resource,
    /// The only namespace, or `None` for all namespaces.
    pub namespace: Option<Box<str>>,
    /// `labelSelector`.
    pub labels: Option<Box<str>>,
    /// `fieldSelector`.
    pub fields: Option<Box<str>>,
}

impl Selection {
    /// All objects of a resource in the whole cluster.
    pub fn all(resource: Resource) -> Self {
        Self { resource, namespace: None, labels: None, fields: None }
    }

    /// Narrows the selection by a label selector.
    pub fn labelled(self, selector: impl Into<Box<str>>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// A GET of the selected objects with further parameters.
    pub(in crate::cluster) fn request(
        &self,
        parameters: &[(&str, &str)],
    ) -> Result<Request<Bytes>, http::Error> {
        let mut query = Serializer::new(String::new());
        let selectors = [("labelSelector", &self.labels), ("fieldSelector", &self.fields)];
        for (name, value) in selectors {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        for (name, value) in parameters {
            query.append_pair(name, value);
        }
        Request::get(format!("{}?{}", self.resource.path(self.namespace.as_deref()), query.finish()))
            .header(header::ACCEPT, "application/json")
            .body(Bytes::new())
    }
}
