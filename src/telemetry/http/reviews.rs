//! The cluster's verdicts on bearer tokens, remembered for a bounded time and number.
//!
//! Strangers may send ever new tokens. So the questions are bounded, and those about a token that was allowed the last
//! time do not wait behind the others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::secret::hash;

/// How long a permission is remembered, and so outlives the loss of a right.
const ALLOWED_PERIOD: Duration = Duration::from_secs(60);
/// How long a refusal is remembered, and so delays the effect of a new right.
const REFUSED_PERIOD: Duration = Duration::from_secs(10);
/// How long it is known of a token that it was allowed, after the permission itself is forgotten: longer than the
/// interval of any scraper.
const KNOWN_PERIOD: Duration = Duration::from_secs(3600);
/// Most verdicts that are remembered.
const MAX_REMEMBERED: usize = 1024;
/// Most questions to the API server at once about each kind of client.
const MAX_QUESTIONS: usize = 4;
/// How long a client waits for a verdict.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The cluster's verdict on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The token's user may `get` the path.
    Allowed,
    /// The token's user may not.
    Forbidden,
    /// The token belongs to no user.
    Unknown,
}

/// The sender of a token, as far as known before the cluster is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The token was allowed the last time.
    Known,
    /// Anybody.
    Stranger,
}

/// Asks the cluster about tokens.
pub trait Reviewer: Send + Sync + 'static {
    /// Whether the user of a bearer token may `get` a path; `None` without an answer. Questions of strangers must not
    /// hold up those of known clients.
    fn review(&self, token: &str, path: &str, client: Client) -> BoxFuture<'static, Option<Verdict>>;
}

/// Verdicts of a reviewer, remembered. Tokens themselves are not kept.
pub struct Reviews {
    reviewer: Box<dyn Reviewer>,
    /// Questions that may be asked now: about known clients, and about strangers.
    questions: [Semaphore; 2],
    known: Mutex<HashMap<[u8; 32], Remembered>>,
}

#[derive(Clone, Copy)]
struct Remembered {
    verdict: Verdict,
    until: Instant,
}

impl Remembered {
    fn is_valid(&self) -> bool {
        Instant::now() < self.until
    }

    /// Whether there is still something to know: that the token was allowed.
    fn matters(&self) -> bool {
        let longer = if self.verdict == Verdict::Allowed { KNOWN_PERIOD } else { Duration::ZERO };
        Instant::now() < self.until + longer
    }
}

impl Reviews {
    /// Nothing is remembered yet.
    pub fn new(reviewer: impl Reviewer) -> Self {
        Self {
            reviewer: Box::new(reviewer),
            questions: [Semaphore::new(MAX_QUESTIONS), Semaphore::new(MAX_QUESTIONS)],
            known: Mutex::default(),
        }
    }

    /// Whether the user of a token may `get` a path; `None` if the cluster does not say.
    pub(super) async fn verdict(&self, token: &str, path: &str) -> Option<Verdict> {
        let key = hash(&format!("{path} {token}"));
        if let Some(verdict) = self.remembered(&key) {
            return Some(verdict);
        }
        let client = self.client(&key);
        let [of_known, of_strangers] = &self.questions;
        let questions = if client == Client::Known { of_known } else { of_strangers };
        let asked = async {
            // The semaphore is never closed.
            let _question = questions.acquire().await.ok()?;
            // Another request may have asked meanwhile.
            match self.remembered(&key) {
                Some(verdict) => Some(verdict),
                None => self.reviewer.review(token, path, client).await,
            }
        };
        let verdict = timeout(TIMEOUT, asked).await.ok()??;
        self.remember(key, verdict);
        Some(verdict)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<[u8; 32], Remembered>> {
        // A panic while writing leaves the map whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, key: &[u8; 32]) -> Option<Verdict> {
        self.known().get(key).filter(|known| known.is_valid()).map(|known| known.verdict)
    }

    fn client(&self, key: &[u8; 32]) -> Client {
        let was_allowed = |known: &&Remembered| known.verdict == Verdict::Allowed && known.matters();
        if self.known().get(key).filter(was_allowed).is_some() { Client::Known } else { Client::Stranger }
    }

    fn remember(&self, key: [u8; 32], verdict: Verdict) {
        let now = Instant::now();
        let period = if verdict == Verdict::Allowed { ALLOWED_PERIOD } else { REFUSED_PERIOD };
        let mut known = self.known();
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, known| known.matters());
        }
        // Strangers with ever new tokens must not push out those that are allowed.
        if known.len() < MAX_REMEMBERED || verdict == Verdict::Allowed {
            if known.len() >= MAX_REMEMBERED {
                known.retain(|_, known| known.verdict == Verdict::Allowed);
            }
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
            known.insert(key, Remembered { verdict, until: now + period });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Knows the token `good`, with rights on `/metrics` alone, and counts the questions.
    #[derive(Clone, Default)]
    struct Asked(Arc<AtomicUsize>);

    impl Reviewer for Asked {
        fn review(&self, token: &str, path: &str, _client: Client) -> BoxFuture<'static, Option<Verdict>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let verdict = match (token, path) {
                ("good", "/metrics") => Some(Verdict::Allowed),
                ("good", _) => Some(Verdict::Forbidden),
                ("down", _) => None,
                _ => Some(Verdict::Unknown),
            };
            Box::pin(async move { verdict })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn verdicts_are_remembered_for_their_time() {
        let asked = Asked::default();
        let reviews = Reviews::new(asked.clone());
        let mut questions = 0;
        for (wait, token, path, verdict, new) in [
            (0, "good", "/metrics", Some(Verdict::Allowed), true),
            (59, "good", "/metrics", Some(Verdict::Allowed), false),
            (1, "good", "/metrics", Some(Verdict::Allowed), true),
            (0, "good", "/debug/shards", Some(Verdict::Forbidden), true),
            (9, "good", "/debug/shards", Some(Verdict::Forbidden), false),
            (1, "good", "/debug/shards", Some(Verdict::Forbidden), true),
            (0, "bad", "/metrics", Some(Verdict::Unknown), true),
            (0, "down", "/metrics", None, true),
            (0, "down", "/metrics", None, true),
        ] {
            tokio::time::advance(Duration::from_secs(wait)).await;
            assert_eq!(reviews.verdict(token, path).await, verdict, "{token} {path}");
            questions += usize::from(new);
            assert_eq!(asked.0.load(Ordering::Relaxed), questions, "{token} {path}");
        }
    }

    /// Answers at once, but one stranger in a second.
    struct Slow;

    impl Reviewer for Slow {
        fn review(&self, token: &str, _path: &str, client: Client) -> BoxFuture<'static, Option<Verdict>> {
            let verdict = if token == "good" { Verdict::Allowed } else { Verdict::Unknown };
            Box::pin(async move {
                if client == Client::Stranger {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Some(verdict)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_do_not_delay_who_was_allowed_before() {
        let reviews = Arc::new(Reviews::new(Slow));
        assert_eq!(reviews.verdict("good", "/metrics").await, Some(Verdict::Allowed));
        let mut strangers = tokio::task::JoinSet::new();
        for scrape in 0..20 {
            for number in 0..MAX_REMEMBERED {
                let reviews = reviews.clone();
                let token = format!("stranger-{scrape}-{number}");
                strangers.spawn(async move { reviews.verdict(&token, "/metrics").await });
            }
            // Longer than a permission is remembered.
            tokio::time::sleep(2 * ALLOWED_PERIOD).await;
            let begun = Instant::now();
            assert_eq!(reviews.verdict("good", "/metrics").await, Some(Verdict::Allowed));
            assert_eq!(begun.elapsed(), Duration::ZERO, "scrape {scrape}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_neither_fill_the_memory_nor_push_others_out() {
        let asked = Asked::default();
        let reviews = Reviews::new(asked.clone());
        assert_eq!(reviews.verdict("good", "/metrics").await, Some(Verdict::Allowed));
        for number in 0..3 * MAX_REMEMBERED {
            reviews.verdict(&format!("stranger-{number}"), "/metrics").await;
        }
        assert!(reviews.known().len() <= MAX_REMEMBERED);
        let before = asked.0.load(Ordering::Relaxed);
        assert_eq!(reviews.verdict("good", "/metrics").await, Some(Verdict::Allowed));
        assert_eq!(asked.0.load(Ordering::Relaxed), before);
    }
}
