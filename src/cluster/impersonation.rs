//! The user to act as, from a kubeconfig: the part that kube leaves out.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue};
use kube::config::AuthInfo;

/// The headers for `as-uid` and `as-user-extra`. kube sends those for `as` and `as-groups`.
pub(super) fn headers(auth: &AuthInfo) -> Result<Vec<(HeaderName, HeaderValue)>, &'static str> {
    let extra = auth.impersonate_user_extra.iter().flatten();
    let groups = auth.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty());
    let uid = auth.impersonate_uid.as_ref().filter(|uid| !uid.is_empty());
    if auth.impersonate.is_none() && (uid.is_some() || groups || extra.clone().next().is_some()) {
        return Err("kubeconfig: as-uid, as-groups and as-user-extra need a user to act as (as)");
    }
    let mut headers = Vec::new();
    if let Some(uid) = uid {
        let value = HeaderValue::from_str(uid).map_err(|_| "kubeconfig: as-uid must be visible ASCII")?;
        headers.push((HeaderName::from_static("impersonate-uid"), value));
    }
    for (key, values) in extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", escaped(key)));
        let name = name.map_err(|_| "kubeconfig: a key of as-user-extra is too long")?;
        for value in values {
            let value = HeaderValue::from_str(value);
            let value = value.map_err(|_| "kubeconfig: values of as-user-extra must be visible ASCII")?;
            headers.push((name.clone(), value));
        }
    }
    Ok(headers)
}

/// A key with everything escaped that the name of a header cannot hold. API servers unescape it.
fn escaped(key: &str) -> String {
    let mut name = String::new();
    for byte in key.to_ascii_lowercase().bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            name.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _written = write!(name, "%{byte:02X}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sent(auth: serde_json::Value) -> Result<Vec<String>, &'static str> {
        let auth: AuthInfo = serde_json::from_value(auth).unwrap();
        let shown = |(name, value): (HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        Ok(headers(&auth)?.into_iter().map(shown).collect())
    }

    #[test]
    fn the_uid_and_extra_values_become_headers() {
        let auth = serde_json::json!({
            "as": "jane", "as-uid": "u-1", "as-user-extra": {"example.com/Scopes": ["view", "edit 100%"]},
        });
        let expected = [
            "impersonate-uid: u-1",
            "impersonate-extra-example.com%2fscopes: view",
            "impersonate-extra-example.com%2fscopes: edit 100%",
        ];
        assert_eq!(sent(auth).unwrap(), expected);
        assert_eq!(sent(serde_json::json!({})).unwrap(), [""; 0]);
    }

    #[test]
    fn they_need_a_user_and_values_that_headers_can_hold() {
        for auth in [
            serde_json::json!({"as-uid": "u-1"}),
            serde_json::json!({"as-groups": ["g"]}),
            serde_json::json!({"as-user-extra": {"scopes": ["view"]}}),
            serde_json::json!({"as": "jane", "as-uid": "u\n1"}),
            serde_json::json!({"as": "jane", "as-user-extra": {"scopes": ["v\n"]}}),
        ] {
            assert!(sent(auth.clone()).is_err(), "{auth}");
        }
    }
}
