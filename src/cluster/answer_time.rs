//! How quickly the API server answers at present.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time in which the API server answers writes. Clones are the same time.
///
/// A tenant's webhook may hold up all creations of its namespace, and most of all creations may be of that namespace. So
/// creations count by the quickest of them only, and other writes count for themselves.
///
/// A webhook may also hold up all writes, and most of all writes may be of that namespace. So namespaces
/// are spread over shares, and the quickest share counts: an API server that is slow is slow for all of
/// them.
#[derive(Clone, Debug, Default)]
pub struct AnswerTime(Arc<Mutex<Known>>);

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Creation,
    Other,
}

/// Shares of the namespaces.
const SHARES: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    creations: [Quantile; SHARES],
    others: [Quantile; SHARES],
    /// The quickest times of the others.
    quickest: Quickest,
    /// How long the last renewal of the replica's Leases took, and until when that counts.
    renewal: Option<(Duration, Instant)>,
}

/// The quickest recent time: how long a write takes where none waits for another.
#[derive(Clone, Copy, Debug, Default)]
struct Quickest {
    of_period: Option<Duration>,
    of_last: Option<Duration>,
    since: Option<Instant>,
}

/// A low quantile of recent times.
#[derive(Clone, Copy, Debug, Default)]
struct Quantile {
    time: Duration,
    /// Until when it counts, if no write is answered before. Absent before the first answer.
    until: Option<Instant>,
}

/// A slower answer raises the time by one part in this many, or by this long, if that is more.
const RISE: (u32, Duration) = (32, Duration::from_micros(200));
/// The time is forgotten if nothing has been answered for this long, or for this many times the time
/// itself, if that is more. A slow API server gives few answers.
const FORGOTTEN: (Duration, u32) = (Duration::from_secs(1), 8);
/// A renewal counts for this long: they come every few seconds.
const RENEWAL: Duration = Duration::from_secs(15);
/// The time without tenants is as long as this many renewals at most. Fewer would wake threads more often
/// while the API server is busy with our own writes: eight cost 4 % of the CPU time.
const RENEWALS: u32 = 24;
/// The quickest time counts for this long at least, and for twice as long at most.
const PERIOD: Duration = Duration::from_secs(15);
/// The API server has too much to do while its answers take this many times the quickest recent one ...
const CONGESTED: u32 = 8;
/// ... and longer than this.
const QUICK: Duration = Duration::from_millis(20);

impl Kind {
    /// A quicker answer lowers the time by that many times as much as a slower one raises it. In balance,
    /// one in 32 creations is quicker, and one in four other writes.
    fn fall(self) -> u32 {
        match self {
            Self::Creation => 31,
            Self::Other => 3,
        }
    }
}

impl AnswerTime {
    /// A write to this namespace was answered after this time.
    pub(super) fn observe(&self, kind: Kind, namespace: &str, took: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shares = match kind {
            Kind::Creation => &mut known.creations,
            Kind::Other => &mut known.others,
        };
        let (now, share) = (Instant::now(), share_of(namespace));
        // A share begins with the known times of the others: at zero, it would hide how slow they are.
        let first = || quickest_share(shares, now).unwrap_or_default().min(took);
        let time = shares[share].at(now).unwrap_or_else(first);
        shares[share].observe(now, took, kind.fall(), time);
        if kind == Kind::Other {
            known.quickest.observe(now, took);
        }
    }

    /// A renewal of the replica's Leases was answered after this time.
    pub(crate) fn renewed(&self, took: Duration) {
        let until = Instant::now() + RENEWAL;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).renewal = Some((took, until));
    }

    /// The [time](Self::get), limited to a multiple of the last renewal's time for the replica's own
    /// Leases. No tenant can lengthen a renewal, even if only tenants write. The renewal may be some
    /// seconds old, and the API server may have got more to do since.
    pub fn without_tenants(&self) -> Duration {
        let (now, renewal) = (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner).renewal);
        let longest = renewal.filter(|(_, until)| now < *until).map(|(took, _)| took * RENEWALS);
        longest.unwrap_or(Duration::MAX).min(self.at(now))
    }

    /// Whether the API server is overloaded: writes other than creations take much longer than the quickest
    /// of them in the last 15 to 30 s. A webhook does not slow down both kinds, and few webhooks are asked
    /// about all that we write.
    pub(super) fn is_congested(&self) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = || quickest_share(&known.others, Instant::now()).unwrap_or_default();
        known.quickest.get().is_some_and(|quickest| usual() > QUICK.max(quickest * CONGESTED))
    }

    /// The time; zero before the first answer, and when there has been none for a while.
    pub fn get(&self) -> Duration {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Duration {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [&known.creations, &known.others]
            .into_iter()
            .filter_map(|shares| quickest_share(shares, now))
            .min()
            .unwrap_or_default()
    }
}

/// The same in each replica and at each start, so that simulations repeat.
fn share_of(namespace: &str) -> usize {
    let hash = namespace.bytes().fold(0, |hash: usize, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    hash % SHARES
}

fn quickest_share(shares: &[Quantile; SHARES], now: Instant) -> Option<Duration> {
    shares.iter().filter_map(|share| share.at(now)).min()
}

impl Quantile {
    fn observe(&mut self, now: Instant, took: Duration, fall: u32, known: Duration) {
        let step = (known / RISE.0).max(RISE.1);
        let time =
            if took > known { took.min(known + step) } else { took.max(known.saturating_sub(fall * step)) };
        *self = Self { time, until: Some(now + FORGOTTEN.0.max(time * FORGOTTEN.1)) };
    }

    /// The time, if there has been a recent answer.
    fn at(&self, now: Instant) -> Option<Duration> {
        self.until.is_some_and(|until| now < until).then_some(self.time)
    }
}

impl Quickest {
    fn observe(&mut self, now: Instant, took: Duration) {
        let age = self.since.map_or(2 * PERIOD, |since| now.saturating_duration_since(since));
        if age >= PERIOD {
            let of_last = self.of_period.filter(|_| age < 2 * PERIOD);
            *self = Self { of_period: None, of_last, since: Some(now) };
        }
        self.of_period = Some(self.of_period.map_or(took, |known| known.min(took)));
    }

    fn get(self) -> Option<Duration> {
        [self.of_period, self.of_last].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn observe(time: &AnswerTime, kind: Kind, times: u64, took: fn(u64) -> u64) -> Duration {
        (0..times).for_each(|number| time.observe(kind, "n", ms(took(number))));
        time.get()
    }

    #[test]
    fn is_that_of_the_quickest_quarter_of_recent_answers() {
        let time = AnswerTime::default();
        assert!(observe(&time, Kind::Other, 10, |_| 400) <= ms(2), "it begins at zero");
        assert_eq!(observe(&time, Kind::Other, 400, |_| 400), ms(400));
        let mixed = |number| 100 + number * 7 % 100;
        observe(&time, Kind::Other, 2_000, mixed);
        let times = (0..100).map(|number| {
            time.observe(Kind::Other, "n", ms(mixed(number)));
            time.get()
        });
        let mean = times.sum::<Duration>() / 100;
        assert!((ms(110)..ms(150)).contains(&mean), "{mean:?}");
        assert!(observe(&time, Kind::Other, 100, |_| 3) < ms(4));
        observe(&time, Kind::Other, 600, |_| 400);
        assert_eq!(time.at(Instant::now() + ms(2_000)), ms(400), "slow answers are few");
        assert_eq!(time.at(Instant::now() + ms(3_200)), Duration::ZERO);
    }

    /// Each answer takes this long, one every 10 ms, for the whole time `lasts`. Returns for how long the
    /// API server seemed to be congested.
    async fn congested(time: &AnswerTime, kind: Kind, lasts: Duration, took: fn(u64) -> u64) -> Duration {
        let (begun, mut congested) = (Instant::now(), Duration::ZERO);
        for number in 0.. {
            if begun.elapsed() >= lasts {
                break;
            }
            time.observe(kind, "n", ms(took(number)));
            tokio::time::advance(ms(10)).await;
            congested += if time.is_congested() { ms(10) } else { Duration::ZERO };
        }
        congested
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_are_slow_but_for_a_few_show_an_api_server_with_too_much_to_do() {
        let some_quick = |number| if number % 500 == 0 { 5 } else { 200 };
        for (kind, most, took) in [
            (Kind::Other, true, some_quick as fn(u64) -> u64),
            // Times with a webhook that is asked about some pods.
            (Kind::Creation, false, some_quick),
            // Times with a webhook that is asked in one namespace of three.
            (Kind::Other, false, |number| if number % 3 == 0 { 400 } else { 5 }),
            (Kind::Other, false, |_| 200),
            (Kind::Other, false, |number| 1 + number % 18),
        ] {
            let time = AnswerTime::default();
            let lasts = Duration::from_secs(60);
            let found = congested(&time, kind, lasts, took).await;
            assert_eq!(found > lasts * 3 / 4, most, "{found:?}");
            assert!(most || found < ms(100), "{found:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_lasts_for_half_a_minute_is_usual() {
        let time = AnswerTime::default();
        congested(&time, Kind::Other, Duration::from_secs(20), |_| 5).await;
        let until_usual = congested(&time, Kind::Other, Duration::from_secs(60), |_| 200).await;
        assert!((PERIOD / 2..2 * PERIOD).contains(&until_usual), "{until_usual:?}");
        tokio::time::advance(2 * PERIOD).await;
        assert_eq!(
            congested(&time, Kind::Other, ms(500), |_| 900).await,
            Duration::ZERO,
            "nobody knows better"
        );
    }

    #[test]
    fn creations_that_a_webhook_holds_up_do_not_hide_quick_ones() {
        let time = AnswerTime::default();
        assert_eq!(observe(&time, Kind::Creation, 1_000, |_| 400), ms(400), "all of them are slow");
        let some_quick = |number| if number % 20 == 0 { 4 } else { 400 };
        assert!(observe(&time, Kind::Creation, 1_000, some_quick) < ms(8));
    }

    #[test]
    fn the_quicker_kind_of_write_decides() {
        let time = AnswerTime::default();
        observe(&time, Kind::Creation, 1_000, |_| 400);
        assert_eq!(observe(&time, Kind::Other, 600, |_| 30), ms(30));
    }

    /// All writes are those of one tenant.
    #[tokio::test(start_paused = true)]
    async fn a_webhook_alone_slows_down_no_thread() {
        let time = AnswerTime::default();
        for _ in 0..2_000 {
            time.observe(Kind::Creation, "tenant", ms(300));
            time.observe(Kind::Other, "tenant", ms(300));
        }
        assert_eq!((time.get(), time.without_tenants()), (ms(300), ms(300)), "nobody knows better");
        time.renewed(ms(4));
        assert_eq!((time.get(), time.without_tenants()), (ms(300), ms(96)));
        tokio::time::advance(RENEWAL).await;
        assert_eq!(time.without_tenants(), time.get());
    }

    /// A tenant with a slow webhook sends most writes of both kinds, and is the only one to send creations.
    #[tokio::test(start_paused = true)]
    async fn a_namespace_cannot_slow_down_others_while_any_of_them_writes() {
        let time = AnswerTime::default();
        for number in 0..2_000 {
            time.observe(Kind::Creation, "tenant", ms(300));
            time.observe(Kind::Other, "tenant", ms(300));
            if number % 50 == 0 {
                time.observe(Kind::Other, "victim", ms(3));
            }
            tokio::time::advance(ms(10)).await;
            assert!(time.get() <= ms(3) && !time.is_congested(), "after {number}: {:?}", time.get());
        }
        for _ in 0..2_000 {
            for namespace in ["tenant", "victim"] {
                time.observe(Kind::Other, namespace, ms(300));
            }
            tokio::time::advance(ms(10)).await;
        }
        assert_eq!(time.get(), ms(300), "the API server is slow for everybody");
    }
}
