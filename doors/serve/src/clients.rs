//! The clients that are connected to an export, and those of them that are gone.
//!
//! The sockets of a client that is killed are closed at once. Its connection here hears of that
//! when its turn comes, which may be late: it is held, or waits for the backing. So the sockets of
//! all are looked at before something is made durable for one, and when one comes that may be a
//! client's next try. For a client that is gone by then nothing changes any more (`Volume::end`):
//! waiting requests are refused, and the sync waits for the step under way.
//!
//! ```text
//!   A: TRIM ──step──step──step── (A is killed)
//!   B:                              FLUSH ── who is gone? A: end ── sync ── A's last step ── answer
//! ```
//!
//! Invariants
//!   1. Of a client that was gone when a flush or a durable write was asked for, nothing changes
//!      the volume once that is answered.
//!   2. A socket's number is in the list only while the socket is open: a connection takes it out
//!      before it closes it.
//!
//! A client that has ended its half of the stream is gone, unless it has said goodbye: then it may
//! still wait for its replies.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{CallWait, Volume};

use crate::job::Tell;

/// The connections of an export.
#[derive(Default)]
pub(crate) struct Clients {
    list: Mutex<Vec<Client>>,
    /// Number of clients that have ever come.
    came: AtomicU64,
}

/// The origin from which arrivals are counted.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A client as others see it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Tells it from the others: several can be in one place.
    number: u64,
    /// Where it is: `192.0.2.7:51234`, or the process at the other end of a Unix socket.
    address: String,
    /// Since when it waits for the request that it has waited for longest; zero: for none.
    oldest: AtomicU64,
    /// Requests answered.
    requests: AtomicU64,
    /// Replies to writes that were held back.
    held: Waited,
    /// Flushes and durable writes, from when their data were taken in.
    flush: Waited,
}

/// Its waits for something that is not the cache's own wait: their number, and their sum.
#[derive(Debug, Default)]
struct Waited {
    count: AtomicU64,
    micros: AtomicU64,
}

impl Waited {
    fn note(&self, time: Duration, count: u64) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let micros = micros.saturating_mul(count);
        self.count.fetch_add(count, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn read(&self, cause: &'static str) -> CallWait {
        let micros = self.micros.load(Ordering::Relaxed);
        CallWait {
            cause,
            count: self.count.load(Ordering::Relaxed),
            total: Duration::from_micros(micros),
        }
    }
}

/// A reading of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientReading {
    /// Tells it from the others of the volume: later ones have higher numbers.
    pub number: u64,
    /// Its address.
    pub address: String,
    /// Requests ever answered.
    pub requests: u64,
    /// For how long its oldest request is under way.
    pub oldest: Duration,
    /// Waits of its requests, by cause: in the cache, `held reply` and `flush`.
    pub waits: Vec<CallWait>,
}

impl Seen {
    /// Its address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The oldest of its requests arrived then (none: nothing is under way), and `requests` were
    /// answered.
    pub(crate) fn set(&self, arrived: Option<Instant>, requests: u64) {
        let since = arrived.map_or(0, |arrived| {
            let since = arrived.saturating_duration_since(*ORIGIN);
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1)
        });
        for (shown, now) in [(&self.oldest, since), (&self.requests, requests)] {
            if shown.load(Ordering::Relaxed) != now {
                shown.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Replies were held back for some time.
    pub(crate) fn held(&self, time: Duration, replies: usize) {
        self.held.note(time, replies as u64);
    }

    /// The same answer to a request that is to be durable; the time until then is a wait for that.
    pub(crate) fn flushes(self: &Arc<Self>, tell: Tell) -> Tell {
        let (seen, began) = (Arc::clone(self), Instant::now());
        Box::new(move |result| {
            seen.flush.note(began.elapsed(), 1);
            tell(result);
        })
    }

    fn age(&self, now: Duration) -> Duration {
        match self.oldest.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => now.saturating_sub(Duration::from_micros(since)),
        }
    }
}

struct Client {
    /// The volume as it holds it, which tells it from the others.
    volume: Arc<Volume>,
    /// Its socket's number; none: there is no socket to look at.
    socket: Option<i32>,
    said_goodbye: bool,
    seen: Arc<Seen>,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Client>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more client, which is there and holds the volume so.
    pub(crate) fn join(
        &self,
        socket: Option<BorrowedFd<'_>>,
        address: String,
        volume: &Arc<Volume>,
    ) -> Arc<Seen> {
        LazyLock::force(&ORIGIN);
        let mut list = self.lock();
        let seen = Arc::new(Seen {
            number: self.came.fetch_add(1, Ordering::Relaxed),
            address,
            ..Seen::default()
        });
        list.push(Client {
            volume: Arc::clone(volume),
            socket: socket.map(|socket| socket.as_raw_fd()),
            said_goodbye: false,
            seen: Arc::clone(&seen),
        });
        end_the_gone(&mut list);
        seen
    }

    /// All of them, as they came.
    pub(crate) fn read(&self) -> Vec<ClientReading> {
        let now = ORIGIN.elapsed();
        let read = |client: &Client| ClientReading {
            number: client.seen.number,
            address: client.seen.address.clone(),
            requests: client.seen.requests.load(Ordering::Relaxed),
            oldest: client.seen.age(now),
            waits: {
                let mut waits = client.volume.own_waits().by_cause;
                let own = [
                    ("held reply", &client.seen.held),
                    ("flush", &client.seen.flush),
                ];
                let own = own.map(|(cause, waited)| waited.read(cause));
                waits.extend(own.into_iter().filter(|wait| wait.count > 0));
                waits
            },
        };
        self.lock().iter().map(read).collect()
    }

    /// It will ask for nothing more, and may wait for its replies.
    pub(crate) fn says_goodbye(&self, volume: &Arc<Volume>) {
        let mut list = self.lock();
        let it = list.iter_mut().find(|it| Arc::ptr_eq(&it.volume, volume));
        if let Some(it) = it {
            it.said_goodbye = true;
        }
    }

    /// Its connection has ended. Before the socket is closed.
    pub(crate) fn leave(&self, volume: &Arc<Volume>) {
        let mut list = self.lock();
        list.retain(|it| !Arc::ptr_eq(&it.volume, volume));
        drop(list);
        volume.end();
    }

    /// Ends those that are gone.
    pub(crate) fn end_the_gone(&self) {
        end_the_gone(&mut self.lock());
    }
}

fn end_the_gone(list: &mut [Client]) {
    if list.len() < 2 {
        // Nobody is there whom it could harm.
        return;
    }
    let seen = list.iter_mut().filter(|it| it.socket.is_some());
    let (mut seen, sockets): (Vec<_>, Vec<_>) = seen
        .map(|it| {
            let socket = (it.socket.unwrap_or_default(), !it.said_goodbye);
            (it, socket)
        })
        .unzip();
    for (client, is_gone) in seen.iter_mut().zip(os::hung_up(&sockets)) {
        if is_gone {
            client.volume.end();
            // Once is enough.
            client.socket = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use os::FileDevice;
    use tidegate::{Backing, Cache, Error, Mode, VolumeOptions};

    use super::*;

    #[test]
    fn who_is_gone_changes_nothing_more_and_who_is_there_does() {
        let name = format!("tidegate-clients-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let cache = Cache::builder().memory(16 << 20).build().unwrap();
        let made = cache.attach(VolumeOptions::default(), |env| {
            let device = FileDevice::new(env)?;
            let (object, len) = device.open(&path, os::OpenOptions::default())?;
            Ok::<_, Error>(Backing {
                device,
                object,
                size: len.0,
            })
        });
        let _ = std::fs::remove_file(&path);
        let volume = made.unwrap();
        let clients = Clients::default();
        let come = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let held = Arc::new(volume.clone_handle());
            clients.join(Some(ours.as_fd()), String::new(), &held);
            (ours, theirs, held)
        };
        let may_write = |held: &Volume| {
            let wrote = held.write(&mut cache.writer(), &[1; 512], 0, Mode::Blocking);
            match wrote {
                Ok(_) => true,
                Err(Error::Closed) => false,
                Err(error) => panic!("{error}"),
            }
        };
        // Of one alone nobody asks.
        let (_first, theirs, first) = come();
        drop(theirs);
        clients.end_the_gone();
        assert!(may_write(&first));
        // A client that comes ends those that were gone before.
        let (_second, second_end, second) = come();
        assert!(!may_write(&first) && may_write(&second));
        let (_third, third_end, third) = come();
        let (_fourth, fourth_end, fourth) = come();
        clients.says_goodbye(&fourth);
        for end in [&third_end, &fourth_end] {
            end.shutdown(Shutdown::Write).unwrap();
        }
        clients.end_the_gone();
        assert!(!may_write(&third), "it can ask for nothing more");
        assert!(may_write(&fourth), "it waits for its replies");
        drop(fourth_end);
        clients.end_the_gone();
        assert!(!may_write(&fourth), "nobody waits");
        assert!(may_write(&second), "it is there");
        clients.leave(&second);
        assert!(!may_write(&second));
        drop(second_end);
        volume.sync().unwrap();
        assert!(clients.lock().len() == 3, "the others' connections go on");
    }
}
