//! Time from the end of a fault until pods are created as fast as before it.

use serde_json::{Value, json};

use crate::faults::TimedFault;
use crate::report::{Point, round};

/// Seconds before a fault over which the normal rate is measured.
const BEFORE: f64 = 5.0;
/// Seconds over which the rate after a fault is measured.
const OVER: f64 = 1.0;
/// Share of the normal rate that counts as recovered.
const RECOVERED: f64 = 0.9;

/// The effect of each fault with a duration on the rate of creations: pods per second before and during it,
/// and the time of recovery. The time is in seconds from the end of the fault; `null`: not before the end of
/// the load.
pub(crate) fn findings(faults: &[TimedFault], series: &[Point]) -> Value {
    let lasting = faults.iter().filter(|fault| fault.r#for.is_positive());
    let found: Vec<Value> = lasting
        .map(|fault| {
            let start = fault.at.as_secs_f64();
            let end = start + fault.r#for.as_secs_f64();
            let before = rate(series, (start - BEFORE).max(0.0), start);
            json!({
                "fault": fault,
                "pods_per_s_before": before.map(round),
                "pods_per_s_during": rate(series, start, end).map(round),
                "recovered_after_s": before.and_then(|before| recovery(series, end, before)).map(round),
            })
        })
        .collect();
    if found.is_empty() { Value::Null } else { json!({"faults": found}) }
}

/// Pods created per second between two times, from the nearest points around them.
fn rate(series: &[Point], from: f64, to: f64) -> Option<f64> {
    let first = series.iter().rev().find(|point| point.t <= from).or(series.first())?;
    let last = series.iter().find(|point| point.t >= to)?;
    let time = last.t - first.t;
    (time > 0.0).then(|| last.pods.saturating_sub(first.pods) as f64 / time)
}

fn recovery(series: &[Point], end: f64, before: f64) -> Option<f64> {
    let back = |point: &&Point| {
        rate(series, point.t, point.t + OVER).is_some_and(|after| after >= RECOVERED * before)
    };
    Some(series.iter().filter(|point| point.t >= end).find(back)?.t - end)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::faults::FaultKind;

    /// A point every 0.5 s. The rate is 100 pods/s, but 10 pods/s from second 10 to `back_at`.
    fn series(back_at: f64) -> Vec<Point> {
        let mut pods = 0;
        let looks = (0..60).map(|look| f64::from(look) / 2.0);
        let point = |t: f64| {
            let point = Point { t, pods, ..Point::default() };
            pods += if (10.0..back_at).contains(&t) { 5 } else { 50 };
            point
        };
        looks.map(point).collect()
    }

    #[test]
    fn recovery_is_measured_from_the_end_of_the_fault() {
        let fault = TimedFault {
            at: SignedDuration::from_secs(10),
            r#for: SignedDuration::from_secs(5),
            user_agent: String::new(),
            methods: Vec::new(),
            path: String::new(),
            every: 2,
            kind: FaultKind::Refuse(429),
        };
        for (back_at, expected) in [(17.0, json!(2.0)), (15.0, json!(0.0)), (99.0, json!(null))] {
            let found = findings(std::slice::from_ref(&fault), &series(back_at));
            let found = &found["faults"][0];
            assert_eq!(
                (&found["pods_per_s_before"], &found["pods_per_s_during"]),
                (&json!(100.0), &json!(10.0))
            );
            assert_eq!(found["recovered_after_s"], expected, "back at {back_at}");
        }
        assert_eq!(findings(&[], &series(15.0)), Value::Null);
    }
}
