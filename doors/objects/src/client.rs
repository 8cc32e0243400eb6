//! The store as the device uses it: every call has a bound in time, is counted, and its failure is
//! sorted.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use env::IoError;
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, UpdateVersion,
};

use crate::clock::Guard;
use crate::error::{AWAY, BROKEN, Error, Lie, TIMED_OUT, io_error};
use crate::layout;
use crate::local::DirectoryLock;
use crate::request::lock;
use crate::spare::Spare;

/// ENFILE, EMFILE.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

/// The requests to a store so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Writes that went together with another one of the same object.
    pub(crate) merged: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No answer within the bound: it may have been done, or be done later.
    Late,
    /// There is no such object.
    Missing(object_store::Error),
    /// The condition did not hold: somebody changed the object.
    Changed,
    /// The store refused it, and nothing was done.
    Refused(object_store::Error),
    /// Something failed on the way: it may have been done.
    Failed(object_store::Error),
    /// The content is not as long as it should be.
    Length,
    /// The answer cannot be so: it may have been done, or not.
    Lied(Lie),
    /// The lease has run out: nothing was sent.
    RunOut,
    /// The directory is not where it was locked. Objects that were put may have come there before,
    /// or somewhere else.
    Away,
}

/// Compares a version with the MD5 of a content, which S3 makes it of if it does not encrypt.
#[cfg(feature = "s3")]
fn is_md5(tag: &str, body: &[u8]) -> bool {
    use md5::{Digest as _, Md5};
    let tag = tag.trim_matches('"');
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
    tag.len() == 32
        && Md5::digest(body)
            .iter()
            .flat_map(digits)
            .eq(tag.chars().map(Some))
}

#[cfg(not(feature = "s3"))]
fn is_md5(_: &str, _: &[u8]) -> bool {
    false
}

/// Checks that a time of day is one that stores know.
fn dated(at: SystemTime) -> Result<(), Trouble> {
    if at >= UNIX_EPOCH {
        return Ok(());
    }
    let source = "the clock of this machine stands before 1970; set it".into();
    let store = "clock";
    Err(Trouble::Failed(object_store::Error::Generic {
        store,
        source,
    }))
}

impl Trouble {
    fn of(error: object_store::Error) -> Self {
        use object_store::Error as Store;
        if let Some(lie) = Lie::in_chain(&error) {
            return Self::Lied(lie.clone());
        }
        match error {
            Store::NotFound { .. } => Self::Missing(error),
            Store::AlreadyExists { .. } | Store::Precondition { .. } => Self::Changed,
            Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => Self::Refused(error),
            _ => Self::Failed(error),
        }
    }

    /// True if the process, or the system, had no descriptor for it.
    fn lacks_descriptor(&self) -> bool {
        matches!(self, Self::Failed(_))
            && matches!(self.io(), IoError::Failed { errno } if NO_DESCRIPTORS.contains(&errno))
    }

    /// The class for the program that made the request.
    pub(crate) fn io(&self) -> IoError {
        match self {
            Self::Late | Self::RunOut => TIMED_OUT,
            Self::Missing(error) | Self::Refused(error) | Self::Failed(error) => io_error(error),
            Self::Changed | Self::Length | Self::Lied(_) => BROKEN,
            Self::Away => AWAY,
        }
    }
}

/// The condition of a put.
#[derive(Clone, Debug)]
pub(crate) enum When {
    /// The object is not there.
    Absent,
    /// The object is still in this version.
    Is(String),
    /// In any case.
    Always,
}

/// The state of an object, from a look at it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) tag: Option<String>,
    /// Of the whole object.
    pub(crate) len: u64,
}

impl Found {
    fn of(meta: ObjectMeta) -> Self {
        Self {
            tag: meta.e_tag,
            len: meta.size,
        }
    }
}

/// A store, and a place in it.
pub(crate) struct Client {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The place, for messages.
    pub(crate) place: String,
    /// Bound on a call, retries of the client library included.
    pub(crate) timeout: Duration,
    /// Conditions on versions are looked at here: the store has none, and a lock stands against
    /// others.
    pub(crate) looks_first: bool,
    /// The lock: each put has a hold of it, and a turn at its object.
    pub(crate) lock: Weak<DirectoryLock>,
    /// Of a directory: what a call has where there are no descriptors.
    pub(crate) spare: Option<Spare>,
    /// The guard that says if puts of the volume's objects may be sent.
    pub(crate) guard: Arc<Guard>,
    pub(crate) counters: Counters,
    /// The version that a put makes is the MD5 of its content, as the probe's is.
    pub(crate) tags_are_md5: AtomicBool,
    /// The last answer that was not believed, until one to the same call is.
    lie: Mutex<Option<(&'static str, String)>>,
}

impl Client {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        place: String,
        timeout: Duration,
    ) -> Self {
        Self {
            store,
            prefix,
            place,
            timeout,
            looks_first: false,
            lock: Weak::new(),
            spare: None,
            guard: Arc::default(),
            counters: Counters::default(),
            tags_are_md5: AtomicBool::new(false),
            lie: Mutex::default(),
        }
    }

    /// Remembers an answer that is not believed, for people.
    pub(crate) fn disbelieve(&self, call: &'static str, name: &str, lie: &Lie) {
        let words = format!("{}: {call} {name}: {lie}; it is not believed", self.place);
        *lock(&self.lie) = Some((call, words));
    }

    /// The last answer that was not believed, if nothing was believed since.
    pub(crate) fn lie(&self) -> Option<String> {
        lock(&self.lie).as_ref().map(|(_, words)| words.clone())
    }

    /// Passes on what a call answered.
    fn heard<T>(
        &self,
        call: &'static str,
        name: &str,
        answer: Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        match &answer {
            Err(Trouble::Lied(lie)) => self.disbelieve(call, name, lie),
            Ok(_) if layout::object_of(name).is_some() => {
                lock(&self.lie).take_if(|(about, _)| *about == call);
            }
            _ => {}
        }
        answer
    }

    /// Learns from an object that was just read, or put, which versions the store gives out.
    pub(crate) fn learn(&self, tag: Option<&str>, body: &[u8]) {
        let are_md5 = tag.is_some_and(|tag| is_md5(tag, body));
        self.tags_are_md5.store(are_md5, Ordering::Relaxed);
    }

    /// Names a reason for which the version that a put answered may not be that of its content; the
    /// content has to say.
    pub(crate) fn doubt(&self, tag: Option<&str>, when: &When, body: &[u8]) -> Option<Lie> {
        let tag = tag?;
        if self.tags_are_md5.load(Ordering::Relaxed) {
            let told = "is not the MD5 of what was put, as it was of the probe";
            return (!is_md5(tag, body)).then(|| Lie::new("ETag", told));
        }
        let told = "is that of what was to be replaced";
        matches!(when, When::Is(old) if old == tag).then(|| Lie::new("ETag", told))
    }

    /// True for the version of an empty object, where versions tell.
    pub(crate) fn is_of_nothing(&self, tag: Option<&str>) -> bool {
        self.tags_are_md5.load(Ordering::Relaxed) && tag.is_some_and(|tag| is_md5(tag, b""))
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        self.bounded_by(self.timeout, call).await
    }

    async fn bounded_by<T>(
        &self,
        bound: Duration,
        call: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        // Stores date what they keep and sign, and end in a panic before 1970.
        let result = match dated(SystemTime::now()) {
            Ok(()) => match tokio::time::timeout(bound, call).await {
                Ok(result) => result,
                Err(_) => Err(Trouble::Late),
            },
            Err(trouble) => Err(trouble),
        };
        if matches!(
            result,
            Err(Trouble::Late
                | Trouble::Failed(_)
                | Trouble::Refused(_)
                | Trouble::Lied(_)
                | Trouble::Away)
        ) {
            count(&self.counters.failed, 1);
        }
        result
    }

    /// Makes a call; of a directory again, with the descriptors that are kept, where it had none.
    async fn with_spare<T, F: Future<Output = Result<T, Trouble>>>(
        &self,
        once: impl Fn() -> F,
    ) -> Result<T, Trouble> {
        let Some(spare) = &self.spare else {
            return once().await;
        };
        let call = spare.call().await;
        let answer = once().await;
        drop(call);
        if !matches!(&answer, Err(trouble) if trouble.lacks_descriptor()) {
            spare.keep();
            return answer;
        }
        let _lent = spare.lend().await;
        once().await
    }

    /// Looks at an object.
    pub(crate) async fn head(&self, name: &str) -> Result<Found, Trouble> {
        let answer = self.with_spare(|| self.head_once(name)).await;
        self.heard("look at", name, answer)
    }

    async fn head_once(&self, name: &str) -> Result<Found, Trouble> {
        count(&self.counters.heads, 1);
        let path = self.path(name);
        self.bounded(async {
            match self.store.head(&path).await {
                Ok(meta) => Ok(Found::of(meta)),
                Err(error) => Err(self.trouble(error).await),
            }
        })
        .await
    }

    /// Reads an object, or a range of it, in pieces: `take` gets each with its place from the
    /// range's start.
    pub(crate) async fn get(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        take: impl FnMut(u64, &[u8]),
    ) -> Result<Found, Trouble> {
        // Shared by the calls, of which one is made at a time.
        let take = Mutex::new(take);
        let once = || {
            let take = |at, piece: &[u8]| (*lock(&take))(at, piece);
            self.get_once(name, range.clone(), take)
        };
        let answer = self.with_spare(once).await;
        self.heard("get", name, answer)
    }

    async fn get_once(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        mut take: impl FnMut(u64, &[u8]),
    ) -> Result<Found, Trouble> {
        count(&self.counters.gets, 1);
        let path = self.path(name);
        let expected = range.as_ref().map(|range| range.end - range.start);
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            ..GetOptions::default()
        };
        self.bounded(async {
            let result = match self.store.get_opts(&path, options).await {
                Ok(result) => result,
                Err(error) => return Err(self.trouble(error).await),
            };
            let expected = expected.unwrap_or(result.meta.size);
            let found = Found::of(result.meta.clone());
            let mut done = 0;
            if let GetResultPayload::File(..) = result.payload {
                let bytes = result.bytes().await.map_err(Trouble::of)?;
                take(0, &bytes);
                done = bytes.len() as u64;
            } else {
                let mut stream = result.into_stream();
                while let Some(piece) = stream.next().await {
                    let piece = piece.map_err(Trouble::of)?;
                    if done + piece.len() as u64 > expected {
                        return Err(Trouble::Length);
                    }
                    take(done, &piece);
                    done += piece.len() as u64;
                }
            }
            count(&self.counters.bytes_read, done);
            if done == expected {
                Ok(found)
            } else {
                Err(Trouble::Length)
            }
        })
        .await
    }

    /// A small object, whole.
    pub(crate) async fn get_small(&self, name: &str) -> Result<(Vec<u8>, Found), Trouble> {
        const SMALL: usize = 64 << 10;
        let mut body = Vec::new();
        let found = self
            .get(name, None, |_, piece| {
                body.extend_from_slice(&piece[..piece.len().min(SMALL - body.len())]);
            })
            .await?;
        if found.len > SMALL as u64 {
            return Err(Trouble::Length);
        }
        Ok((body, found))
    }

    /// Writes an object; answers its version.
    pub(crate) async fn put(
        &self,
        name: &str,
        body: Bytes,
        when: When,
    ) -> Result<Option<String>, Trouble> {
        let once = || self.put_once(name, body.clone(), when.clone());
        let answer = self.with_spare(once).await;
        self.heard("put", name, answer)
    }

    async fn put_once(
        &self,
        name: &str,
        body: Bytes,
        when: When,
    ) -> Result<Option<String>, Trouble> {
        count(&self.counters.puts, 1);
        let path = self.path(name);
        let len = body.len() as u64;
        let is_object = layout::object_of(name).is_some();
        let bound = match is_object {
            // Not even on its way once another may have the volume.
            true => self.guard.left().ok_or(Trouble::RunOut)?.min(self.timeout),
            false => self.timeout,
        };
        let answer = self
            .bounded_by(bound, async {
                let turn = match self.lock.upgrade() {
                    Some(lock) => Some(lock.turn(name).await),
                    None => None,
                };
                let mode = match when {
                    When::Always => PutMode::Overwrite,
                    When::Absent => {
                        self.in_place().await?;
                        PutMode::Create
                    }
                    When::Is(tag) if self.looks_first => {
                        let there = self.store.head(&path).await.map_err(Trouble::of);
                        let there = match there {
                            Err(Trouble::Missing(_)) => return Err(Trouble::Changed),
                            other => other?,
                        };
                        if there.e_tag.as_ref() != Some(&tag) {
                            return Err(Trouble::Changed);
                        }
                        PutMode::Overwrite
                    }
                    When::Is(tag) => PutMode::Update(UpdateVersion {
                        e_tag: Some(tag),
                        version: None,
                    }),
                };
                let options = PutOptions {
                    mode,
                    ..PutOptions::default()
                };
                if is_object && self.guard.left().is_none() {
                    return Err(Trouble::RunOut);
                }
                // Last: until the store has it, it would be dropped here.
                let (body, in_place) = match turn {
                    Some(turn) => {
                        let (held, in_place) = turn.with(body);
                        (held, Some(in_place))
                    }
                    None => (body, None),
                };
                let put = self.store.put_opts(&path, body.into(), options).await;
                let put = put.map_err(Trouble::of)?;
                // The store makes the directory anew if it was removed since.
                match in_place.map(|found| found.get() == Some(&true)) {
                    Some(false) => Err(Trouble::Away),
                    Some(true) | None => Ok(put.e_tag),
                }
            })
            .await?;
        count(&self.counters.bytes_written, len);
        Ok(answer)
    }

    /// Checks that a directory is still where it was locked: the store would make another one for
    /// the object it is to create.
    async fn in_place(&self) -> Result<(), Trouble> {
        let Some(lock) = self.lock.upgrade() else {
            return Ok(());
        };
        match tokio::task::spawn_blocking(move || lock.in_place()).await {
            Ok(Ok(true)) => Ok(()),
            // A directory that cannot be looked at is not known to be there.
            _ => Err(Trouble::Away),
        }
    }

    /// Why a call failed; objects that a directory has taken with it are not missing.
    async fn trouble(&self, error: object_store::Error) -> Trouble {
        match Trouble::of(error) {
            missing @ Trouble::Missing(_) => self.in_place().await.err().unwrap_or(missing),
            trouble => trouble,
        }
    }

    /// Calls `take` for each object under the prefix: its name and what is known of it. Stops when
    /// `take` says so.
    pub(crate) async fn list(
        &self,
        mut take: impl FnMut(&str, Found) -> bool,
    ) -> Result<(), Trouble> {
        let mut stream = self.store.list(Some(&self.prefix));
        while let Some(meta) = self
            .bounded(async { stream.next().await.transpose().map_err(Trouble::of) })
            .await?
        {
            let name = {
                let Some(mut rest) = meta.location.prefix_match(&self.prefix) else {
                    continue;
                };
                match (rest.next(), rest.next()) {
                    (Some(name), None) => name.as_ref().to_owned(),
                    _ => continue,
                }
            };
            if !take(&name, Found::of(meta)) {
                break;
            }
        }
        Ok(())
    }

    /// The error of opening for a call that failed.
    pub(crate) fn error(&self, what: &'static str) -> impl Fn(Trouble) -> Error {
        let (place, after) = (self.place.clone(), self.timeout);
        move |trouble| {
            let place = place.clone();
            match trouble {
                Trouble::Late | Trouble::RunOut => Error::TimedOut { place, what, after },
                Trouble::Missing(source) | Trouble::Refused(source) | Trouble::Failed(source) => {
                    Error::Store {
                        place,
                        what,
                        source: Box::new(source),
                    }
                }
                Trouble::Changed => Error::Store {
                    place,
                    what,
                    source: Box::new(object_store::Error::Generic {
                        store: "Tidegate",
                        source: "somebody else is changing it at the same time; try again".into(),
                    }),
                },
                Trouble::Away => Error::Store {
                    place,
                    what,
                    source: Box::new(object_store::Error::Generic {
                        store: "Tidegate",
                        source: "the folder, or its lock, is not where it was; bring it back"
                            .into(),
                    }),
                },
                Trouble::Length => Error::Answer {
                    place,
                    what,
                    field: "body",
                    why: "is not as long as it should be".into(),
                },
                Trouble::Lied(Lie { field, why }) => Error::Answer {
                    place,
                    what,
                    field,
                    why,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_1970_a_store_is_not_asked() {
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        let Err(Trouble::Failed(error)) = dated(before) else {
            panic!("the store would end in a panic");
        };
        assert!(error.to_string().contains("before 1970"), "{error}");
        assert!(dated(UNIX_EPOCH).is_ok() && dated(SystemTime::now()).is_ok());
    }
}
