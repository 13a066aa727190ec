//! Generates `definitions.json` from the schemas of `k8s-openapi`:
//!
//! `YARDMASTER_UPDATE=1 cargo test -p yardmaster-embedded --features api-schema schema_is_current`

#![allow(clippy::unwrap_used)]

use k8s_openapi::api::{authentication, authorization, batch, coordination, core, events, rbac, scheduling};
use k8s_openapi::apimachinery::pkg::apis::meta;
use schemars::SchemaGenerator;

macro_rules! definitions_of {
    ($($kind:ty),* $(,)?) => {{
        let mut generator = SchemaGenerator::default();
        $(generator.subschema_for::<$kind>();)*
        generator.definitions().clone()
    }};
}

#[test]
fn schema_is_current() {
    let definitions = definitions_of![
        batch::v1::Job,
        batch::v1::CronJob,
        core::v1::Pod,
        core::v1::Namespace,
        core::v1::Node,
        core::v1::PersistentVolumeClaim,
        core::v1::ResourceQuota,
        core::v1::LimitRange,
        core::v1::ConfigMap,
        core::v1::Secret,
        core::v1::Service,
        core::v1::ServiceAccount,
        core::v1::Event,
        core::v1::Binding,
        events::v1::Event,
        coordination::v1::Lease,
        authentication::v1::SelfSubjectReview,
        authentication::v1::TokenReview,
        authorization::v1::LocalSubjectAccessReview,
        authorization::v1::SelfSubjectAccessReview,
        authorization::v1::SubjectAccessReview,
        rbac::v1::ClusterRole,
        rbac::v1::ClusterRoleBinding,
        rbac::v1::Role,
        rbac::v1::RoleBinding,
        scheduling::v1::PriorityClass,
        scheduling::v1alpha2::Workload,
        scheduling::v1alpha2::PodGroup,
        meta::v1::DeleteOptions,
    ];
    // With a line per field, diffs between versions are readable.
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    serde::Serialize::serialize(&definitions, &mut serializer).unwrap();
    text.push(b'\n');
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules/schema/definitions.json");
    if std::env::var_os("YARDMASTER_UPDATE").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    assert!(text == std::fs::read(file).unwrap(), "definitions.json is not current");
}
