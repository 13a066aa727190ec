//! Options beyond Kubernetes, which a Job sets by annotation.

use std::time::Duration;

use super::duration_text::parse_duration;
use super::exponential::Exponential;

/// Prefix of Yardmaster's annotations on Jobs.
pub const PREFIX: &str = "yardmaster.dev/";

/// The options of a Job. An annotation with an invalid value sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `yardmaster.dev/backoff-initial`: delay after the first failed pod.
    pub backoff_initial: Option<Duration>,
    /// `yardmaster.dev/backoff-max`: longest delay after failed pods.
    pub backoff_max: Option<Duration>,
    /// `yardmaster.dev/failed-pods-limit`: how many failed pods are kept; older ones are deleted once
    /// counted.
    pub failed_pods_limit: Option<u32>,
    /// `yardmaster.dev/prune-succeeded`: succeeded pods of a running Indexed Job are deleted once they are
    /// counted.
    pub prune_succeeded: bool,
    /// `yardmaster.dev/propagate-trace`: the containers learn the trace of the Job (`TRACEPARENT`).
    pub propagate_trace: bool,
    /// `tracing.k8s.io/traceparent` and `tracing.k8s.io/tracestate`: the trace that the Job was created in.
    pub caller: Option<Box<TraceCaller>>,
    /// Annotations with invalid values, in the order of [`OPTIONS`].
    pub rejected: Vec<Rejected>,
}

/// The controller's settings of the back-off between failed pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodBackoff {
    /// The back-off of Jobs that ask for none.
    pub default: Exponential,
    /// The shortest delay that a Job may ask for. Without it, a Job whose pods fail at once would be a loop of creations.
    pub least: Duration,
}

impl Default for PodBackoff {
    fn default() -> Self {
        Self { default: Exponential::POD_FAILURE, least: Duration::from_secs(1) }
    }
}

/// The trace that a Job was created in, as W3C Trace Context writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceCaller {
    /// `traceparent`.
    pub traceparent: Box<str>,
    /// `tracestate`; empty where there is none.
    pub tracestate: Box<str>,
}

/// Annotations of [`TraceCaller`] (KEP-5915).
const TRACEPARENT: &str = "tracing.k8s.io/traceparent";
const TRACESTATE: &str = "tracing.k8s.io/tracestate";
/// Longest part of them that is read, in bytes: W3C asks for no more of a `tracestate`.
const LONGEST_TRACE: usize = 512;

/// An annotation with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("annotation {key}: {value:?} is ignored: {problem}")]
pub struct Rejected {
    /// The whole key.
    pub key: Box<str>,
    /// The value, truncated if it is long.
    pub value: Box<str>,
    /// The expected form.
    pub problem: &'static str,
}

/// Sets an option from its text. The error names the expected form.
type Setter = fn(&mut Options, &str) -> Result<(), &'static str>;

/// Every annotation, without its prefix.
const OPTIONS: [(&str, Setter); 5] = [
    ("backoff-initial", |options, text| duration(text).map(|delay| options.backoff_initial = Some(delay))),
    ("backoff-max", |options, text| duration(text).map(|delay| options.backoff_max = Some(delay))),
    ("failed-pods-limit", |options, text| {
        let limit = text.parse().map_err(|_| "a whole number of pods, 0 or more, is expected")?;
        options.failed_pods_limit = Some(limit);
        Ok(())
    }),
    ("prune-succeeded", |options, text| {
        options.prune_succeeded = flag(text)?;
        Ok(())
    }),
    ("propagate-trace", |options, text| {
        options.propagate_trace = flag(text)?;
        Ok(())
    }),
];

/// Whether a text has the form of a W3C `traceparent` of version 00.
fn is_traceparent(text: &&str) -> bool {
    let widths = text.split('-').map(str::len);
    widths.eq([2, 32, 16, 2]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn flag(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "true or false is expected")
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).map_err(|_| "a duration such as 500ms, 10s or 1m 30s is expected")
}

/// Longest part of an invalid value that is shown to the user, in characters.
const SHOWN: usize = 64;

impl Options {
    /// Reads a Job's annotations. Unknown ones are ignored.
    pub fn read<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut found = [None; OPTIONS.len()];
        let (mut traceparent, mut tracestate) = (None, None);
        for (key, value) in annotations {
            match key {
                TRACEPARENT => traceparent = Some(value),
                TRACESTATE => tracestate = Some(value),
                _ => {}
            }
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            for (slot, _) in found.iter_mut().zip(OPTIONS).filter(|(_, (known, _))| *known == name) {
                *slot = Some(value);
            }
        }
        let short = |text: &&str| text.len() <= LONGEST_TRACE;
        let caller = traceparent.filter(is_traceparent).map(|traceparent| {
            let tracestate = tracestate.filter(short).unwrap_or_default().into();
            Box::new(TraceCaller { traceparent: traceparent.into(), tracestate })
        });
        let mut options = Self { caller, ..Self::default() };
        for (value, (name, set)) in found.into_iter().zip(OPTIONS) {
            let Some(value) = value else { continue };
            if let Err(problem) = set(&mut options, value) {
                let value = value.chars().take(SHOWN).collect::<String>();
                let key = format!("{PREFIX}{name}").into();
                options.rejected.push(Rejected { key, value: value.into(), problem });
            }
        }
        options
    }

    /// Back-off between failed pods. The longest delay also caps the initial one.
    pub fn backoff(&self, controller: PodBackoff) -> Exponential {
        let PodBackoff { default, least } = controller;
        // A Job may always ask for what it would get without asking.
        let least = least.min(default.initial);
        let delay = |asked: Option<Duration>, default| asked.map_or(default, |asked| asked.max(least));
        Exponential {
            initial: delay(self.backoff_initial, default.initial),
            max: delay(self.backoff_max, default.max),
        }
    }

    /// Whether more kinds of counted pods must be remembered than with the options `before`.
    pub fn wants_more_pods_than(&self, before: &Self) -> bool {
        (self.failed_pods_limit.is_some() && before.failed_pods_limit.is_none())
            || (self.prune_succeeded && !before.prune_succeeded)
    }

    /// Whether pods may have to be deleted after they have been counted, and so must be remembered until
    /// then.
    pub fn deletes_counted_pods(&self) -> bool {
        self.failed_pods_limit.is_some() || self.prune_succeeded
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> Options {
        Options::read(annotations.iter().copied())
    }

    #[test]
    fn valid_values_are_read() {
        let (none, ms, s) = (Options::default(), Duration::from_millis, Duration::from_secs);
        let delays =
            |initial, max| Options { backoff_initial: initial, backoff_max: max, ..Options::default() };
        let limit = |pods| Options { failed_pods_limit: Some(pods), ..Options::default() };
        let propagate = Options { propagate_trace: true, ..Options::default() };
        let prune = Options { prune_succeeded: true, ..Options::default() };
        for (annotations, expected) in [
            (&[][..], none.clone()),
            (&[("yardmaster.dev/backoff-initial", "100ms")], delays(Some(ms(100)), None)),
            (&[("yardmaster.dev/backoff-initial", "0s")], delays(Some(s(0)), None)),
            (&[("yardmaster.dev/backoff-max", "1m 30s")], delays(None, Some(s(90)))),
            (&[("yardmaster.dev/backoff-max", "1m30s")], delays(None, Some(s(90)))),
            (&[("yardmaster.dev/backoff-max", "1h")], delays(None, Some(s(3600)))),
            (&[("yardmaster.dev/failed-pods-limit", "0")], limit(0)),
            (&[("yardmaster.dev/failed-pods-limit", "12")], limit(12)),
            (&[("yardmaster.dev/propagate-trace", "true")], propagate),
            (&[("yardmaster.dev/prune-succeeded", "true")], prune),
            (&[("yardmaster.dev/prune-succeeded", "false")], none.clone()),
            (&[("backoff-initial", "100ms"), ("yardmaster.dev/shard", "5")], none.clone()),
            (&[("yardmaster.dev/backoff-initially", "100ms"), ("example.com/backoff-max", "x")], none),
        ] {
            assert_eq!(read(annotations), expected, "{annotations:?}");
        }
    }

    #[test]
    fn the_trace_that_a_job_was_created_in_is_read() {
        let (parent, state) = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1");
        let caller = |parent: &str, state: &str| {
            Some(TraceCaller { traceparent: parent.into(), tracestate: state.into() }.into())
        };
        let long = "x".repeat(LONGEST_TRACE + 1);
        for (annotations, expected) in [
            (&[(TRACEPARENT, parent)][..], caller(parent, "")),
            (&[(TRACESTATE, state), (TRACEPARENT, parent)], caller(parent, state)),
            (&[(TRACEPARENT, parent), (TRACESTATE, &*long)], caller(parent, "")),
            (&[(TRACEPARENT, &*long)], None),
            (&[(TRACEPARENT, &*parent.replace('f', "x"))], None),
            (&[(TRACEPARENT, &parent[1..])], None),
            (&[(TRACESTATE, state)], None),
        ] {
            assert_eq!(read(annotations).caller, expected, "{annotations:?}");
        }
    }

    #[test]
    fn invalid_values_are_reported_and_ignored() {
        for (name, values) in [
            ("backoff-initial", &["", "10", "-5s", "ten seconds", "10parsecs", "99999999999999999999s"][..]),
            ("backoff-max", &["1m,", "s", "NaN"]),
            ("failed-pods-limit", &["", "-1", "1.5", "all", "4294967296"]),
            ("prune-succeeded", &["", "yes", "True", "1"]),
            ("propagate-trace", &["", "on"]),
        ] {
            for value in values {
                let key = format!("{PREFIX}{name}");
                let options = read(&[(&key, value)]);
                let [rejected] = &options.rejected[..] else { panic!("{key} {value:?} passed: {options:?}") };
                assert_eq!((&*rejected.key, &*rejected.value), (&*key, *value));
                let others = Options { rejected: Vec::new(), ..options };
                assert_eq!(others, Options::default());
            }
        }
    }

    #[test]
    fn an_invalid_value_does_not_affect_other_options() {
        let long = "x".repeat(5000);
        let options = read(&[
            ("yardmaster.dev/prune-succeeded", &long),
            ("yardmaster.dev/backoff-initial", "soon"),
            ("yardmaster.dev/backoff-max", "30s"),
        ]);
        assert_eq!(options.backoff_max, Some(Duration::from_secs(30)));
        let messages: Vec<String> = options.rejected.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages[0],
            "annotation yardmaster.dev/backoff-initial: \"soon\" is ignored: \
             a duration such as 500ms, 10s or 1m 30s is expected"
        );
        assert_eq!((messages.len(), options.rejected[1].value.len()), (2, SHOWN));
    }

    /// The shard shows all counted pods again only where there are some that it has not kept.
    #[test]
    fn counted_pods_are_asked_for_once_they_are_wanted() {
        let options = |failed_pods_limit, prune_succeeded| Options {
            failed_pods_limit,
            prune_succeeded,
            ..Options::default()
        };
        let (none, failed, succeeded) = (options(None, false), options(Some(3), false), options(None, true));
        let both = options(Some(1), true);
        for (now, before, expected) in [
            (&none, &none, false),
            (&failed, &none, true),
            (&succeeded, &none, true),
            (&both, &none, true),
            (&both, &failed, true),
            (&both, &succeeded, true),
            (&failed, &both, false),
            (&succeeded, &both, false),
            (&succeeded, &succeeded, false),
            (&options(Some(0), false), &failed, false),
            (&none, &both, false),
        ] {
            assert_eq!(now.wants_more_pods_than(before), expected, "{now:?} {before:?}");
        }
    }

    #[test]
    fn the_back_off_of_the_job_replaces_the_default() {
        let PodBackoff { default, .. } = PodBackoff::default();
        let own = Options { backoff_initial: Some(Duration::from_secs(1)), ..Options::default() };
        assert_eq!(Options::default().backoff(PodBackoff::default()), default);
        let expected = Exponential { initial: Duration::from_secs(1), max: default.max };
        assert_eq!(own.backoff(PodBackoff::default()), expected);
    }

    /// Without a floor, an author of Jobs would get a crash loop at the speed of the API server.
    #[test]
    fn a_back_off_below_the_least_is_raised_to_it() {
        let ms = Duration::from_millis;
        let default = |initial| Exponential { initial: ms(initial), max: ms(600_000) };
        for (what, controller, least, asked, expected) in [
            ("no delay", 10_000, 1_000, (0, 0), (1_000, 1_000)),
            ("a short one", 10_000, 1_000, (999, 5_000), (1_000, 5_000)),
            ("enough", 10_000, 1_000, (1_000, 1_001), (1_000, 1_001)),
            ("without a least", 10_000, 0, (0, 1), (0, 1)),
            ("as short as the controller's own", 200, 1_000, (100, 300), (200, 300)),
        ] {
            let own = Options {
                backoff_initial: Some(ms(asked.0)),
                backoff_max: Some(ms(asked.1)),
                ..Options::default()
            };
            let backoff = own.backoff(PodBackoff { default: default(controller), least: ms(least) });
            assert_eq!((backoff.initial, backoff.max), (ms(expected.0), ms(expected.1)), "{what}");
        }
    }
}
