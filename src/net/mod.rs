//! How connections to other hosts are made: limits on time, and proxies.
//!
//! | module | purpose |
//! |---|---|
//! | [`proxy`] | which proxy leads to a host, as a setting or the environment says |
//! | [`connector`] | TCP connections, straight or through a proxy, that notice when the other side is gone |

pub mod connector;
pub mod proxy;
