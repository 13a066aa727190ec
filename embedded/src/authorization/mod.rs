//! The rights of users: role-based access control (`rbac.authorization.k8s.io/v1`), as kube-apiserver decides it.
//!
//! | file | concept |
//! |---|---|
//! | `user` | who sends a request |
//! | `attributes` | what a request wants to do |
//! | `rule` | what one rule of a role allows |
//! | `policy` | all roles and bindings: whether a user may do something, and by which binding |
//! | `escalation` | the rights that a role gives and that its author lacks |
//! | `defaults` | the roles and bindings of a new cluster |
//! | `authorizer` | the policy as the store has it now, and a record of refusals |
//!
//! All but `authorizer` are pure functions. Requests of the server's owner skip them. As in Kubernetes,
//! rights only add up: no rule takes a right away.
//!
//! In one thing this differs from a real cluster. The rules of an aggregated ClusterRole are collected when
//! they are evaluated, and are not written into the ClusterRole.

mod attributes;
mod authorizer;
mod defaults;
mod escalation;
mod policy;
#[cfg(test)]
mod properties;
mod rule;
mod user;

pub(crate) use attributes::{Attributes, Target};
pub(crate) use authorizer::{Access, Authorizer};
pub use authorizer::{Denial, DenialSink, Rbac};
pub(crate) use defaults::objects as default_objects;
pub use user::User;
