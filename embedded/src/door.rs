//! A listening port of the server: the names under which clients reach it, and the tokens that it takes.

use crate::host_names::HostNames;

/// What a port asks of requests.
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
    /// ServiceAccounts alone: the port is open to containers, and to whoever reaches their network.
    Accounts,
}
