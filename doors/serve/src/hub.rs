//! The state that all connections share: the exports by name, the limits, and the stage of the
//! server.
//!
//! ```text
//!   Serving ──drain──> Draining: requests under way are finished, new ones refused ──> Ending: what is left is cut off, and
//!     what was written is made durable ──> Ended
//! ```
//!
//! Invariants
//!   1. Never more than `Limits::connections` have a session, nor more of one address than
//!      `Limits::of_one_address`; a session is given back when the connection ends, however.
//!   2. A change to state that connections read wakes every connection.
//!   3. A connection whose client may not have its volume any more ends before its next request.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::access::{Right, Shown};
use crate::connection::ended::EndedBy;
use crate::connection::peer::Peer;
use crate::export::Export;
use crate::mailbox::Mailbox;
use crate::record::Recorder;

/// Connections whose sockets may be made wide: what the system holds for their clients, no limit of
/// ours does.
const WIDE_MAX: usize = 16;
/// Requests that each connection may have under way, whatever others have; `CONNECTION_BYTES` has
/// room for them.
pub(crate) const OWN_REQUESTS: usize = 32;

/// The limits on what clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; more are closed at once.
    pub connections: usize,
    /// Connections of one address (of IPv6: of one network of 64 bits) at once; those of Unix
    /// sockets are not counted so.
    pub of_one_address: usize,
    /// Connections that are allowed: there may be fewer descriptors than that.
    pub connections_asked: usize,
    /// Requests of one connection under way; more are not read from it.
    pub in_flight: usize,
    /// Requests under way of all connections together over the 32 that each may have. Stays what it
    /// was at the start.
    pub in_flight_more: usize,
    /// Bytes of one request; more are refused.
    pub request: u32,
    /// For a client to say what it wants. Afterwards it may be silent as long as it likes.
    pub handshake: Duration,
    /// A request that takes longer is logged.
    pub slow: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            of_one_address: 1024,
            connections_asked: 1024,
            in_flight: 128,
            in_flight_more: 1 << 16,
            request: 32 << 20,
            handshake: Duration::from_secs(10),
            slow: Duration::from_secs(10),
        }
    }
}

/// The counters of the door. The rest is counted by each export.
#[derive(Debug, Default)]
pub struct HubCounters {
    /// Connections now, in their handshake or after it.
    pub connections: AtomicU64,
    /// Connections ever taken.
    pub accepted_total: AtomicU64,
    /// Connections closed because there were too many, of all or of one address.
    pub refused_total: AtomicU64,
    /// Connections that ended without having chosen an export, by an error or by the time allowed
    /// for it.
    pub handshake_failures_total: AtomicU64,
    /// Times that a client asked for a volume that is not for it.
    pub denied_total: AtomicU64,
}

/// The stage of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Serves.
    Serving = 0,
    /// Finishes what is under way and refuses what comes.
    Draining = 1,
    /// Serves nobody any more, and writes what is left.
    Ending = 2,
    /// Everything is durable.
    Ended = 3,
}

/// The encryption of connections.
pub enum Security {
    /// Not at all.
    Plain,
    /// If the client asks for it.
    Offered(crate::tls::Acceptor),
    /// Nothing is said without it.
    Required(crate::tls::Acceptor),
}

impl Security {
    /// The acceptor of encrypted connections; none: they are plain.
    pub(crate) fn acceptor(&self) -> Option<&crate::tls::Acceptor> {
        match self {
            Self::Plain => None,
            Self::Offered(acceptor) | Self::Required(acceptor) => Some(acceptor),
        }
    }

    fn still_takes(&self, chain: &[rustls::pki_types::CertificateDer<'_>]) -> bool {
        let acceptor = self.acceptor();
        acceptor.is_some_and(|acceptor| acceptor.still_takes(chain))
    }
}

/// Shared by all connections.
pub struct Hub {
    /// The counters of the door.
    pub counters: HubCounters,
    limits: Mutex<Limits>,
    security: RwLock<Arc<Security>>,
    exports: RwLock<Vec<Arc<Export>>>,
    stage: AtomicU8,
    /// Connections with a wide socket.
    wide: AtomicUsize,
    /// Requests over `OWN_REQUESTS` that connections can take the right to.
    more: AtomicUsize,
    /// Grows when clients may have lost a right.
    rights: AtomicU64,
    roster: Mutex<Roster>,
    left: Notify,
    changed: Notify,
    recorder: Option<Recorder>,
}

/// Connections by their place.
#[derive(Default)]
struct Roster {
    places: Vec<Option<Arc<Mailbox>>>,
    free: Vec<usize>,
    /// Connections of each address that has one.
    of_address: BTreeMap<IpAddr, usize>,
}

/// A connection's place: given back when dropped.
pub(crate) struct Session {
    hub: Arc<Hub>,
    place: usize,
    is_wide: bool,
    /// Requests over `OWN_REQUESTS` that it has the right to.
    more: usize,
    /// The address of its client, in words.
    pub(crate) address: String,
    of_address: Option<IpAddr>,
    /// The certificate that its client has shown, and as it came, with those behind it.
    pub(crate) shown: Option<Shown>,
    pub(crate) chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    /// As of when it was last seen that the client may go on.
    rights: u64,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Hub {
    /// Nothing is exported yet.
    #[must_use]
    pub fn new(limits: Limits, security: Security) -> Self {
        Self {
            counters: HubCounters::default(),
            limits: Mutex::new(limits),
            security: RwLock::new(Arc::new(security)),
            exports: RwLock::default(),
            stage: AtomicU8::new(Stage::Serving as u8),
            wide: AtomicUsize::new(0),
            more: AtomicUsize::new(limits.in_flight_more),
            rights: AtomicU64::new(0),
            roster: Mutex::default(),
            left: Notify::new(),
            changed: Notify::new(),
            recorder: None,
        }
    }

    /// Requests are recorded.
    pub(crate) fn with_recorder(self, recorder: Recorder) -> Self {
        Self {
            recorder: Some(recorder),
            ..self
        }
    }

    /// The recorder of requests, if there is one.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// No request comes any more: the record is to be whole.
    pub(crate) fn finish_record(&self, patience: Duration) {
        if let Some(recorder) = &self.recorder {
            recorder.finish(patience);
        }
    }

    /// The limits on what clients may take.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on new connections may take that much.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// The encryption of new connections.
    #[must_use]
    pub fn security(&self) -> Arc<Security> {
        Arc::clone(&self.security.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on new connections are encrypted with that, and those that are there end if they
    /// would not be let in any more.
    pub fn set_security(&self, security: Security) {
        *self
            .security
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(security);
        self.rights_changed();
    }

    /// Clients may have lost a right: each connection looks.
    pub fn rights_changed(&self) {
        self.rights.fetch_add(1, Ordering::AcqRel);
        self.wake_all();
    }

    /// Offers an export; false: there is one of that name.
    pub fn offer(&self, export: Arc<Export>) -> bool {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = exports.iter().all(|other| other.name() != export.name());
        if is_new {
            // It may have been withdrawn before.
            export.withdrawn.store(false, Ordering::Release);
            export.cut_off.store(false, Ordering::Release);
            exports.push(export);
        }
        is_new
    }

    /// Takes an export back: its connections finish what is under way and end.
    pub fn withdraw(&self, name: &str) -> Option<Arc<Export>> {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        let at = exports.iter().position(|export| export.name() == name)?;
        let export = exports.remove(at);
        drop(exports);
        export.withdrawn.store(true, Ordering::Release);
        self.wake_all();
        Some(export)
    }

    /// Ends the connections of an export that was withdrawn, wherever they are: they had their
    /// time.
    pub fn cut_off(&self, export: &Export) {
        export.cut_off.store(true, Ordering::Release);
        self.wake_all();
    }

    /// The export of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<Export>> {
        let mut exports = self.exports().into_iter();
        exports.find(|export| export.name() == name)
    }

    /// All exports, in the order in which they were offered.
    #[must_use]
    pub fn exports(&self) -> Vec<Arc<Export>> {
        self.exports
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The stage of the server.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            2 => Stage::Ending,
            _ => Stage::Ended,
        }
    }

    /// Goes on to `stage`, never back, and has every connection look.
    pub fn enter(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.wake_all();
        self.changed.notify_waiters();
    }

    /// Waits until the server does not serve any more.
    pub(crate) async fn drains(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.stage() != Stage::Serving {
                return;
            }
            changed.await;
        }
    }

    /// Finishes what is under way, for at most `bound`, then cuts off what is left. Answers how
    /// many connections were cut off.
    pub async fn drain(&self, bound: Duration) -> u64 {
        self.enter(Stage::Draining);
        let _ = tokio::time::timeout(bound, self.emptied()).await;
        let left = self.counters.connections.load(Ordering::Acquire);
        self.enter(Stage::Ending);
        self.emptied().await;
        left
    }

    async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.counters.connections.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }

    /// Waits until no client was connected for so long.
    pub(crate) async fn idles(&self, most: Duration) {
        loop {
            self.emptied().await;
            // A client that comes and goes meanwhile begins the time anew.
            let left = tokio::time::timeout(most, self.left.notified()).await;
            let is_empty = self.counters.connections.load(Ordering::Acquire) == 0;
            if left.is_err() && is_empty {
                return;
            }
        }
    }

    /// A place for a new connection.
    ///
    /// # Errors
    /// There are too many, of all or of its address, or the server ends.
    pub(crate) fn session(self: &Arc<Self>, peer: &impl Peer) -> Result<Session, EndedBy> {
        let of_address = peer.ip().map(network);
        let limits = self.limits();
        let mut roster = self.roster();
        let taken = roster.places.len() - roster.free.len();
        let of_this = of_address.and_then(|it| roster.of_address.get(&it));
        let refused = if self.stage() != Stage::Serving {
            Some(EndedBy::Server)
        } else if taken >= limits.connections {
            Some(EndedBy::Full)
        } else {
            let is_full = of_this.is_some_and(|of_this| *of_this >= limits.of_one_address);
            is_full.then_some(EndedBy::FullOfOne)
        };
        if let Some(refused) = refused {
            drop(roster);
            self.counters.refused_total.fetch_add(1, Ordering::Relaxed);
            return Err(refused);
        }
        if let Some(it) = of_address {
            *roster.of_address.entry(it).or_default() += 1;
        }
        let mailbox = Arc::new(Mailbox::default());
        let entry = Some(Arc::clone(&mailbox));
        let place = match roster.free.pop() {
            Some(place) => {
                roster.places[place] = entry;
                place
            }
            None => {
                roster.places.push(entry);
                roster.places.len() - 1
            }
        };
        self.counters.connections.fetch_add(1, Ordering::AcqRel);
        drop(roster);
        self.counters.accepted_total.fetch_add(1, Ordering::Relaxed);
        Ok(Session {
            hub: Arc::clone(self),
            place,
            is_wide: false,
            more: 0,
            address: peer.address(),
            of_address,
            shown: None,
            chain: Vec::new(),
            rights: self.rights.load(Ordering::Acquire),
            mailbox,
        })
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake_all(&self) {
        // Woken under the lock: a connection that wakes takes other locks only.
        for mailbox in self.roster().places.iter().flatten() {
            mailbox.wake();
        }
    }
}

/// The addresses that are one client's, as far as can be told: of IPv6 a network of 64 bits.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
        ip => ip,
    }
}

impl Session {
    /// True if its client may go on with an export, and write to it if it `writes`.
    pub(crate) fn may_go_on(&mut self, export: &Export, writes: bool) -> bool {
        let now = self.hub.rights.load(Ordering::Acquire);
        if now == self.rights {
            return true;
        }
        self.rights = now;
        if self.shown.is_some() && !self.hub.security().still_takes(&self.chain) {
            return false;
        }
        let wanted = if writes { Right::Write } else { Right::Read };
        export.right(self.shown.as_ref()) >= wanted
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// True if its socket may be made wide, from now until the connection ends.
    pub(crate) fn widen(&mut self) -> bool {
        let wide = &self.hub.wide;
        let more = |now: usize| (now < WIDE_MAX).then_some(now + 1);
        if !self.is_wide {
            let taken = wide.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            self.is_wide = taken.is_ok();
        }
        self.is_wide
    }

    /// Requests that the connection may have under way now.
    pub(crate) fn requests(&self) -> usize {
        OWN_REQUESTS + self.more
    }

    /// Takes the right to `count` requests more, unless others have taken them.
    pub(crate) fn take_more(&mut self, count: usize) {
        let left = &self.hub.more;
        let rest = |left: usize| left.checked_sub(count);
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        if taken.is_ok() {
            self.more += count;
        }
    }

    /// Gives back what it took.
    pub(crate) fn give_more(&mut self) {
        let more = core::mem::take(&mut self.more);
        self.hub.more.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_wide {
            self.hub.wide.fetch_sub(1, Ordering::Relaxed);
        }
        self.give_more();
        let mut roster = self.hub.roster();
        let mailbox = roster.places[self.place].take();
        roster.free.push(self.place);
        if let Some(it) = self.of_address
            && let Some(left) = roster.of_address.get_mut(&it)
        {
            *left -= 1;
            if *left == 0 {
                roster.of_address.remove(&it);
            }
        }
        let before = self.hub.counters.connections.fetch_sub(1, Ordering::AcqRel);
        drop(roster);
        drop(mailbox);
        if before == 1 {
            self.hub.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;

    /// A client of a Unix socket.
    struct Local;

    impl Peer for Local {
        fn socket(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    struct Remote(IpAddr);

    impl Peer for Remote {
        fn socket(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn ip(&self) -> Option<IpAddr> {
            Some(self.0)
        }
    }

    fn hub(connections: usize) -> Arc<Hub> {
        let limits = Limits {
            connections,
            ..Limits::default()
        };
        Arc::new(Hub::new(limits, Security::Plain))
    }

    #[test]
    fn few_are_wide_and_others_are_when_they_go() {
        let hub = hub(WIDE_MAX + 1);
        let mut sessions: Vec<Session> = (0..=WIDE_MAX)
            .map(|_| hub.session(&Local).unwrap())
            .collect();
        let wide = sessions
            .iter_mut()
            .filter_map(|session| session.widen().then_some(()));
        assert_eq!(wide.count(), WIDE_MAX);
        assert!(sessions[0].widen(), "it is already");
        let mut last = sessions.pop().unwrap();
        assert!(!last.widen());
        drop(sessions);
        assert!(last.widen());
        drop(last);
        assert_eq!(hub.wide.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_seat_is_had_again_when_it_was_given_back() {
        let hub = hub(2);
        let (one, two) = (hub.session(&Local).unwrap(), hub.session(&Local).unwrap());
        assert!(hub.session(&Local).is_err());
        assert_eq!(hub.counters.refused_total.load(Ordering::Relaxed), 1);
        drop(one);
        let again = hub.session(&Local).unwrap();
        assert_eq!(hub.counters.connections.load(Ordering::Relaxed), 2);
        drop((two, again));
        assert_eq!(hub.counters.connections.load(Ordering::Relaxed), 0);
        assert_eq!(hub.counters.accepted_total.load(Ordering::Relaxed), 3);
        // Places are used again: the roster is as long as there were connections at once.
        assert_eq!(hub.roster().places.len(), 2);
    }

    #[test]
    fn a_server_that_ends_has_no_seats_and_does_not_begin_again() {
        let hub = hub(2);
        hub.enter(Stage::Ended);
        hub.enter(Stage::Draining);
        assert_eq!(hub.stage(), Stage::Ended);
        assert!(hub.session(&Local).is_err());
    }

    #[test]
    fn a_limit_that_is_lowered_counts_for_those_who_come() {
        let hub = hub(3);
        let sessions = [hub.session(&Local).unwrap(), hub.session(&Local).unwrap()];
        hub.set_limits(Limits {
            connections: 1,
            ..hub.limits()
        });
        assert!(hub.session(&Local).is_err());
        drop(sessions);
        assert!(hub.session(&Local).is_ok());
    }

    #[test]
    fn one_address_does_not_take_all_places() {
        let hub = hub(4);
        hub.set_limits(Limits {
            of_one_address: 2,
            ..hub.limits()
        });
        let one = |text: &str| hub.session(&Remote(text.parse().unwrap()));
        for same in [
            ["192.0.2.7", "::ffff:192.0.2.7"],
            ["2001:db8::1", "2001:db8::2:0:0:1"],
        ] {
            let both = same.map(|address| one(address).unwrap());
            let refused = same.map(|address| one(address).err());
            let is_full = |by: &Option<EndedBy>| matches!(by, Some(EndedBy::FullOfOne));
            assert!(refused.iter().all(is_full), "{refused:?}");
            drop((one("192.0.2.8").unwrap(), one("2001:db8:0:1::1").unwrap()));
            drop((hub.session(&Local).unwrap(), hub.session(&Local).unwrap()));
            drop(both);
            drop(one(same[0]).unwrap());
        }
        assert!(hub.roster().of_address.is_empty());
    }
}
