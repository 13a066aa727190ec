//! Requests of Kubernetes' e2e framework and of its tests of Jobs, as data.
// No test uses all of this.
#![allow(dead_code)]

pub(crate) mod conversation;
pub(crate) mod request;
