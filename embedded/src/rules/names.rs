//! The forms of names in Kubernetes (`k8s.io/apimachinery/pkg/util/validation`).
//!
//! Each check returns the reasons why a value does not have the form; none if it does.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_PATTERN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SEARCH_PATTERN: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const PATH_PATTERN: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";

fn is_label(value: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(value.bytes().next())
        && edge(value.bytes().last())
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_qualified_part(value: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric());
    edge(value.bytes().next())
        && edge(value.bytes().last())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn regex_error(text: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    format!("{text} (e.g. {}, regex used for validation is '{pattern}')", examples.join(",  or "))
}

/// RFC 1123 label: names of containers, volumes, namespaces.
pub(crate) fn dns_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if is_label(value) {
        return errors;
    }
    if value.split('.').all(is_label) {
        errors.push("must not contain dots".into());
    } else {
        let text = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                    and must start and end with an alphanumeric character";
        errors.push(regex_error(text, LABEL_PATTERN, &["my-name", "123-abc"]));
    }
    errors
}

/// RFC 1123 subdomain: names of most objects.
pub(crate) fn dns_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !value.split('.').all(is_label) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        errors.push(regex_error(text, SUBDOMAIN_PATTERN, &["example.com"]));
    }
    errors
}

/// A search path of DNS: a subdomain whose labels may contain underscores and begin with one.
pub(crate) fn dns_search(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    // A label ends in a letter or digit, and begins with one after at most one underscore.
    let is_part = |part: &str| is_label(&part.strip_prefix('_').unwrap_or(part).replace("_", "-"));
    if !value.split('.').all(is_part) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
                    and must start and end with an alphanumeric character";
        errors.push(regex_error(text, SEARCH_PATTERN, &["example.com"]));
    }
    errors
}

/// Names of headers of HTTP.
pub(crate) fn header_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
        errors.push(regex_error(text, "[-A-Za-z0-9]+", &["X-Header-Name"]));
    }
    errors
}

/// A name with an optional DNS prefix: keys of labels and annotations, condition types, finalizers.
pub(crate) fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let examples = ["MyName", "my.name", "123-abc"];
    let form = "must consist of alphanumeric characters, '-', '_' or '.', \
                and must start and end with an alphanumeric character";
    let mut parts = value.split('/');
    let (name, prefix) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (name, None),
        (Some(prefix), Some(name), None) => (name, Some(prefix)),
        _ => {
            let text = format!("a qualified name {form}");
            let with_prefix = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![regex_error(&text, QUALIFIED_PATTERN, &examples) + with_prefix];
        }
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            errors.push("prefix part must be non-empty".into());
        } else {
            errors.extend(dns_subdomain(prefix).into_iter().map(|error| format!("prefix part {error}")));
        }
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_qualified_part(name) {
        errors.push(regex_error(&format!("name part {form}"), QUALIFIED_PATTERN, &examples));
    }
    errors
}

/// The value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        let text = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                    and must start and end with an alphanumeric character";
        let pattern = format!("({QUALIFIED_PATTERN})?");
        errors.push(regex_error(text, &pattern, &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// The reasons why a value is not a path with a domain (`acme.io/foo`), each with the invalid part.
pub(crate) fn domain_prefixed_path(value: &str) -> Vec<(&str, String)> {
    let Some((domain, path)) =
        value.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return vec![(value, "must be a domain-prefixed path (such as \"acme.io/foo\")".into())];
    };
    let mut errors: Vec<_> = dns_subdomain(domain).into_iter().map(|error| (domain, error)).collect();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || br"/-._~%!$&'()*+,;=:".contains(&b);
    if !path.bytes().all(allowed) {
        errors.push((path, format!("Invalid path (regex used for validation is '{PATH_PATTERN}')")));
    }
    errors
}

/// Names of environment variables: printable characters except '='.
pub(crate) fn environment_variable(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() || !value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        errors.push("a valid environment variable name must consist only of printable ASCII characters other than '='".into());
    }
    errors
}

/// Names of ports: at most 15 letters, digits and dashes.
pub(crate) fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push("must be no more than 15 characters".into());
    }
    if !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}

/// Keys of config maps and secrets.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(allowed) {
        let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_error(text, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    if value == "." || value == ".." {
        errors.push(format!("must not be '{value}'"));
    } else if value.starts_with("..") {
        errors.push("must not start with '..'".into());
    }
    errors
}

/// Names that are valid in a URL path: the rule of kinds without a stricter one (`ValidatePathSegmentName`).
pub(crate) fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    ['/', '%'].iter().filter(|c| value.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}
