//! The right to the volume: an object that its owner renews, and that another owner takes over only
//! after it has run out.
//!
//! ```text
//!   owner     put lease --- renew --- renew --- (no answer) ... stops writing |
//!             |<- ttl/3 ->|          |<-------------- ttl ------------------->|
//!   another                                                       may take over: later, by the store's copy
//! ```
//!
//! Every change of the lease is conditional on the version last seen, so of two that want it one
//! gets it, and an owner whose lease was taken learns of it at its next renewal. An owner that
//! cannot renew stops sending puts when the lease has run out by its own clock (`clock.rs`),
//! counted from before its last good renewal. If a renewal succeeds after all, nobody took it
//! meanwhile, and it goes on.
//!
//! Taken by force, the lease is rewritten at once, and then waited for as long as the other one may
//! still believe in it. So the two never write at the same time, unless a put of the old one is
//! still on its way; the condition of each put stands against that.
//!
//! A server that was killed leaves its lease. On the same machine it is known to be dead (same
//! boot, same process namespace, no such process any more) and its lease is taken at once.
//!
//! Clocks: whether a stranger's lease has run out is judged by this machine's clock against the
//! time that the stranger wrote; they must agree to within `ttl`, which is added as a margin.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::client::{Client, Trouble, When};
use crate::error::Error;
use crate::layout::{LEASE, chance};
use crate::request::lock;

/// Times that taking it is tried while others change it.
const TRIES: u32 = 4;
/// Renewals in the time it lasts.
pub(crate) const RENEWALS: u32 = 3;

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Which process, so that one on the same machine can tell whether it is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    boot: String,
    namespace: String,
    pid: u32,
    /// Clock ticks after boot.
    started: String,
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
        Some(Self {
            boot: boot.trim().to_owned(),
            namespace: namespace.to_string_lossy().into_owned(),
            pid,
            started: started(pid)?,
        })
    }

    /// Certainly not running any more.
    fn is_dead(&self) -> bool {
        let Some(me) = Self::of(std::process::id()) else {
            return false;
        };
        let here = me.boot == self.boot && me.namespace == self.namespace;
        here && started(self.pid).as_ref() != Some(&self.started)
    }
}

/// When a process began: field 22 of its stat, after the name in brackets.
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let state = rest.split_whitespace().next()?;
    let dead = state == "Z" || state == "X";
    rest.split_whitespace()
        .nth(19)
        .filter(|_| !dead)
        .map(str::to_owned)
}

/// The text of the object.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Text {
    /// By chance, new each time the volume is opened.
    id: String,
    /// For people.
    owner: String,
    process: Option<Process>,
    /// Milliseconds since 1970.
    renewed: u64,
    /// Milliseconds.
    ttl: u64,
    released: bool,
}

impl Text {
    fn new(ttl: Duration) -> Self {
        let pid = std::process::id();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            id: chance(),
            owner: format!("process {pid} on {}", host.trim()),
            process: Process::of(pid),
            renewed: now_ms(),
            ttl: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            released: false,
        }
    }

    fn body(&self) -> Bytes {
        let text = serde_json::to_vec_pretty(self).expect("a struct of numbers and words");
        text.into()
    }

    /// Time for which it must still be respected; none if it is free.
    fn remaining(&self, ttl: Duration) -> Option<Duration> {
        if self.released || self.process.as_ref().is_some_and(Process::is_dead) {
            return None;
        }
        let margin = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let until = self.renewed.saturating_add(self.ttl).saturating_add(margin);
        // A clock far ahead of ours must not keep the volume for ever.
        let left = until
            .saturating_sub(now_ms())
            .min(self.ttl.saturating_add(margin));
        (left > 0).then(|| Duration::from_millis(left))
    }
}

/// The outcome of a renewal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// It lasts for another while.
    Yes,
    /// No answer, or a refusal; to be tried again.
    NotNow,
    /// Somebody else has it.
    Taken {
        /// The new owner.
        by: String,
    },
}

/// A lease that is held.
pub(crate) struct Lease {
    text: Text,
    ttl: Duration,
    state: Mutex<State>,
}

struct State {
    tag: Option<String>,
}

impl Lease {
    /// Takes it.
    ///
    /// # Errors
    /// `InUse` while another one holds it and `force` is not set; those of the store.
    pub(crate) async fn take(client: &Client, ttl: Duration, force: bool) -> Result<Self, Error> {
        let failed = client.error("take the lease");
        let mut refused = Trouble::Changed;
        for _ in 0..TRIES {
            let text = Text::new(ttl);
            let began = client.guard.now();
            let mut wait = Duration::ZERO;
            let when = match client.get_small(LEASE).await {
                Err(Trouble::Missing(_)) => When::Absent,
                Err(other) => return Err(failed(other)),
                Ok((body, found)) => {
                    let other: Option<Text> = serde_json::from_slice(&body).ok();
                    let remaining = match &other {
                        Some(other) => other.remaining(ttl),
                        // Not to be understood: as if it had just been renewed.
                        None => Some(ttl),
                    };
                    if let Some(remaining) = remaining {
                        if !force {
                            return Err(Error::InUse {
                                place: client.place.clone(),
                                owner: other
                                    .map_or_else(|| "an unknown server".into(), |o| o.owner),
                                remaining: Some(remaining),
                            });
                        }
                        let theirs = other.map_or(ttl, |other| Duration::from_millis(other.ttl));
                        wait = remaining.min(theirs);
                    }
                    found.tag.map_or(When::Always, When::Is)
                }
            };
            match client.put(LEASE, text.body(), when).await {
                Ok(tag) => {
                    client.guard.allow(began, ttl);
                    let lease = Self {
                        text,
                        ttl,
                        state: Mutex::new(State { tag }),
                    };
                    lease.wait_out(client, wait).await?;
                    return Ok(lease);
                }
                Err(Trouble::Changed) => refused = Trouble::Changed,
                Err(other) => return Err(failed(other)),
            }
        }
        Err(failed(refused))
    }

    /// Lets the time pass in which the one it was taken from may not know, and renews meanwhile.
    async fn wait_out(&self, client: &Client, wait: Duration) -> Result<(), Error> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(self.ttl / RENEWALS)).await;
            if left.is_zero() {
                return Ok(());
            }
            if let Renewed::Taken { by } = self.renew(client).await {
                return Err(Error::InUse {
                    place: client.place.clone(),
                    owner: by,
                    remaining: Some(self.ttl),
                });
            }
        }
    }

    /// Does what takes as long as it takes, and renews the lease meanwhile.
    ///
    /// # Errors
    /// `InUse`: somebody else took it. The work under way is given up then.
    pub(crate) async fn renewed_while<T>(
        &self,
        client: &Client,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let turn = self.ttl / RENEWALS;
        let taken = async {
            loop {
                tokio::time::sleep(turn).await;
                // A renewal that hangs must not take the others' time.
                let renewed = tokio::time::timeout(turn, self.renew(client)).await;
                if let Ok(Renewed::Taken { by }) = renewed {
                    return by;
                }
            }
        };
        tokio::select! {
            done = work => Ok(done),
            by = taken => Err(Error::InUse {
                place: client.place.clone(),
                owner: by,
                remaining: Some(self.ttl),
            }),
        }
    }

    /// Its life without a renewal.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Renews it, once.
    pub(crate) async fn renew(&self, client: &Client) -> Renewed {
        self.write(client, false).await
    }

    /// Gives it back, so that the next one need not wait.
    pub(crate) async fn release(&self, client: &Client) {
        client.guard.forbid();
        // It runs out by itself otherwise.
        let _ = self.write(client, true).await;
    }

    async fn write(&self, client: &Client, released: bool) -> Renewed {
        // Again at once where it is still ours: with an own renewal that was not answered, much of
        // its time has gone by.
        for _ in 0..2 {
            let text = Text {
                renewed: now_ms(),
                released,
                ..self.text.clone()
            };
            let began = client.guard.now();
            let tag = lock(&self.state).tag.clone();
            // Without one the store told no version: it has to be asked for.
            if let Some(tag) = tag {
                match client.put(LEASE, text.body(), When::Is(tag)).await {
                    Ok(tag) => {
                        lock(&self.state).tag = tag;
                        if !released {
                            client.guard.allow(began, self.ttl);
                        }
                        return Renewed::Yes;
                    }
                    Err(Trouble::Changed) => {}
                    Err(_) => return Renewed::NotNow,
                }
            }
            if let Some(no) = self.look(client).await {
                return no;
            }
        }
        Renewed::NotNow
    }

    /// The version is not the one last seen: an own renewal that was not answered, of which the
    /// version is seen now, or somebody else.
    async fn look(&self, client: &Client) -> Option<Renewed> {
        let taken = |by: &str| Some(Renewed::Taken { by: by.into() });
        match client.get_small(LEASE).await {
            Ok((body, found)) => match serde_json::from_slice::<Text>(&body) {
                Ok(text) if text.id == self.text.id => {
                    lock(&self.state).tag = found.tag;
                    None
                }
                Ok(text) => taken(&text.owner),
                Err(_) => taken("somebody who wrote something else there"),
            },
            Err(Trouble::Missing(_)) => taken("somebody who removed it"),
            Err(_) => Some(Renewed::NotNow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Guard, Moment};
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use std::sync::Arc;

    const TTL: Duration = Duration::from_millis(300);

    fn client(store: &Arc<InMemory>) -> Client {
        let store: Arc<dyn object_store::ObjectStore> = store.clone();
        Client::new(
            store,
            Path::from("v"),
            "test".into(),
            Duration::from_secs(5),
        )
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(future)
    }

    fn holds(client: &Client) -> bool {
        client.guard.left().is_some()
    }

    /// A machine that was suspended, or that was stopped from outside and told the time of day
    /// since: until the next renewal nothing is sent, and a put that was under way is not tried
    /// again.
    #[test]
    fn it_runs_out_while_the_machine_stands_still() {
        run(async {
            let (store, shift) = (Arc::new(InMemory::new()), Arc::new(Mutex::new((0, 0))));
            let mut client = client(&store);
            let shifted = Arc::clone(&shift);
            client.guard = Arc::new(Guard::by(move || {
                let (boot, wall) = *lock(&shifted);
                let now = Moment::now();
                Moment {
                    boot: now.boot + Duration::from_secs(boot),
                    wall: now.wall + Duration::from_secs(wall),
                }
            }));
            let put = async |client: &Client| {
                let name = crate::layout::name_of(7);
                client
                    .put(&name, Bytes::from_static(b"x"), When::Always)
                    .await
            };
            let ttl = Duration::from_secs(30);
            let lease = Lease::take(&client, ttl, false).await.unwrap();
            for (boot, wall) in [(60, 0), (60, 60)] {
                assert!(holds(&client) && put(&client).await.is_ok());
                *lock(&shift) = (boot, wall);
                assert!(
                    !holds(&client),
                    "{boot} s of suspension, {wall} s of the day"
                );
                assert!(matches!(put(&client).await, Err(Trouble::RunOut)));
                assert_eq!(lease.renew(&client).await, Renewed::Yes);
            }
            assert!(put(&client).await.is_ok());
            lease.release(&client).await;
            assert!(matches!(put(&client).await, Err(Trouble::RunOut)));
        });
    }

    #[test]
    fn one_of_two_gets_it_and_force_waits_until_the_other_must_have_stopped() {
        run(async {
            let store = Arc::new(InMemory::new());
            let (a, b) = (client(&store), client(&store));
            let first = Lease::take(&a, TTL, false).await.unwrap();
            let refused = Lease::take(&b, TTL, false).await;
            assert!(matches!(
                refused,
                Err(Error::InUse {
                    remaining: Some(_),
                    ..
                })
            ));
            let second = Lease::take(&b, TTL, true).await.unwrap();
            assert!(
                !holds(&a),
                "the first must have stopped before the second begins"
            );
            assert!(holds(&b));
            assert!(matches!(first.renew(&a).await, Renewed::Taken { .. }));
            assert_eq!(second.renew(&b).await, Renewed::Yes);
        });
    }

    #[test]
    fn it_is_free_when_given_back_or_run_out() {
        run(async {
            let store = Arc::new(InMemory::new());
            let [a, b, c] = [client(&store), client(&store), client(&store)];
            let first = Lease::take(&a, TTL, false).await.unwrap();
            first.release(&a).await;
            assert!(!holds(&a));
            let second = Lease::take(&b, TTL, false).await.unwrap();
            assert!(holds(&b));
            tokio::time::sleep(2 * TTL + Duration::from_millis(20)).await;
            assert!(!holds(&b));
            let _third = Lease::take(&c, TTL, false).await.unwrap();
            assert!(holds(&c));
            assert!(matches!(second.renew(&b).await, Renewed::Taken { .. }));
        });
    }

    #[test]
    fn a_dead_process_holds_nothing() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(!process.is_dead());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.is_dead());
        let elsewhere = Process {
            boot: "another".into(),
            ..process
        };
        assert!(!elsewhere.is_dead());
    }

    #[test]
    fn an_own_renewal_without_an_answer_is_no_stranger() {
        run(async {
            let store = Arc::new(InMemory::new());
            let client = client(&store);
            let lease = Lease::take(&client, TTL, false).await.unwrap();
            // As if a renewal had been done and its answer lost.
            let old = lock(&lease.state).tag.clone();
            assert_eq!(lease.renew(&client).await, Renewed::Yes);
            lock(&lease.state).tag = old.clone();
            client.guard.forbid();
            assert_eq!(lease.renew(&client).await, Renewed::Yes);
            assert!(holds(&client), "at once, not a third of its time later");
            // And given back, so that the next one need not wait.
            lock(&lease.state).tag = old;
            lease.release(&client).await;
            Lease::take(&client, TTL, false).await.unwrap();
        });
    }
}
