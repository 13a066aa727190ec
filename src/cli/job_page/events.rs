//! The Events of a Job.
//!
//! Users who create Events choose how many there are, and how long their texts are. So they are read one by one, and only
//! short forms of the newest stay.

use std::cmp::Reverse;

use futures::{Stream, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::refusal;
use crate::cli::event_view::EventView;
use crate::cli::lists::views;
use crate::job::short_text::{short, short_word};
use crate::telemetry::http::{JobKey, LiveRefusal};

/// Most Events that are shown.
const SHOWN: usize = 100;

/// The newest Events about the Job, the newest first.
pub(super) async fn read(client: &Client, key: &JobKey) -> Result<Value, LiveRefusal> {
    let api: Api<Event> = Api::namespaced(client.clone(), &key.namespace);
    let about = format!("involvedObject.kind=Job,involvedObject.name={}", key.name);
    let shown = newest(views(api, &ListParams::default().fields(&about))).await.map_err(refusal)?;
    Ok(json!(shown))
}

/// An Event as it is shown.
#[derive(Debug, PartialEq, Serialize)]
struct ShownEvent {
    at: Option<Timestamp>,
    #[serde(rename = "type")]
    type_: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    count: Option<i32>,
}

impl From<EventView> for ShownEvent {
    fn from(event: EventView) -> Self {
        Self {
            at: event.seen_at(),
            count: event.count(),
            type_: event.type_.map(|text| short_word(&text).into_owned()),
            reason: event.reason.map(|text| short_word(&text).into_owned()),
            message: event.message.map(|text| short(&text).into_owned()),
        }
    }
}

/// The newest of these, the newest first. Twice as many are held at most.
async fn newest(events: impl Stream<Item = kube::Result<EventView>>) -> kube::Result<Vec<ShownEvent>> {
    let mut events = std::pin::pin!(events);
    let mut kept: Vec<ShownEvent> = Vec::new();
    while let Some(event) = events.try_next().await? {
        kept.push(event.into());
        if kept.len() >= 2 * SHOWN {
            cut(&mut kept);
        }
    }
    cut(&mut kept);
    Ok(kept)
}

fn cut(events: &mut Vec<ShownEvent>) {
    events.sort_by_key(|event| Reverse(event.at));
    events.truncate(SHOWN);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use futures::{StreamExt as _, stream};

    use super::*;
    use crate::cli::lists::tests::answering;
    use crate::job::short_text::SHORT;

    /// A list of 500 long Events in a mixed order, which is made while it is read.
    #[tokio::test]
    async fn the_newest_events_are_shown_and_their_texts_are_short() {
        let second = |number: i64| Timestamp::from_second(number * 137 % 500).unwrap();
        let event = move |number: i64| {
            let long = "x".repeat(100_000);
            let event = json!({"lastTimestamp": second(number), "message": long, "reason": long, "count": 3});
            Bytes::from(format!("{}{event}", if number == 0 { "" } else { "," }))
        };
        let begin = stream::iter([Bytes::from(r#"{"metadata":{"resourceVersion":"7"},"items":["#)]);
        let events = begin.chain(stream::iter(0..500).map(event)).chain(stream::iter([Bytes::from("]}")]));
        let key = JobKey { namespace: "ml".into(), name: "train".into() };
        let shown = read(&answering(events), &key).await.unwrap();
        let shown = shown.as_array().unwrap();
        let times: Vec<Timestamp> =
            shown.iter().map(|event| event["at"].as_str().unwrap().parse().unwrap()).collect();
        let expected: Vec<_> =
            (400..500).rev().map(|second| Timestamp::from_second(second).unwrap()).collect();
        assert_eq!(times, expected);
        let message = shown[0]["message"].as_str().unwrap();
        assert!(message.len() <= SHORT && message.ends_with('…') && shown[0]["count"] == 3);
    }
}
