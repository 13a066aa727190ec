//! The Events of a Job.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::refusal;
use crate::telemetry::http::{JobKey, LiveRefusal};

/// Most Events that are read.
const MOST: u32 = 500;
/// Most Events that are shown.
const SHOWN: usize = 100;

/// The newest Events about the Job, the newest first.
pub(super) async fn read(client: &Client, key: &JobKey) -> Result<Value, LiveRefusal> {
    let events: Api<Event> = Api::namespaced(client.clone(), &key.namespace);
    let about = format!("involvedObject.kind=Job,involvedObject.name={}", key.name);
    let list = events.list(&ListParams::default().fields(&about).limit(MOST)).await.map_err(refusal)?;
    let mut events: Vec<_> = list.items.iter().map(|event| (seen_at(event), event)).collect();
    events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    events.truncate(SHOWN);
    let shown = events.into_iter().map(|(at, event)| {
        json!({
            "at": at,
            "type": event.type_,
            "reason": event.reason,
            "message": event.message,
            "count": event.series.as_ref().and_then(|series| series.count).or(event.count),
        })
    });
    Ok(Value::Array(shown.collect()))
}

/// When an Event last occurred.
fn seen_at(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [series.map(|time| time.0), event.last_timestamp.as_ref().map(|time| time.0)];
    times.into_iter().flatten().max().or(event.event_time.as_ref().map(|time| time.0))
}
