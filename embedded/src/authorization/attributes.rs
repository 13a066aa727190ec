//! The intention of a request: its verb, and the objects or the path that it is about.

use std::fmt;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::resources::Resource;

/// Subresources of namespaces, which look like collections in a namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// The attributes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The verb, such as `list`; the HTTP method in small letters for a path without objects.
    pub(crate) verb: String,
    /// The objects or the path of the request.
    pub(crate) target: Target,
}

/// The subject of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Objects. Texts that do not apply are empty.
    Objects {
        /// API group.
        group: String,
        /// Plural, such as `pods`.
        resource: String,
        /// Subresource, such as `status`.
        subresource: String,
        /// Namespace; empty for cluster-scoped kinds and for all namespaces.
        namespace: String,
        /// Name; empty for a collection.
        name: String,
    },
    /// A path without objects, such as `/version`.
    Path(String),
}

impl Attributes {
    /// The attributes of an HTTP request. The path need not be one that the server serves.
    pub(crate) fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        Self::of_objects(method, path, query).unwrap_or_else(|| Self {
            verb: method.as_str().to_ascii_lowercase(),
            target: Target::Path(path.to_owned()),
        })
    }

    fn of_objects(method: &Method, path: &str, query: Option<&str>) -> Option<Self> {
        let parts: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, path) = match parts.as_slice() {
            ["api", _, path @ ..] => ("", path),
            ["apis", group, _, path @ ..] => (*group, path),
            _ => return None,
        };
        let (watch_prefix, path) = match path {
            ["watch", path @ ..] => (true, path),
            path => (false, path),
        };
        let (namespace, path) = match path {
            [] => return None,
            ["namespaces", namespace, sub, ..] if !NAMESPACE_SUBRESOURCES.contains(sub) => {
                (*namespace, path.get(2..).unwrap_or_default())
            }
            ["namespaces", namespace, ..] => (*namespace, path),
            path => ("", path),
        };
        let part = |at: usize| path.get(at).copied().unwrap_or_default();
        let mut name = part(1).to_owned();
        let verb = if watch_prefix { "watch" } else { verb(method, name.is_empty(), query) };
        if name.is_empty() && matches!(verb, "list" | "watch") {
            name = name_in_selector(query).unwrap_or_default();
        }
        let (resource, subresource) = (part(0).to_owned(), part(2).to_owned());
        let (group, namespace) = (group.to_owned(), namespace.to_owned());
        let target = Target::Objects { group, resource, subresource, namespace, name };
        Some(Self { verb: verb.to_owned(), target })
    }

    /// The attributes of a request for an object of a kind. Texts that do not apply are empty.
    pub(crate) fn for_object(
        verb: &str,
        resource: &Resource,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Self {
        let target = Target::Objects {
            group: resource.group.to_owned(),
            resource: resource.plural.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Self { verb: verb.to_owned(), target }
    }
}

fn verb(method: &Method, collection: bool, query: Option<&str>) -> &'static str {
    match *method {
        Method::GET | Method::HEAD if !collection => "get",
        Method::GET | Method::HEAD if is_watch(query) => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn is_watch(query: Option<&str>) -> bool {
    parameter(query, "watch").is_some_and(|watch| !watch.eq_ignore_ascii_case("false") && watch != "0")
}

/// The only name that a field selector selects, if it selects one. Rules with `resourceNames` apply to it.
fn name_in_selector(query: Option<&str>) -> Option<String> {
    let selector = parameter(query, "fieldSelector")?;
    let name = selector.split(',').find_map(|requirement| {
        let value = requirement.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })?;
    let valid = !matches!(name, "" | "." | "..") && !name.contains(['/', '%']);
    valid.then(|| name.to_owned())
}

/// The refused deed, as in `cannot list resource "pods" in API group "" at the cluster scope`.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, resource, subresource, namespace) = match &self.target {
            Target::Path(path) => return write!(f, "{} path {path:?}", self.verb),
            Target::Objects { group, resource, subresource, namespace, .. } => {
                (group, resource, subresource, namespace)
            }
        };
        let resource =
            if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
        write!(f, "{} resource {resource:?} in API group {group:?} ", self.verb)?;
        if namespace.is_empty() {
            f.write_str("at the cluster scope")
        } else {
            write!(f, "in the namespace {namespace:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verb and target of a request in one text: `VERB GROUP RESOURCE SUBRESOURCE NAMESPACE NAME`.
    fn of(method: &str, path: &str) -> String {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let attributes = Attributes::of(&method.parse().unwrap_or(Method::TRACE), path, query);
        let texts = match &attributes.target {
            Target::Path(path) => vec![path],
            Target::Objects { group, resource, subresource, namespace, name } => {
                vec![group, resource, subresource, namespace, name]
            }
        };
        let shown = |text: &&String| if text.is_empty() { "-".to_owned() } else { (*text).clone() };
        format!("{} {}", attributes.verb, texts.iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn verbs_and_objects_follow_from_method_and_path() {
        for (method, path, wanted) in [
            ("GET", "/version", "get /version"),
            ("POST", "/healthz", "post /healthz"),
            ("GET", "/api/v1", "get /api/v1"),
            ("GET", "/apis/batch/v1", "get /apis/batch/v1"),
            ("GET", "/apis/batch", "get /apis/batch"),
            ("GET", "/api/v1/pods", "list - pods - - -"),
            ("GET", "/api/v1/pods?watch=true", "watch - pods - - -"),
            ("GET", "/api/v1/pods?watch=0", "list - pods - - -"),
            ("GET", "/api/v1/pods?watch", "watch - pods - - -"),
            ("GET", "/api/v1/watch/pods", "watch - pods - - -"),
            ("GET", "/api/v1/namespaces/n/pods", "list - pods - n -"),
            ("GET", "/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3Dp", "list - pods - n p"),
            ("GET", "/api/v1/namespaces/n/pods?fieldSelector=a=b,metadata.name==p", "list - pods - n p"),
            ("GET", "/api/v1/namespaces/n/pods?fieldSelector=metadata.name!=p", "list - pods - n -"),
            ("GET", "/api/v1/namespaces/n/pods/p", "get - pods - n p"),
            ("HEAD", "/api/v1/namespaces/n/pods/p", "get - pods - n p"),
            ("POST", "/api/v1/namespaces/n/pods", "create - pods - n -"),
            ("POST", "/api/v1/namespaces/n/pods/p/binding", "create - pods binding n p"),
            ("PUT", "/api/v1/namespaces/n/pods/p/status", "update - pods status n p"),
            ("PATCH", "/apis/batch/v1/namespaces/n/jobs/j/status", "patch batch jobs status n j"),
            ("DELETE", "/apis/batch/v1/namespaces/n/jobs/j", "delete batch jobs - n j"),
            ("DELETE", "/apis/batch/v1/namespaces/n/jobs", "deletecollection batch jobs - n -"),
            ("GET", "/api/v1/namespaces", "list - namespaces - - -"),
            ("GET", "/api/v1/namespaces/n", "get - namespaces - n n"),
            ("PUT", "/api/v1/namespaces/n/finalize", "update - namespaces finalize n n"),
            ("GET", "/apis/example.com/v1/widgets", "list example.com widgets - - -"),
        ] {
            assert_eq!(of(method, path), wanted, "{method} {path}");
        }
    }
}
