//! A listening port of the server: the names under which clients reach it, and the tokens that it takes.

use crate::host_names::HostNames;

/// The conditions of a port.
#[derive(Debug)]
pub(crate) struct Door {
    /// The names that requests may be addressed to.
    pub(crate) names: HostNames,
    /// The senders that it admits.
    pub(crate) admits: Admits,
}

/// The senders that a port admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admits {
    /// The owner, users, ServiceAccounts, and requests without a token as far as they may be made.
    Everybody,
    /// ServiceAccounts alone, since all containers of a network reach the port.
    Accounts,
}
