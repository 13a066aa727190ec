//! The rights that one rule of a role gives.

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

    /// The rule of everything that has a group.
    pub(super) fn of_all_objects() -> Self {
        let all = || vec![ALL.to_owned()];
        Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() }
    }

    /// The rule of all paths without objects.
    pub(super) fn of_all_paths() -> Self {
        Self { verbs: vec![ALL.to_owned()], non_resource_urls: vec![ALL.to_owned()], ..Self::default() }
    }

    /// Whether the rule allows a request.
    pub(super) fn allows(&self, request: &Attributes) -> bool {
        match &request.target {
            Target::Path(path) => self.covers_path(&request.verb, path),
            Target::Objects { group, resource, subresource, name, .. } => {
                self.covers_part(&request.verb, group, (resource, subresource), Some(name))
            }
        }
    }

    /// How many rights the rule gives: a verb on a resource of a group, or on a path.
    pub(super) fn number_of_rights(&self) -> usize {
        let lists = [&self.api_groups, &self.resources].map(Vec::len);
        let objects = lists.into_iter().fold(self.resource_names.len().max(1), usize::saturating_mul);
        objects.saturating_add(self.non_resource_urls.len()).saturating_mul(self.verbs.len())
    }

    /// The group, resource and name of each object that the rule is about; without a name, it is about all.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
        let names = self.resource_names.iter().map(|name| Some(name.as_str()));
        let names: Vec<_> = if self.resource_names.is_empty() { vec![None] } else { names.collect() };
        self.api_groups.iter().flat_map(move |group| {
            let names = names.clone();
            self.resources.iter().flat_map(move |resource| {
                names.clone().into_iter().map(move |name| (group.as_str(), resource.as_str(), name))
            })
        })
    }

    /// Whether the rule gives a verb on a resource of another rule, such as `pods/log` or `*`.
    pub(super) fn covers_objects(&self, verb: &str, group: &str, resource: &str, name: Option<&str>) -> bool {
        self.covers_part(verb, group, resource.split_once('/').unwrap_or((resource, "")), name)
    }

    /// Whether the rule gives a verb on a path, or on a URL of another rule.
    pub(super) fn covers_path(&self, verb: &str, path: &str) -> bool {
        has(&self.verbs, verb) && self.non_resource_urls.iter().any(|url| covers(url, path))
    }

    fn covers_part(
        &self,
        verb: &str,
        group: &str,
        (resource, subresource): (&str, &str),
        name: Option<&str>,
    ) -> bool {
        let is_named = |name: &str| self.resource_names.iter().any(|own| own == name);
        has(&self.verbs, verb)
            && has(&self.api_groups, group)
            && self.resources.iter().any(|own| is_of(own, resource, subresource))
            && (self.resource_names.is_empty() || name.is_some_and(is_named))
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
