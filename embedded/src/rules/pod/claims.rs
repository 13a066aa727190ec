//! Claims of devices: `spec.resourceClaims` of a pod, and the references of its containers to them.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::super::field::{Causes, Path};
use super::super::names;
use super::{list, text};

/// The names of a pod's claims, well-formed or not.
pub(super) fn names_of(spec: &Value) -> BTreeSet<&str> {
    let names = list(&spec["resourceClaims"]).iter().map(|claim| text(&claim["name"]));
    names.filter(|name| !name.is_empty()).collect()
}

/// Checks the claims of a pod.
pub(super) fn validate_all(causes: &mut Causes, path: &Path<'_>, claims: &Value) {
    let mut known = HashSet::new();
    for (index, claim) in list(claims).iter().enumerate() {
        let path = path.index(index);
        match text(&claim["name"]) {
            "" => causes.required(&path.child("name"), ""),
            name if !known.insert(name) => causes.duplicate_str(&path.child("name"), name),
            name => causes.invalid_each(&path.child("name"), name, names::dns_label(name)),
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let refuse = |causes: &mut Causes, detail: &str| {
            causes.invalid_of(&path, "core.PodResourceClaim", claim, detail);
        };
        match sources.iter().filter(|source| !claim[**source].is_null()).count() {
            0 => refuse(causes, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => {}
            _ => refuse(
                causes,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for source in sources {
            if let Some(name) = claim[source].as_str() {
                causes.invalid_each(&path.child(source), name, names::dns_subdomain(name));
            }
        }
    }
}

/// Checks a container's references to claims of its pod. A reference is to one request of a claim, or to all.
pub(super) fn references(causes: &mut Causes, path: &Path<'_>, references: &Value, claims: &BTreeSet<&str>) {
    let mut known: HashSet<(&str, &str)> = HashSet::new();
    for (index, reference) in list(references).iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (text(&reference["name"]), text(&reference["request"]));
        if name.is_empty() {
            causes.required(&path, "");
            continue;
        }
        if known.contains(&(name, "")) {
            causes.duplicate_str(&path, name);
        } else {
            if !request.is_empty() {
                causes.invalid_each(&path.child("request"), request, names::dns_label(request));
            }
            let overlap = match request {
                "" => known.iter().filter(|(other, _)| *other == name).count(),
                _ => usize::from(known.contains(&(name, request))),
            };
            let shown = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            (0..overlap).for_each(|_| causes.duplicate_str(&path, &shown));
            known.insert((name, request));
        }
        if !claims.contains(name) {
            let names: Vec<&str> = claims.iter().copied().collect();
            let which = match &*names.join(", ") {
                "" => " which is empty".to_owned(),
                names => format!(": {names}"),
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{which}");
            causes.not_found_because(&path, name, &detail);
        }
    }
}
