//! Values as API servers store them, beyond the range in which they mean something.
//!
//! Kubernetes validates neither times nor most numbers of a status. A value out of range must make
//! neither its object nor a list unreadable: it is read as the nearest value in range.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::text::Text;

/// The first second of the year 1. API servers refuse a year before 0, also where they have stored one.
const FIRST_SECOND: i64 = -62_135_596_800;

/// The time this many seconds after the epoch.
pub(super) fn time_at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds.max(FIRST_SECOND)).unwrap_or(Timestamp::MAX)
}

/// A number of pods or restarts.
pub(super) fn count_of(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX })
}

/// Reads a time, or none.
pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Text<'de>>::deserialize(from)?;
    text.map(|text| time_of(&text)).transpose().map_err(D::Error::custom)
}

/// The time that a text means. API servers also store negative years, and years of more than four digits. An
/// offset can turn a year between 0 and 9999 into such a year.
///
/// # Errors
/// The text is no time.
pub(crate) fn time_of(text: &str) -> Result<Timestamp, jiff::Error> {
    match text.parse() {
        Ok(time) => Ok(Timestamp::max(time, time_at(FIRST_SECOND))),
        Err(_) if text.starts_with('-') => Ok(time_at(FIRST_SECOND)),
        Err(_) if text.starts_with(|first: char| first.is_ascii_digit()) => Ok(Timestamp::MAX),
        Err(error) => Err(error),
    }
}

/// Reads a number of pods or restarts.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(count_if_set(from)?.unwrap_or_default())
}

/// Reads a number of pods, or none.
pub(super) fn count_if_set<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    Ok(Option::deserialize(from)?.map(count_of))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::wire::{Decoder as _, JobDecoder, PodDecoder};

    const LATEST: &str = "9999-12-31T23:59:59Z";

    fn pod(time: &str, restarts: i64) -> Value {
        let ended = json!({"exitCode": 1, "startedAt": time, "finishedAt": time});
        let container = json!({"name": "c", "restartCount": restarts, "state": {"terminated": ended}});
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
        json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "creationTimestamp": time, "deletionTimestamp": time},
            "spec": {},
            "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
        })
    }

    fn job(time: &str, number: i64) -> Value {
        let failed =
            json!({"type": "Failed", "status": "True", "lastProbeTime": time, "lastTransitionTime": time});
        json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "creationTimestamp": time, "deletionTimestamp": time},
            "spec": {"template": {}},
            "status": {"startTime": time, "completionTime": time, "conditions": [failed], "active": number,
                "ready": number, "terminating": number, "succeeded": number, "failed": number},
        })
    }

    #[test]
    fn no_value_that_an_api_server_stores_makes_an_object_unreadable() {
        let years = [
            "-0001-12-31T12:00:00Z",
            "0000-01-01T00:00:00Z",
            "9999-12-30T22:00:00Z",
            "10000-01-01T11:59:59Z",
        ];
        for time in years.into_iter().chain([LATEST]) {
            for number in [i64::from(i32::MIN), -1, i64::from(i32::MAX), i64::MIN, i64::MAX] {
                let pod = pod(time, number).to_string();
                PodDecoder::new("f").decode(pod.as_bytes()).unwrap();
                let job = job(time, number).to_string();
                JobDecoder::new().decode(job.as_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn a_time_before_the_year_1_is_its_first_second() {
        for time in ["-0001-12-31T12:00:00Z", "0000-01-01T00:00:00Z", "0000-12-31T23:59:59Z"] {
            let read = PodDecoder::new("f").decode(pod(time, 0).to_string().as_bytes()).unwrap();
            assert_eq!(read.pod.created, time_at(FIRST_SECOND).into(), "{time}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_the_nearest_value() {
        let read = PodDecoder::new("f").decode(pod(LATEST, -1).to_string().as_bytes()).unwrap();
        assert_eq!((read.pod.restarts, read.pod.created), (0, Timestamp::MAX.into()));
        assert_eq!([i64::MIN, i64::MAX].map(time_at), [time_at(FIRST_SECOND), Timestamp::MAX]);
        assert_eq!([-1, 7, i64::MAX].map(count_of), [0, 7, u32::MAX]);
    }
}
