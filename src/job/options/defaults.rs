//! Options that Jobs have which do not say otherwise.

use std::str::FromStr;

use super::{PREFIX, TABLE};

/// An option that Jobs have unless they set it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultOption {
    /// The annotation, with its prefix.
    pub key: Box<str>,
    /// Its value, which has the form of the option.
    pub value: Box<str>,
}

/// Why a text is no default of an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultError {
    /// There is no equals sign.
    #[error("NAME=VALUE is expected")]
    NoValue,
    /// No option has this name.
    #[error("no option is called {0:?}")]
    Unknown(Box<str>),
    /// The value has another form.
    #[error("{name}: {expected} is expected")]
    Form {
        /// The option.
        name: &'static str,
        /// The expected form.
        expected: &'static str,
    },
}

impl FromStr for DefaultOption {
    type Err = DefaultError;

    /// Reads `NAME=VALUE`, with the name of an option without its prefix.
    fn from_str(text: &str) -> Result<Self, DefaultError> {
        let (name, value) = text.split_once('=').ok_or(DefaultError::NoValue)?;
        let row = TABLE.iter().find(|row| row.name == name);
        let row =
            row.ok_or_else(|| DefaultError::Unknown(name.chars().take(64).collect::<String>().into()))?;
        if !row.accepts(value) {
            return Err(DefaultError::Form { name: row.name, expected: row.expected });
        }
        Ok(Self { key: format!("{PREFIX}{name}").into(), value: value.into() })
    }
}
