//! Objects of Kubernetes as text: YAML and JSON, read as kubectl reads them, with the place of every field.
//!
//! | file | what it decides |
//! |---|---|
//! | `source` | which characters the bytes are, and where a line begins |
//! | `stream` | where a document ends, and whether it is JSON or YAML |
//! | `json`, `yaml` | the syntax of one document |
//! | `building` | anchors, merge keys, repeated keys, and how much aliases may add |
//! | `scalar` | the value of a word: `1e+06`, `on`, `0644`, `!!int "3"` |
//! | `tags`, `colons` | what libyaml must not see |
//! | `edits` | where places of a changed text were |
//! | `node` | the tree that all of them make, and the way to a field |
//! | `template` | the Job that a CronJob's template describes |
//!
//! kubectl's YAML is version 1.1 as libyaml and Go's `yaml.v2` understand it, so the syntax is libyaml's here, too.
//! A reader of version 1.2 refuses files that kubectl takes, and takes `on` for a text.

mod building;
mod colons;
mod edits;
mod json;
mod node;
mod scalar;
mod source;
mod stream;
mod tags;
mod template;
mod wording;
mod yaml;

pub use node::{Content, Entry, Node, Repeated};
pub use source::{Position, Source};
pub use stream::value;
pub use template::job_of_template;

/// The text is neither YAML nor JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// Where in the text, in bytes: see [`Source::position`].
    pub at: usize,
    /// The error, in one line.
    pub message: String,
}

impl SyntaxError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// Maximum number of maps and lists within each other. Kubernetes' own objects have about 20.
const DEPTH_MAX: usize = 127;

/// A document is nested too deeply.
fn too_deep(at: usize) -> SyntaxError {
    SyntaxError::new(at, format!("more than {DEPTH_MAX} maps and lists within each other"))
}
