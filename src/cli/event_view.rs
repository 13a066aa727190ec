//! The fields of Events that commands read.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde::Deserialize;

/// An Event with the fields that commands read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EventView {
    #[serde(rename = "type")]
    pub(super) type_: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    count: Option<i32>,
    last_timestamp: Option<Time>,
    event_time: Option<MicroTime>,
    series: Option<SeriesView>,
}

/// How often an Event has occurred, in the newer form.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeriesView {
    count: Option<i32>,
    last_observed_time: Option<MicroTime>,
}

impl EventView {
    /// When it last occurred.
    pub(super) fn seen_at(&self) -> Option<Timestamp> {
        let series = self.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let last = self.last_timestamp.as_ref().map(|time| time.0);
        series.map(|time| time.0).max(last).or(self.event_time.as_ref().map(|time| time.0))
    }

    /// How often it has occurred, if it says so.
    pub(super) fn count(&self) -> Option<i32> {
        self.series.as_ref().and_then(|series| series.count).or(self.count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_time_and_the_count_come_from_either_form() {
        let (early, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02.5Z");
        let series = json!({"count": 7, "lastObservedTime": late});
        for (event, seen, count) in [
            (json!({"eventTime": early}), Some(early), None),
            (json!({"eventTime": late, "lastTimestamp": early, "count": 2}), Some(early), Some(2)),
            (json!({"eventTime": early, "series": series, "count": 1}), Some(late), Some(7)),
            (json!({"lastTimestamp": null, "series": null}), None, None),
        ] {
            let view: EventView = serde_json::from_value(event).unwrap();
            let seen = seen.map(|text| text.parse().unwrap());
            assert_eq!((view.seen_at(), view.count()), (seen, count));
        }
    }
}
