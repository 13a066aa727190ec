//! Names of namespaces on the command line.

use crate::job::job_id::is_subdomain;

const LENGTH_MAX: usize = 63;

/// Checks the name of a namespace, before anything starts for it.
pub(super) fn parse_namespace(text: &str) -> Result<String, String> {
    let is_name = is_subdomain(text) && !text.contains('.') && text.len() <= LENGTH_MAX;
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        format!("a namespace has 1 to {LENGTH_MAX} lower case letters, digits and inner dashes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_label_of_dns() {
        for name in ["a", "0", "team-a", "a--b", &"x".repeat(LENGTH_MAX)] {
            assert_eq!(parse_namespace(name).as_deref(), Ok(name));
        }
        for name in ["", "A", "a.b", "a_b", "-a", "a-", "a b", "ä", &"x".repeat(LENGTH_MAX + 1)] {
            assert!(parse_namespace(name).is_err(), "{name:?}");
        }
    }
}
