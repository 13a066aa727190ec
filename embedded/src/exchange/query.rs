//! Query parameters, with the semantics of Kubernetes.

use crate::error::ApiError;

/// The parameters of a request. If one is repeated, the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part of the URL after `?`.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        Self(form_urlencoded::parse(text.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// A parameter that is present and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A text parameter, empty if absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A boolean that may be absent. Every value except `false` and `0` is true, even an empty one.
    pub(crate) fn option(&self, name: &str) -> Option<bool> {
        self.raw(name).map(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// A boolean that is false if absent.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.option(name).unwrap_or(false)
    }

    /// An integer.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
        })
    }

    /// Whether this is a dry run. The caller's validation refuses values other than `All`.
    pub(crate) fn dry_run(&self) -> bool {
        self.get("dryRun") == Some("All")
    }

    /// Encodes all parameters.
    pub(crate) fn encode(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }
}
