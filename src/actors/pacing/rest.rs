//! How long work of one kind rests that a tenant can ask for again and again: in proportion to the time that it took.

use std::time::Duration;

/// How often its time a work rests.
const TIMES: u32 = 10;
/// The longest rest.
const LONGEST: Duration = Duration::from_secs(2);

/// The rest after a work of this duration.
pub fn rest_after(work: Duration) -> Duration {
    (work * TIMES).min(LONGEST)
}
