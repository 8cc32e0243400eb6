//! Opening a volume: its manifest, what the store can do, which server has it, and which objects
//! there are.
//!
//! Before anything is written to it, a store is asked to refuse two puts that it must refuse: a put
//! "if absent" of an object that is there, and a put that names a version that never was. Some
//! servers ignore conditions, and would let two Tidegates overwrite each other. And it is asked to
//! do a put that it must do, of the version that is there: some refuse that too, and each write of
//! the volume would fail. The version that a list tells has to be the same one, as all knowledge of
//! the objects comes from there.
//!
//! Listing a large volume takes longer than a lease lasts: it is renewed from the moment that it
//! was taken.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use os::{Arena, OwnPath, OwnPaths};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::client::{Client, Trouble, When};
use crate::error::{Error, Lie};
use crate::known::{Known, TAGS_MAX};
use crate::layout::{self, Geometry, MANIFEST, Manifest, OBJECT_USUAL, PROBE};
use crate::lease::Lease;
use crate::local::DirectoryLock;
use crate::place::Location;
use crate::request::{Ledger, lock};
use crate::shared::{Fence, Jobs, Shared};
use crate::{Config, Objects};

/// The device's thread.
const THREAD: &str = "tg-objects";
/// Time that a thread of the runtime waits for work.
const FOR_GOOD: Duration = Duration::from_secs(u32::MAX as u64);
/// Time that threads have to begin; those that the system refuses never do.
const BEGIN_BOUND: Duration = Duration::from_secs(2);
/// Time that the runtime waits for calls into the file system that hang, when it ends.
const END_BOUND: Duration = Duration::from_millis(500);
/// Time that giving the lease back may take; otherwise it expires by itself.
const RELEASE_BOUND: Duration = Duration::from_secs(3);
/// A version that no store gives out.
const NO_VERSION: &str = "\"00000000000000000000000000000000\"";
/// Bound on a lease: shorter ones run out between two renewals on a busy machine.
const LEASE_MIN: Duration = Duration::from_millis(200);

/// Looks at objects by name that a list lacks: of as many gaps in it the first object each, of more
/// by chance.
const LOOKS_MAX: usize = 8;
/// Damaged objects with which a volume can be read: of more it is not what its manifest says.
const DAMAGED_MAX: usize = 1024;

/// Opens a volume in a store of the caller's, under `prefix`. Waits for the store.
///
/// # Errors
/// See [`Error`].
pub fn open_on(
    store: Arc<dyn ObjectStore>,
    prefix: &str,
    config: &Config,
    arena: Arc<Arena>,
) -> Result<Arc<Objects>, Error> {
    let place = || {
        Ok(Location {
            store,
            prefix: Path::parse(prefix).map_err(|_| Error::Url { url: prefix.into() })?,
            directory: None,
            made: OwnPaths::default(),
            guard: Arc::default(),
            lists_truly: true,
            settle: os::sync_file_system,
        })
    };
    let (objects, made) = open_at(place, config, arena)?;
    made.keep();
    Ok(objects)
}

/// Starts all threads for calls into the file system and for look-ups of names: the system may have
/// none to give later, or no memory for what a thread maps as it begins, which ends the process.
/// Where it has fewer now, calls wait for one another.
async fn start_all(threads: usize) {
    let gate = Arc::new(Mutex::new(()));
    let (begun, all) = mpsc::channel();
    // A thread that has begun waits, so that the next call has one of its own.
    let shut = gate.lock();
    let begin = |_| {
        let (gate, begun) = (Arc::clone(&gate), begun.clone());
        tokio::task::spawn_blocking(move || {
            let _ = begun.send(());
            drop(gate.lock());
        })
    };
    let calls: Vec<_> = (0..threads).map(begin).collect();
    let until = Instant::now() + BEGIN_BOUND;
    let left = || until.saturating_duration_since(Instant::now());
    let _ = (0..threads).try_for_each(|_| all.recv_timeout(left()));
    drop(shut);
    for call in calls {
        let _ = call.await;
    }
}

/// Starts the device's thread, and opens the volume there. Answers too what was made in a directory
/// for it, which goes again unless it is kept.
pub(crate) fn open_at(
    place: impl FnOnce() -> Result<Location, Error>,
    config: &Config,
    arena: Arc<Arena>,
) -> Result<(Arc<Objects>, OwnPaths), Error> {
    let parallel = config.parallel()?;
    if config.lease < LEASE_MIN {
        return Err(Error::Option {
            name: "lease",
            value: u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX),
            allowed: "200 ms or more",
        });
    }
    let system = |what| {
        move |source| Error::System {
            path: PathBuf::from(THREAD),
            what,
            source,
        }
    };
    let place = place()?;
    let threads = 2 * parallel;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(threads)
        .thread_keep_alive(FOR_GOOD)
        .thread_name("tg-objects-file")
        .build()
        .map_err(system("start the runtime"))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (answer, opened) = mpsc::channel();
    let config = config.clone();
    let body = move || {
        runtime.block_on(async {
            start_all(threads).await;
            let (shared, made) = match prepare(place, &config, arena, parallel).await {
                Ok(prepared) => prepared,
                Err(error) => {
                    let _ = answer.send(Err(error));
                    return;
                }
            };
            let renewals = tokio::spawn(Arc::clone(&shared).keep_lease());
            let _ = answer.send(Ok((Arc::clone(&shared), made)));
            drop(answer);
            // Ends when the sender goes.
            let _ = stopped.await;
            renewals.abort();
            if let Fence::Lease(lease) = &shared.fence {
                let _ = tokio::time::timeout(RELEASE_BOUND, lease.release(&shared.client)).await;
            }
        });
        // Requests that are still under way end as cancelled.
        runtime.shutdown_timeout(END_BOUND);
    };
    let thread = os::start_thread(THREAD, os::STACK, body).map_err(system("start the thread"))?;
    let (shared, made) = match opened.recv() {
        Ok(prepared) => prepared?,
        Err(_) => return Err(system("start")(std::io::Error::other("the thread ended"))),
    };
    let objects = Arc::new(Objects {
        shared,
        stop: Mutex::new(Some(stop)),
        thread: Mutex::new(Some(thread)),
    });
    Ok((objects, made))
}

async fn prepare(
    place: Location,
    config: &Config,
    arena: Arc<Arena>,
    parallel: usize,
) -> Result<(Arc<Shared>, OwnPaths), Error> {
    let mut client = Client::new(
        place.store,
        place.prefix,
        config.url.clone(),
        config.timeout,
    );
    client.looks_first = place.directory.is_some();
    client.guard = place.guard;
    let mut fence = Fence::None;
    // Goes before the lock does.
    let mut made = place.made;
    // Before anything is looked at: half-written files are removed by the holder of the lock.
    if let Some(path) = place.directory.as_deref() {
        let lock = Arc::new(match config.read_only {
            true => DirectoryLock::none(path)?,
            false => DirectoryLock::take(path, &mut made)?,
        });
        client.lock = Arc::downgrade(&lock);
        client.spare = Some(lock.spare()?);
        fence = Fence::Lock(Mutex::new(Some(lock)));
    }
    let (mut manifest, is_new) = match client.get_small(MANIFEST).await {
        Ok((text, found)) => {
            client.learn(found.tag.as_deref(), &text);
            (check(&client, &text, config)?, false)
        }
        Err(Trouble::Missing(_)) => (design(&client, config).await?, true),
        Err(trouble) => return Err(client.error("read volume.json")(trouble)),
    };
    let needs_lease = place.directory.is_none() && !config.read_only;
    let probed = match needs_lease {
        true => Some(probe(&client).await?),
        false => None,
    };
    if is_new {
        let is_ours;
        (manifest, is_ours) = make(&client, manifest, config).await?;
        if let Some(path) = place.directory.as_deref().filter(|_| is_ours) {
            made.push(OwnPath::found(&path.join(MANIFEST)));
        }
    }
    let geometry = Geometry::new(manifest.size, manifest.object_size)?;
    if needs_lease {
        let lease = Lease::take(&client, config.lease, config.force).await?;
        fence = Fence::Lease(Box::new(lease));
    }
    if let Some(path) = place.directory.as_deref().filter(|_| !config.read_only) {
        settle(path, place.settle).await?;
    }
    // After the lease was taken: from here on, nobody else changes anything.
    let known = Mutex::new(Known::new(geometry.objects(), TAGS_MAX));
    let mut damaged = BTreeMap::new();
    let most = if config.read_only { DAMAGED_MAX } else { 0 };
    let mut listed = None;
    let take = |name: &str, found: crate::client::Found| {
        count_answer();
        if name == PROBE {
            listed.clone_from(&found.tag);
        }
        if let Some(object) = layout::object_of(name).filter(|object| *object < geometry.objects())
        {
            let tag = found.tag.as_deref();
            match found.len > 0 || place.lists_truly || client.is_of_nothing(tag) {
                true => lock(&known).found(object, tag, found.len > 0),
                false => lock(&known).found_unproven(object, tag),
            }
            let wanted = geometry.object_len(object);
            if found.len != 0 && found.len != wanted {
                damaged.insert(object, found.len);
            }
        }
        damaged.len() <= most
    };
    let listing = client.list(take);
    let complete = match &fence {
        Fence::Lease(lease) => lease.renewed_while(&client, listing).await,
        Fence::Lock(_) | Fence::None => Ok(listing.await),
    };
    let complete = complete.and_then(|done| done.map_err(client.error("list the objects")));
    let complete = match (complete, probed) {
        // Of one that was given up at a damaged object more is not known.
        (Ok(()), Some(probed)) if damaged.len() <= most => {
            same_versions(&client, probed, listed).await
        }
        (complete, _) => complete,
    };
    let complete = match (complete, &fence) {
        // Without a lease somebody may have written it since.
        (Ok(()), Fence::Lease(lease)) if !place.lists_truly && damaged.len() <= most => {
            let unlisted = lock(&known).unlisted(LOOKS_MAX);
            let looks = are_absent(&client, &unlisted);
            lease
                .renewed_while(&client, looks)
                .await
                .and_then(|done| done)
        }
        (complete, _) => complete,
    };
    if let Err(error) = complete {
        if let Fence::Lease(lease) = &fence {
            // A second try need not wait for it.
            let _ = tokio::time::timeout(RELEASE_BOUND, lease.release(&client)).await;
        }
        return Err(error);
    }
    if let Some((object, has)) = damaged.iter().next().filter(|_| damaged.len() > most) {
        return Err(Error::Length {
            place: client.place.clone(),
            name: layout::name_of(*object),
            has: *has,
            wanted: geometry.object_len(*object),
        });
    }
    let shared = Arc::new(Shared {
        client,
        geometry,
        arena,
        jobs: Mutex::new(Jobs::new(parallel)),
        known,
        damaged,
        ledger: Arc::new(Ledger::default()),
        fence,
        read_only: config.read_only,
        parallel,
        handle: Handle::current(),
        stopping: AtomicBool::new(false),
        lost: OnceLock::new(),
    });
    Ok((shared, made))
}

/// Looks at objects that the list lacks, and that therefore read as zeroes: a page that a store
/// passed over is a gap in it.
async fn are_absent(client: &Client, unlisted: &[u64]) -> Result<(), Error> {
    for object in unlisted {
        let name = layout::name_of(*object);
        match client.head(&name).await {
            Err(Trouble::Missing(_)) => {}
            Ok(_) => {
                let lie = Lie::new("Key", format!("is never `{name}`, which is there"));
                return Err(client.error("list the objects")(Trouble::Lied(lie)));
            }
            Err(trouble) => return Err(client.error("look at an object")(trouble)),
        }
    }
    Ok(())
}

/// Makes durable the files in the directory, no matter which server put them there: an answered
/// flush covers them from now on.
async fn settle(
    path: &FilePath,
    settle: fn(&FilePath) -> std::io::Result<()>,
) -> Result<(), Error> {
    let at = path.to_path_buf();
    let settled = tokio::task::spawn_blocking(move || settle(&at)).await;
    let settled = settled.unwrap_or_else(|_| Err(std::io::Error::other("it was given up")));
    settled.map_err(|source| Error::System {
        path: path.into(),
        what: "sync what is in the directory",
        source,
    })
}

/// The manifest of a volume that is there.
fn check(client: &Client, text: &[u8], config: &Config) -> Result<Manifest, Error> {
    let manifest = Manifest::parse(text, &client.place)?;
    let wanted = [
        ("size", manifest.size, config.size),
        ("object size", manifest.object_size, config.object_size),
    ];
    for (what, has, wanted) in wanted {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != has) {
            return Err(Error::Differs {
                place: client.place.clone(),
                what,
                has,
                wanted,
            });
        }
    }
    Ok(manifest)
}

/// A new volume, if there may be one here.
async fn design(client: &Client, config: &Config) -> Result<Manifest, Error> {
    let mut stray = None;
    let look = |name: &str, _| {
        stray = layout::object_of(name).map(|_| name.to_owned());
        stray.is_none()
    };
    // Also tells a bucket that is missing from a volume that is.
    client
        .list(look)
        .await
        .map_err(client.error("list the objects"))?;
    if let Some(found) = stray {
        return Err(Error::NotEmpty {
            place: client.place.clone(),
            found,
        });
    }
    let Some(size) = config.size.filter(|_| !config.read_only) else {
        return Err(Error::NoVolume {
            place: client.place.clone(),
        });
    };
    Manifest::new(size, config.object_size.unwrap_or(OBJECT_USUAL))
}

/// Writes the manifest of a new volume. Answers the manifest that counts, and whether that is this
/// one.
async fn make(
    client: &Client,
    manifest: Manifest,
    config: &Config,
) -> Result<(Manifest, bool), Error> {
    match client
        .put(MANIFEST, manifest.text().into(), When::Absent)
        .await
    {
        Ok(_) => Ok((manifest, true)),
        // Somebody else made it just now: then that one counts. So does an own put whose answer was
        // lost.
        Err(Trouble::Changed) => {
            let there = client.get_small(MANIFEST).await;
            let (text, _) = there.map_err(client.error("read volume.json"))?;
            check(client, &text, config).map(|manifest| (manifest, false))
        }
        Err(trouble) => Err(client.error("write volume.json")(trouble)),
    }
}

/// Answers of stores while volumes are opened, of this process: a start that is slow and goes on
/// can be told from a start that hangs.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn answers() -> u64 {
    ANSWERS.load(Ordering::Relaxed)
}

fn count_answer() {
    ANSWERS.fetch_add(1, Ordering::Relaxed);
}

/// Times that the probe is put in the version that is there, while others probe too.
const PROBES: u32 = 4;

/// Tests that the store honours conditions: answers the version of the probe. It stays: another
/// server may be probing at the same time.
async fn probe(client: &Client) -> Result<String, Error> {
    let failed = client.error("write the probe");
    const BODY: &[u8] = b"whether this store honours conditions\n";
    let body = || Bytes::from_static(BODY);
    let told = client.put(PROBE, body(), When::Always).await;
    let told = told.map_err(&failed)?;
    count_answer();
    let refused = |what| Error::Conditional {
        place: client.place.clone(),
        what,
    };
    match client.put(PROBE, body(), When::Absent).await {
        Err(Trouble::Changed) => {}
        Ok(_) => {
            return Err(refused(
                "overwrote an object that was to be put only if absent",
            ));
        }
        Err(trouble) => return Err(failed(trouble)),
    }
    match client.put(PROBE, body(), When::Is(NO_VERSION.into())).await {
        Err(Trouble::Changed) => {}
        Ok(_) => {
            return Err(refused(
                "overwrote an object in another version than the one named",
            ));
        }
        Err(trouble) => return Err(failed(trouble)),
    }
    let mut seen = match told {
        Some(told) => told,
        None => version(client).await?,
    };
    let mut wrong = Err(failed(Trouble::Changed));
    for _ in 0..PROBES {
        let put = client.put(PROBE, body(), When::Is(seen.clone())).await;
        let now = version(client).await?;
        match put {
            Ok(told) if told.as_ref().is_none_or(|told| *told == now) => {
                client.learn(Some(&now), BODY);
                return Ok(now);
            }
            Ok(_) => wrong = Err(refused(UNLIKE)),
            Err(Trouble::Changed) if now == seen => {
                return Err(refused(
                    "refused to overwrite an object in the version that it has",
                ));
            }
            // Another server's probe.
            Err(Trouble::Changed) => {}
            Err(trouble) => return Err(failed(trouble)),
        }
        seen = now;
    }
    wrong
}

/// The complaint about a store whose versions cannot be compared.
const UNLIKE: &str = "tells one version (ETag) of an object where it is put or listed, and another where it is looked at";

/// The version that the probe has.
async fn version(client: &Client) -> Result<String, Error> {
    let found = client.head(PROBE).await;
    let found = found.map_err(client.error("look at the probe"))?;
    found.tag.ok_or_else(|| Error::Conditional {
        place: client.place.clone(),
        what: "tells no versions (ETag)",
    })
}

/// Tests that a list tells the versions that a put, and a look at the object itself, told.
async fn same_versions(
    client: &Client,
    probed: String,
    listed: Option<String>,
) -> Result<(), Error> {
    if listed.as_ref() == Some(&probed) {
        return Ok(());
    }
    // Another server may have probed before the list or after it.
    let now = version(client).await?;
    if now != probed || listed.as_ref() == Some(&now) {
        return Ok(());
    }
    Err(Error::Conditional {
        place: client.place.clone(),
        what: UNLIKE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_for_calls_are_there_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(6)
            .thread_keep_alive(FOR_GOOD)
            .thread_name("tg-start-all")
            .build()
            .unwrap();
        runtime.block_on(start_all(6));
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
        };
        let named = all
            .map(name)
            .filter(|name| name.trim_end() == "tg-start-all");
        assert_eq!(named.count(), 6);
    }
}
