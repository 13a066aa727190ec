//! The newcomers of a port: connections whose clients are not known yet.
//!
//! Clients send their first request at once, so a burst of them is no flood: every newcomer has a second. If
//! there are too many newcomers after that, the peer with the most of them loses its oldest. So a flood
//! displaces its own connections, however fast it comes and however long the handshake of another user takes.
//! All connections are accepted at once, since the system's queue of waiting connections has no such order.
//! If a flood is so fast that newcomers take half of all connections, newcomers lose the second.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::peers::{Ends, Peer};

/// Time that a newcomer has at least, unless newcomers take half of all connections.
const UNDISTURBED: Duration = Duration::from_secs(1);
/// Shortest time between two searches for the peer with the most newcomers.
const PAUSE: Duration = Duration::from_millis(100);

/// Finds the users of clients on this host.
type FindUsers = fn(&[Ends]) -> HashMap<Ends, u32>;

/// The newcomers of a port.
pub(super) struct Lobby {
    /// How many newcomers may stay for longer than a second.
    limit: usize,
    /// How many newcomers there may be at any time.
    most: usize,
    find_users: FindUsers,
    newcomers: Mutex<Newcomers>,
    /// Notified when there are more newcomers than may stay.
    crowded: Notify,
}

#[derive(Default)]
struct Newcomers {
    next: u64,
    /// By order of arrival.
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    since: Instant,
    ends: Ends,
    /// Unknown until there are too many.
    peer: Option<Peer>,
    /// Cancelled when the connection has to end.
    displaced: CancellationToken,
}

impl Lobby {
    /// A lobby in which `limit` newcomers may stay, and which has `most` newcomers at any time.
    pub(super) fn new(limit: usize, most: usize, find_users: FindUsers) -> Self {
        let limit = limit.max(1);
        let (newcomers, crowded) = (Mutex::default(), Notify::new());
        Self { limit, most: most.max(limit), find_users, newcomers, crowded }
    }

    /// A new connection. If there are too many newcomers, some are displaced.
    pub(super) fn enter(self: &Arc<Self>, ends: Ends) -> Newcomer {
        let displaced = CancellationToken::new();
        let since = Instant::now();
        let mut newcomers = self.newcomers.lock();
        let number = newcomers.next;
        newcomers.next += 1;
        let waiting = Waiting { since, ends, peer: None, displaced: displaced.clone() };
        newcomers.waiting.insert(number, waiting);
        let count = newcomers.waiting.len();
        drop(newcomers);
        if count > self.most {
            self.displace(Duration::ZERO);
        } else if count > self.limit {
            self.crowded.notify_one();
        }
        Newcomer { lobby: Arc::clone(self), number, since, displaced, welcome: CancellationToken::new() }
    }

    /// Displaces newcomers whenever there are too many. Never returns.
    pub(super) async fn thin_out(&self) -> Infallible {
        loop {
            match self.displace(UNDISTURBED) {
                Some(due) => sleep_until(due.max(Instant::now() + PAUSE)).await,
                None => self.crowded.notified().await,
            }
        }
    }

    /// Displaces surplus newcomers that have reached this age. If the next one to displace is younger,
    /// returns when it reaches the age.
    fn displace(&self, age: Duration) -> Option<Instant> {
        if self.newcomers.lock().waiting.len() <= self.limit {
            return None;
        }
        self.find_peers();
        let mut newcomers = self.newcomers.lock();
        let mut shares: HashMap<Peer, VecDeque<(Instant, u64)>> = HashMap::new();
        for (number, one) in &newcomers.waiting {
            let peer = one.peer.unwrap_or_else(|| Peer::of(one.ends, None));
            shares.entry(peer).or_default().push_back((one.since, *number));
        }
        while newcomers.waiting.len() > self.limit {
            let largest = shares.values_mut().max_by_key(|share| share.len())?;
            let (since, oldest) = *largest.front()?;
            if since.elapsed() < age {
                return Some(since + age);
            }
            largest.pop_front();
            if let Some(leaving) = newcomers.waiting.remove(&oldest) {
                leaving.displaced.cancel();
            }
        }
        None
    }

    /// Finds the peers of newcomers that came since the last search.
    fn find_peers(&self) {
        let unknown = |newcomers: &Newcomers| -> Vec<Ends> {
            let waiting = newcomers.waiting.values().filter(|one| one.peer.is_none());
            waiting.map(|one| one.ends).collect()
        };
        let unknown = unknown(&self.newcomers.lock());
        let on_this_host: Vec<Ends> = unknown.iter().filter(|ends| ends.is_local()).copied().collect();
        let users = if on_this_host.is_empty() { HashMap::new() } else { (self.find_users)(&on_this_host) };
        let found: HashMap<Ends, Peer> =
            unknown.into_iter().map(|ends| (ends, Peer::of(ends, users.get(&ends).copied()))).collect();
        for one in self.newcomers.lock().waiting.values_mut() {
            if one.peer.is_none() {
                one.peer = found.get(&one.ends).copied();
            }
        }
    }
}

/// A connection whose client is not known yet.
pub(crate) struct Newcomer {
    lobby: Arc<Lobby>,
    number: u64,
    /// When it came.
    since: Instant,
    displaced: CancellationToken,
    welcome: CancellationToken,
}

impl Newcomer {
    /// Records that the client is known: from now on the connection may stay.
    pub(crate) fn welcome(&self) {
        if !self.welcome.is_cancelled() {
            self.welcome.cancel();
            self.leave();
        }
    }

    /// Waits until the connection has been a newcomer for this time, or is displaced.
    pub(super) async fn overdue(&self, time: Duration) {
        tokio::select! {
            // A known client may stay, even if the time is over as well.
            biased;
            () = self.welcome.cancelled() => std::future::pending().await,
            () = self.displaced.cancelled() => {}
            () = sleep_until(self.since + time) => {}
        }
    }

    fn leave(&self) {
        self.lobby.newcomers.lock().waiting.remove(&self.number);
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::SocketAddr;

    use super::*;

    /// The user whom the test's connections of ports below 10,000 have.
    const HONEST: u32 = 1;

    fn ends(port: u16) -> Ends {
        let own = SocketAddr::from(([127, 0, 0, 1], 443));
        Ends { peer: SocketAddr::from(([127, 0, 0, 1], port)), own }
    }

    fn users(of: &[Ends]) -> HashMap<Ends, u32> {
        of.iter().map(|ends| (*ends, if ends.peer.port() < 10_000 { HONEST } else { 2 })).collect()
    }

    fn lobby(limit: usize, most: usize) -> Arc<Lobby> {
        Arc::new(Lobby::new(limit, most, users))
    }

    /// Lets a lobby thin itself out while something else goes on.
    async fn beside<T>(lobby: &Lobby, other: impl Future<Output = T>) -> T {
        tokio::select! {
            never = lobby.thin_out() => match never {},
            done = other => done,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_has_little_time_until_it_is_known() {
        let lobby = lobby(9, 99);
        let (silent, known) = (lobby.enter(ends(1)), lobby.enter(ends(2)));
        known.welcome();
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, silent.overdue(Duration::from_secs(5))).await.is_ok());
        assert!(tokio::time::timeout(hour, known.overdue(Duration::from_secs(5))).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_newcomer_runs_from_its_arrival() {
        let newcomer = lobby(9, 99).enter(ends(1));
        let begun = Instant::now();
        for _step in ["the first byte", "the handshake", "the request"] {
            newcomer.overdue(Duration::from_secs(5)).await;
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_too_many_newcomers_leaves_after_a_second() {
        let lobby = lobby(2, 99);
        let (first, second, third) = (lobby.enter(ends(1)), lobby.enter(ends(2)), lobby.enter(ends(3)));
        let begun = Instant::now();
        beside(&lobby, first.displaced.cancelled()).await;
        assert_eq!(begun.elapsed().as_secs(), UNDISTURBED.as_secs());
        assert!(!second.displaced.is_cancelled() && !third.displaced.is_cancelled());
        third.welcome();
        let _fourth = lobby.enter(ends(4));
        beside(&lobby, tokio::time::sleep(2 * UNDISTURBED)).await;
        assert!(!second.displaced.is_cancelled(), "a known connection is no newcomer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_known_clients_displaces_nobody() {
        let (lobby, mut clients) = (lobby(2, 1000), tokio::task::JoinSet::new());
        for number in 0..100 {
            let newcomer = Arc::new(lobby.enter(ends(number)));
            clients.spawn(async move {
                tokio::time::sleep(Duration::from_millis(900)).await;
                newcomer.welcome();
                newcomer.displaced.is_cancelled()
            });
        }
        let displaced = beside(&lobby, clients.join_all()).await;
        assert!(displaced.iter().all(|displaced| !displaced));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_user_displaces_no_slow_handshake_of_another() {
        for per_millisecond in [1, 50] {
            let lobby = lobby(128, 2048);
            // The clients of the honest user need three seconds for their handshake, and one comes now and
            // again.
            let mut honest = tokio::task::JoinSet::new();
            let flood = async {
                let mut held = VecDeque::new();
                for millisecond in 0..6_000_u16 {
                    if millisecond % 300 == 0 {
                        let newcomer = lobby.enter(ends(millisecond / 300));
                        honest.spawn(async move {
                            tokio::time::sleep(Duration::from_secs(3)).await;
                            newcomer.welcome();
                            newcomer.displaced.is_cancelled()
                        });
                    }
                    for number in 0..per_millisecond {
                        held.push_back(lobby.enter(ends(10_000 + (millisecond % 1000) * 50 + number)));
                    }
                    held.retain(|newcomer: &Newcomer| !newcomer.displaced.is_cancelled());
                    assert!(held.len() <= 2048, "{} newcomers", held.len());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            beside(&lobby, flood).await;
            let displaced = beside(&lobby, honest.join_all()).await;
            assert_eq!((displaced.len(), displaced.contains(&true)), (20, false), "{per_millisecond}/ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn within_one_peer_those_that_came_last_stay() {
        let lobby = lobby(4, 8);
        let all: Vec<_> = (0..9).map(|number| lobby.enter(ends(number))).collect();
        let displaced: Vec<_> = all.iter().map(|newcomer| newcomer.displaced.is_cancelled()).collect();
        assert_eq!(displaced, [true, true, true, true, true, false, false, false, false]);
    }
}
