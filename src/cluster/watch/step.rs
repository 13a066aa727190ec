//! Watches whose position matters to their reader: it may go on from there with another selection.

use super::Change;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With a list.
    List,
    /// After this version, without a list. If the API server no longer has it, the watch ends.
    After(u64),
}

/// An item of a watch, with the watch's position after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The API server still has the version after which the watch was to begin: the following changes are
    /// complete.
    Resumed,
    /// A change.
    Change(Change<T>),
    /// All changes up to this version have been sent.
    Reached(u64),
}
