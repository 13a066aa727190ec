//! What one rule of a role allows.

use serde_json::Value;

use super::attributes::{Attributes, Target};

/// Everything: any verb, group, resource or path.
const ALL: &str = "*";

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) verbs: Vec<String>,
    pub(super) api_groups: Vec<String>,
    pub(super) resources: Vec<String>,
    /// Names that the rule is limited to; empty means any.
    pub(super) resource_names: Vec<String>,
    pub(super) non_resource_urls: Vec<String>,
}

impl Rule {
    /// The rules in `rules` of a role.
    pub(super) fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let texts = rule[field].as_array().into_iter().flatten();
            texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Self {
            verbs: texts("verbs"),
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            resource_names: texts("resourceNames"),
            non_resource_urls: texts("nonResourceURLs"),
        }
    }

    /// Whether the rule allows a request.
    pub(super) fn allows(&self, request: &Attributes) -> bool {
        has(&self.verbs, &request.verb)
            && match &request.target {
                Target::Path(path) => self.non_resource_urls.iter().any(|url| covers(url, path)),
                Target::Objects { group, resource, subresource, name, .. } => {
                    has(&self.api_groups, group)
                        && self.resources.iter().any(|own| is_of(own, resource, subresource))
                        && (self.resource_names.is_empty() || self.resource_names.contains(name))
                }
            }
    }
}

/// Whether a list has a text, or covers everything.
fn has(texts: &[String], wanted: &str) -> bool {
    texts.iter().any(|text| text == ALL || text == wanted)
}

/// Whether `RESOURCE`, `RESOURCE/SUBRESOURCE`, `*/SUBRESOURCE` or `*` covers a resource. A resource alone
/// does not cover its subresources.
fn is_of(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        _ if rule == ALL => true,
        None => rule == resource && subresource.is_empty(),
        Some((own, sub)) => !sub.is_empty() && sub == subresource && (own == ALL || own == resource),
    }
}

/// Whether a URL of a rule, which may end with `*`, covers a path.
fn covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with(ALL) && path.starts_with(url.trim_end_matches(ALL)))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;

    fn allows(rule: &Value, request: &str) -> bool {
        let (method, path) = request.split_once(' ').unwrap_or_default();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
        Rule::read(rule).allows(&Attributes::of(&method, path, query))
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let pods = |verbs: &str, resources: &str| json!({"apiGroups": [""], "resources": [resources], "verbs": [verbs]});
        let list = "GET /api/v1/namespaces/n/pods";
        let get = "GET /api/v1/namespaces/n/pods/p";
        let log = "GET /api/v1/namespaces/n/pods/p/log";
        let version = "GET /version";
        for (rule, allowed, refused) in [
            (pods("list", "pods"), &[list, "GET /api/v1/pods"][..], &[get, log, version][..]),
            (pods("*", "pods"), &[list, get, "POST /api/v1/namespaces/n/pods"], &[log, version]),
            (pods("get", "pods/log"), &[log], &[get, list]),
            (pods("get", "*/log"), &[log], &[get, "GET /api/v1/namespaces/n/pods/p/status"]),
            (
                pods("get", "*"),
                &[get, log, "GET /api/v1/nodes/n"],
                &["GET /apis/batch/v1/namespaces/n/jobs/j"],
            ),
            (
                json!({"apiGroups": ["*"], "resources": ["jobs", "pods"], "verbs": ["get", "list"]}),
                &[get, list, "GET /apis/batch/v1/jobs"],
                &[log, "GET /apis/batch/v1/jobs?watch=true"],
            ),
            (
                json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["*"]}),
                &[
                    get,
                    "DELETE /api/v1/namespaces/n/pods/p",
                    "GET /api/v1/pods?fieldSelector=metadata.name=p",
                ],
                &[list, "POST /api/v1/namespaces/n/pods", "GET /api/v1/namespaces/n/pods/q"],
            ),
            (
                json!({"nonResourceURLs": ["/version", "/healthz/*"], "verbs": ["get"]}),
                &[version, "GET /healthz/ping"],
                &["GET /healthz", "POST /version", "GET /versions", list],
            ),
            (json!({"nonResourceURLs": ["*"], "verbs": ["*"]}), &[version, "POST /x"], &[list]),
            (json!({"verbs": ["*"]}), &[], &[version, list]),
            (json!({"apiGroups": ["*"], "resources": ["*"], "verbs": null}), &[], &[version, list]),
        ] {
            for request in allowed {
                assert!(allows(&rule, request), "{rule} refuses {request}");
            }
            for request in refused {
                assert!(!allows(&rule, request), "{rule} allows {request}");
            }
        }
    }
}
