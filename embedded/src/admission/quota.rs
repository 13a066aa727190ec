//! Resource quotas on the number of pods, enforced when a pod is created.
//!
//! Usage rises with every admitted pod and is never recalculated, as in a cluster without a running quota
//! controller.

use http::StatusCode;
use serde_json::Value;

use crate::error::ApiError;
use crate::object::{self, meta};
use crate::resources::{self, Resource};
use crate::rules::Subresource;
use crate::server::Server;
use crate::verbs::{Writer, update};

/// Names under which a quota limits pods.
const POD_COUNTS: &[&str] = &["pods", "count/pods"];

/// Charges a new pod to the quotas of its namespace, or refuses it. A dry run charges nothing.
pub(crate) fn admit(
    server: &Server,
    resource: &Resource,
    object: &Value,
    dry_run: bool,
) -> Result<(), ApiError> {
    let Some(quotas) = resources::stored("resourcequotas") else { return Ok(()) };
    let namespace = meta(object, "namespace");
    let writer = Writer { dry_run, ..Writer::internal(server, "kube-apiserver") };
    let prefix = format!("{namespace}/");
    let Ok(page) = server.table(quotas).page(&prefix, None, None, None, |_| true) else { return Ok(()) };
    for quota in page.items {
        let key = object::key(Some(namespace), &quota.header.name);
        let charged = update::modify(server, quotas, &key, Subresource::Status, writer, |quota| {
            charge(resource, meta(object, "name"), quota.clone())
        });
        match charged {
            Err(error) if error.code != StatusCode::NOT_FOUND => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn charge(resource: &Resource, pod: &str, mut quota: Value) -> Result<Value, ApiError> {
    for name in POD_COUNTS {
        let Some(hard) = count(&quota["status"]["hard"][*name]) else { continue };
        let used = count(&quota["status"]["used"][*name]).unwrap_or(0);
        if used >= hard {
            let why = format!(
                "exceeded quota: {}, requested: {name}=1, used: {name}={used}, limited: {name}={hard}",
                meta(&quota, "name")
            );
            return Err(ApiError::forbidden(resource, pod, &why));
        }
        quota["status"]["used"][*name] = (used + 1).to_string().into();
    }
    Ok(quota)
}

fn count(quantity: &Value) -> Option<i64> {
    match quantity {
        Value::String(text) => text.parse().ok(),
        number => number.as_i64(),
    }
}
