#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The times of a schedule after another time.
fn times(schedule: &str, after: &str, zone: &TimeZone, count: usize) -> Vec<String> {
    let schedule = CronSchedule::parse(schedule).unwrap();
    let next = |after: &Timestamp| schedule.next(*after, zone);
    std::iter::successors(next(&time(after)), next).take(count).map(|time| time.to_string()).collect()
}

#[test]
fn schedules_come_when_their_fields_fit() {
    // 2026-01-01 is a Thursday.
    let cases: [(&str, &str, &[&str]); 20] = [
        ("* * * * *", "2026-01-01T00:00:00Z", &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
        ("* * * * *", "2026-01-01T00:00:59.5Z", &["2026-01-01T00:01:00Z"]),
        ("* * * * ?", "2026-01-01T00:00:00Z", &["2026-01-01T00:01:00Z"]),
        (
            "5,20-22/2 3 * * *",
            "2026-01-01T03:05:00Z",
            &["2026-01-01T03:20:00Z", "2026-01-01T03:22:00Z", "2026-01-02T03:05:00Z"],
        ),
        (
            "50/4 * * * *",
            "2026-01-01T00:00:00Z",
            &["2026-01-01T00:50:00Z", "2026-01-01T00:54:00Z", "2026-01-01T00:58:00Z", "2026-01-01T01:50:00Z"],
        ),
        (
            "0 */7 * * *",
            "2026-01-01T00:00:00Z",
            &["2026-01-01T07:00:00Z", "2026-01-01T14:00:00Z", "2026-01-01T21:00:00Z", "2026-01-02T00:00:00Z"],
        ),
        ("0 0 31 * *", "2026-01-31T00:00:00Z", &["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        ("0 0 * FEB mon", "2026-01-01T00:00:00Z", &["2026-02-02T00:00:00Z", "2026-02-09T00:00:00Z"]),
        // Either of two days, since neither is a star.
        (
            "0 0 13 * Fri",
            "2026-01-01T00:00:00Z",
            &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"],
        ),
        // Both, since one is a star or has one.
        ("0 0 13,* * Fri", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]),
        ("0 0 */1 * Fri", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]),
        // A star with a step is no star.
        (
            "0 0 */16 * Fri",
            "2026-01-01T00:00:00Z",
            &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-16T00:00:00Z", "2026-01-17T00:00:00Z"],
        ),
        ("@hourly", "2026-01-01T00:00:00Z", &["2026-01-01T01:00:00Z"]),
        ("@daily", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]),
        ("@weekly", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]),
        ("@monthly", "2026-01-01T00:00:00Z", &["2026-02-01T00:00:00Z"]),
        ("@annually", "2026-01-01T00:00:00Z", &["2027-01-01T00:00:00Z"]),
        ("@every 1h30m", "2026-01-01T00:00:07.9Z", &["2026-01-01T01:30:07Z", "2026-01-01T03:00:07Z"]),
        ("@every -0.5s", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]),
    ];
    for (schedule, after, expected) in cases {
        assert_eq!(times(schedule, after, &TimeZone::UTC, expected.len()), expected, "{schedule}");
    }
}

#[test]
fn a_day_that_no_month_has_never_comes() {
    for schedule in ["0 0 31 2 *", "0 0 30-31 2 *", ", * * * *"] {
        assert_eq!(times(schedule, "2026-01-01T00:00:00Z", &TimeZone::UTC, 1), [""; 0], "{schedule}");
    }
    // 2100 is no leap year.
    assert_eq!(times("0 0 29 2 *", "2096-03-01T00:00:00Z", &TimeZone::UTC, 1), [""; 0]);
}

#[test]
fn a_change_of_the_clocks_skips_a_time_or_repeats_it() {
    let berlin = zone("Europe/Berlin");
    // At 2 o'clock it is 3, on 29 March.
    let spring = ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(times("30 2 * * *", "2026-03-28T00:00:00Z", &berlin, 2), spring);
    // At 3 o'clock it is 2, on 25 October.
    let autumn = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(times("30 2 * * *", "2026-10-25T00:00:00Z", &berlin, 3), autumn);
    let hours = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"];
    assert_eq!(times("@hourly", "2026-10-24T23:00:00Z", &berlin, 3), hours);
    // Half an hour.
    let half = ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"];
    assert_eq!(times("45 1 5 4 *", "2026-01-01T00:00:00Z", &zone("Australia/Lord_Howe"), 2), half);
}

#[test]
fn what_is_no_schedule_is_refused_in_the_words_of_kubernetes() {
    let cases = [
        ("", "expected exactly 5 fields, found 0: []"),
        ("1 2  3", "expected exactly 5 fields, found 3: [1 2 3]"),
        ("1 2 3 4 5 6", "expected exactly 5 fields, found 6: [1 2 3 4 5 6]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/2/3 * * * *", "too many slashes: */2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/-2 * * * *", "negative number (-2) not allowed: -2"),
        ("-2 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
        ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
        ("* * L * *", "failed to parse int from L: strconv.Atoi: parsing \"L\": invalid syntax"),
        ("* * * * fri#2", "failed to parse int from fri#2: strconv.Atoi: parsing \"fri#2\": invalid syntax"),
        (
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        ("@reboot", "unrecognized descriptor: @reboot"),
        ("@Daily", "unrecognized descriptor: @Daily"),
        ("@every", "unrecognized descriptor: @every"),
        ("@every 5", "failed to parse duration 5: time: missing unit in duration \"5\""),
        ("@every x", "failed to parse duration x: time: invalid duration \"x\""),
        ("@every 1d", "failed to parse duration 1d: time: unknown unit \"d\" in duration \"1d\""),
        ("@every 9999999h", "failed to parse duration 9999999h: time: invalid duration \"9999999h\""),
    ];
    for (schedule, expected) in cases {
        assert_eq!(CronSchedule::parse(schedule).unwrap_err().to_string(), expected, "{schedule}");
    }
}

#[test]
fn the_latest_time_is_found_however_long_ago_it_was() {
    let cases = [
        ("* * * * *", "2020-01-01T00:00:00Z", "2026-01-01T00:00:30Z", Some("2026-01-01T00:00:00Z")),
        ("* * * 1 *", "2020-01-01T00:00:00Z", "2025-12-31T00:00:00Z", Some("2025-01-31T23:59:00Z")),
        ("0 0 29 2 *", "2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", Some("2024-02-29T00:00:00Z")),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T00:59:59Z", None),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", Some("2026-01-01T01:00:00Z")),
        ("@hourly", "2026-01-01T00:00:00Z", "2025-01-01T01:00:00Z", None),
        // Counted from where they began.
        ("@every 7s", "2026-01-01T00:00:01Z", "2026-01-01T00:00:20Z", Some("2026-01-01T00:00:15Z")),
        ("@every 7s", "2026-01-01T00:00:01Z", "2026-01-01T00:00:07Z", None),
    ];
    for (schedule, since, now, expected) in cases {
        let latest = CronSchedule::parse(schedule).unwrap().latest(time(since), time(now), &TimeZone::UTC);
        assert_eq!(latest, expected.map(time), "{schedule} from {since} to {now}");
    }
}

/// The values that a field admits, and its text.
fn field(min: u64, max: u64) -> impl Strategy<Value = String> {
    let range = (min..=max, min..=max, 1..20_u64).prop_flat_map(move |(one, other, step)| {
        let (start, end) = (one.min(other), one.max(other));
        prop_oneof![
            Just("*".to_owned()),
            Just(format!("*/{step}")),
            Just(format!("{start}")),
            Just(format!("{start}-{end}")),
            Just(format!("{start}-{end}/{step}")),
            Just(format!("{start}/{step}")),
        ]
    });
    prop_oneof![2 => Just("*".to_owned()), 3 => prop::collection::vec(range, 1..4).prop_map(|ranges| ranges.join(","))]
}

/// Whether a field admits a value: said once more, by the text alone.
fn admits(field: &str, value: i8, max: i64) -> bool {
    field.split(',').any(|range| {
        let (range, step) = range.split_once('/').map_or((range, None), |(range, step)| (range, Some(step)));
        let value = i64::from(value);
        let (start, end) = match range.split_once('-') {
            _ if range == "*" => (i64::from(matches!(max, 31 | 12)), max),
            Some((start, end)) => (start.parse().unwrap(), end.parse().unwrap()),
            None if step.is_some() => (range.parse().unwrap(), max),
            None => (range.parse().unwrap(), range.parse().unwrap()),
        };
        (start..=end).contains(&value) && (value - start) % step.map_or(1, |step| step.parse().unwrap()) == 0
    })
}

/// Looks at minute after minute.
fn scan(fields: &[String; 5], after: Timestamp, zone: &TimeZone, minutes: i64) -> Option<Timestamp> {
    let [minute, hour, day, month, weekday] = fields;
    let any = |field: &str| field.split(',').any(|range| matches!(range, "*" | "*/1"));
    let fits = |time: &Timestamp| {
        let clock = zone.to_datetime(*time);
        let by_number = admits(day, clock.day(), 31);
        let by_weekday = admits(weekday, clock.weekday().to_sunday_zero_offset(), 6);
        let fits_day =
            if any(day) || any(weekday) { by_number && by_weekday } else { by_number || by_weekday };
        fits_day
            && clock.second() == 0
            && admits(minute, clock.minute(), 59)
            && admits(hour, clock.hour(), 23)
            && admits(month, clock.month(), 12)
    };
    let first = after.as_second().div_euclid(60) + 1;
    (first..first + minutes).map(|minute| Timestamp::from_second(minute * 60).unwrap()).find(fits)
}

const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
];
/// Some days: two changes of the clocks may be half a year apart.
const SCANNED: i64 = 40 * 24 * 60;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_next_time_is_what_a_scan_of_all_minutes_finds(
        fields in (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)),
        // 2005 to 2028: St. John's changed its clocks at midnight until 2011, São Paulo until 2019.
        after in 1_104_537_600..1_830_297_600_i64,
        zone_name in prop::sample::select(&ZONES[..]),
    ) {
        let fields = [fields.0, fields.1, fields.2, fields.3, fields.4];
        let (zone, after) = (zone(zone_name), Timestamp::from_second(after).unwrap());
        let schedule = CronSchedule::parse(&fields.join(" ")).unwrap();
        let next = schedule.next(after, &zone);
        let end = Timestamp::from_second((after.as_second().div_euclid(60) + SCANNED) * 60).unwrap();
        prop_assert_eq!(scan(&fields, after, &zone, SCANNED), next.filter(|next| *next <= end));
        if let Some(next) = next {
            prop_assert_eq!(schedule.latest(after, next, &zone), Some(next));
            let just_before = Timestamp::from_second(next.as_second() - 1).unwrap();
            prop_assert_eq!(schedule.latest(after, just_before, &zone), None);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(@every )?[-+*/,?0-9a-zA-Zµ. @#]{0,24}", seconds in any::<i32>()) {
        if let Ok(schedule) = CronSchedule::parse(&text) {
            let after = Timestamp::from_second(i64::from(seconds)).unwrap();
            prop_assert!(schedule.next(after, &TimeZone::UTC).is_none_or(|next| next > after));
        }
    }
}
