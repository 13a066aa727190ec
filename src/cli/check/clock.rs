//! How far this machine's clock is from the API server's.

use http::header;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};

use super::version::Answer;
use super::{CheckId, Finding};
use crate::cluster::transport::TransportError;

pub(super) const CHECK: CheckId = CheckId { group: "kubernetes", name: "clock" };

/// Largest difference that is no warning.
const TOLERATED: SignedDuration = SignedDuration::from_secs(2);

pub(super) fn evaluate(read: &Result<Answer, TransportError>) -> Finding {
    let Ok(answer) = read else { return Finding::skipped("the API server does not answer") };
    let date = answer.response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) else {
        return Finding::skipped("the API server does not send its time");
    };
    let skew = skew(date.timestamp(), answer.sent, answer.received);
    let seconds = skew.abs().as_secs_f64();
    let direction = if skew.is_negative() { "behind" } else { "ahead of" };
    if skew.abs() <= TOLERATED {
        return Finding::ok("this machine's clock agrees with the API server's");
    }
    Finding::warning(
        format!("the API server's clock is {seconds:.1} s {direction} this machine's"),
        "Check NTP on both. No Job is run wrongly for it, but deadlines, back-off and ages are off by as \
         much.",
    )
}

/// The least difference that explains the answer: the header has full seconds, and was written at some time
/// between request and answer. Positive if the server is ahead.
fn skew(date: Timestamp, sent: Timestamp, received: Timestamp) -> SignedDuration {
    let least = date.duration_since(received);
    let most = date.duration_since(sent) + SignedDuration::from_secs(1);
    SignedDuration::ZERO.clamp(least, most.max(least))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use http::Response;

    use super::*;
    use crate::cli::check::report::Status;

    #[test]
    fn a_difference_above_two_seconds_is_a_warning_with_its_size() {
        for (sent, received, status, part) in [
            ("12:00:00.5", "12:00:00.6", Status::Ok, ""),
            ("11:59:58.5", "12:00:00", Status::Ok, ""),
            // A slow answer says little.
            ("11:59:50", "12:00:09", Status::Ok, ""),
            ("12:00:02", "12:00:03", Status::Ok, ""),
            ("12:00:11", "12:00:11.5", Status::Warning, "10.0 s behind"),
            ("11:59:49", "11:59:55.5", Status::Warning, "4.5 s ahead of"),
        ] {
            let time = |text: &str| format!("2026-01-02T{text}Z").parse::<Timestamp>().unwrap();
            let response =
                Response::builder().header("date", "Fri, 02 Jan 2026 12:00:00 GMT").body(Bytes::new());
            let answer = Answer { sent: time(sent), received: time(received), response: response.unwrap() };
            let finding = evaluate(&Ok(answer));
            assert_eq!(finding.status, status, "{sent}: {}", finding.message);
            assert!(finding.message.contains(part), "{sent}: {}", finding.message);
        }
    }

    #[test]
    fn without_the_header_nothing_is_known() {
        let answer = Answer {
            sent: Timestamp::UNIX_EPOCH,
            received: Timestamp::UNIX_EPOCH,
            response: Response::new(Bytes::new()),
        };
        assert_eq!(evaluate(&Ok(answer)).status, Status::Skipped);
    }
}
