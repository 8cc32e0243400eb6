//! One put or get: what the parts that go together become at the store.
//!
//! A put names the version that it replaces, or that there is none. If that is not so any more, the
//! object is looked at: content that this device tried to put before, and had no answer for, is its
//! own; anything else is somebody else's, and the device is lost: what the cache believes of the
//! volume may be wrong, and to go on would overwrite.
//!
//! ```text
//!   put ---- done ----------> known in its new version
//!    | \---- refused -------> as it was; the request failed
//!    |  \--- no answer -----> remembered as tried; the request failed, the cache keeps its pages and comes again
//!    |- changed -> look: this content -> done | tried before -> again | same version -> again | other -> lost
//!    '- done, in a version that cannot be that of the content -> look: this content -> done | other -> the request failed
//! ```
//!
//! A discard of a whole object puts an empty one instead of deleting it: a delete has no condition,
//! so a stranger's content would go unnoticed, and a late put that creates the object could bring
//! old content back.

use bytes::Bytes;
use env::IoError;
use frames::Content as _;
use policy::units::PAGE_SIZE;

use crate::client::{Found, Trouble, When};
use crate::error::{BROKEN, Lie};
use crate::known::{Digest, Digester, Seen};
use crate::layout::name_of;
use crate::queue::{Part, Want};
use crate::request::lock;
use crate::shared::{Shared, WholePart};

/// Times that a put is tried whose version turns out to be another one of this device's.
const TRIES: u32 = 4;

/// True if the writes among `parts` leave no byte of `len` as it was.
fn covers<T>(parts: &[Part<T>], len: u64) -> bool {
    let mut ranges: Vec<_> = parts.iter().map(|part| &part.range).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let reached = ranges.iter().try_fold(0, |reached, range| {
        (range.start <= reached).then_some(range.end.max(reached))
    });
    reached.is_some_and(|reached| reached >= len)
}

/// A length or place within an object.
fn within(bytes: u64) -> usize {
    usize::try_from(bytes).expect("an object is at most 64 MiB")
}

/// Puts what `parts` say into the object.
pub(crate) async fn write(
    shared: &Shared,
    object: u64,
    parts: &[WholePart],
) -> Result<(), IoError> {
    let len = shared.geometry.object_len(object);
    let wiped = parts
        .iter()
        .rposition(|part| part.want == Want::Discard && part.range == (0..len));
    let rest = &parts[wiped.map_or(0, |at| at + 1)..];
    let only_zeroes = rest.iter().all(|part| part.want == Want::Discard);
    let full = wiped.is_some() || covers(rest, len);
    for _ in 0..TRIES {
        shared.check_write()?;
        let (has_data, seen) = {
            let known = lock(&shared.known);
            (known.has_data(object), known.seen(object))
        };
        if only_zeroes && !has_data && seen.tried.is_empty() {
            return Ok(());
        }
        let mut body = Vec::new();
        let when = base(
            shared,
            object,
            &seen,
            (!full && has_data).then_some(&mut body),
        )
        .await?;
        // Nothing is left of it: see the module's header.
        let emptied = only_zeroes && (full || body.is_empty());
        if emptied {
            body = Vec::new();
        } else {
            body.resize(within(len), 0);
            rest.iter().for_each(|part| apply(shared, part, &mut body));
        }
        let body = Bytes::from(body);
        shared.check_write()?;
        if put(shared, object, body, when).await? {
            return Ok(());
        }
    }
    Err(BROKEN)
}

/// One part of a write into the object's content.
fn apply(shared: &Shared, part: &WholePart, body: &mut [u8]) {
    let place = &mut body[within(part.range.start)..within(part.range.end)];
    match part.want {
        Want::Discard => place.fill(0),
        Want::Write => part
            .whole
            .with(|request| shared.arena.copy_from_request(request, part.from, place)),
        Want::Read => unreachable!("reads go another way"),
    }
}

/// The base that a put has to replace; reads the object's content into `content` if that is wanted.
async fn base(
    shared: &Shared,
    object: u64,
    seen: &Seen,
    content: Option<&mut Vec<u8>>,
) -> Result<When, IoError> {
    let exists = lock(&shared.known).exists(object);
    if content.is_none() && seen.tried.is_empty() {
        if !exists {
            return Ok(When::Absent);
        }
        if let Some(tag) = &seen.tag {
            return Ok(When::Is(tag.to_string()));
        }
        return match shared.client.head(&name_of(object)).await {
            Ok(found) => {
                agree(shared, object, found.len)?;
                lock(&shared.known).found(object, found.tag.as_deref(), found.len > 0);
                found.tag.map(When::Is).ok_or(BROKEN)
            }
            Err(trouble) => Err(shared.missing_is_lost(object, trouble)),
        };
    }
    let (found, digest) = match look(shared, object, content).await {
        Ok(looked) => looked,
        Err(Trouble::Missing(_)) if !exists => return Ok(When::Absent),
        Err(trouble) => return Err(shared.missing_is_lost(object, trouble)),
    };
    let same = seen.tag.is_some() && seen.tag.as_deref() == found.tag.as_deref();
    let unknown = seen.tag.is_none() && exists && seen.tried.is_empty();
    if same || unknown {
        agree(shared, object, found.len)?;
    }
    if !same {
        if !unknown && !seen.tried.contains(&digest) {
            return Err(shared.changed(object));
        }
        lock(&shared.known).found(object, found.tag.as_deref(), found.len > 0);
    }
    found.tag.map(When::Is).ok_or(BROKEN)
}

/// Holds the length of an object, of which nothing else was seen to change, against what is known
/// of it: an answer without the content must not be taken for an object without content.
fn agree(shared: &Shared, object: u64, len: u64) -> Result<(), IoError> {
    let known = lock(&shared.known);
    let may_be_empty = !known.has_data(object) || known.is_unproven(object);
    let may_be_full = known.has_data(object) || !known.exists(object);
    drop(known);
    let wanted = shared.geometry.object_len(object);
    if (len == 0 && may_be_empty) || (len == wanted && may_be_full) {
        return Ok(());
    }
    let told = format!("is {len}, where the object has {wanted} or none");
    let lie = Lie::new("Content-Length", told);
    shared.client.disbelieve("get", &name_of(object), &lie);
    Err(BROKEN)
}

/// Reads an object whole: its version, and a digest of its content.
async fn look(
    shared: &Shared,
    object: u64,
    mut content: Option<&mut Vec<u8>>,
) -> Result<(Found, Digest), Trouble> {
    let len = shared.geometry.object_len(object);
    let mut digester = Digester::new();
    let take = |_, piece: &[u8]| {
        digester.add(piece);
        if let Some(content) = &mut content {
            let room = within(len) - content.len();
            content.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    };
    let found = shared.client.get(&name_of(object), None, take).await?;
    if found.len != 0 && found.len != len {
        return Err(Trouble::Changed);
    }
    Ok((found, digester.end()))
}

/// Sends a put. True: done. False: an earlier try of this device was there; to be tried again on
/// top of it.
async fn put(shared: &Shared, object: u64, body: Bytes, when: When) -> Result<bool, IoError> {
    let name = name_of(object);
    let has_data = !body.is_empty();
    lock(&shared.known).put_begins(object);
    let answer = shared.client.put(&name, body.clone(), when.clone()).await;
    match answer {
        Ok(tag) => match shared.client.doubt(tag.as_deref(), &when, &body) {
            None => {
                lock(&shared.known).put_done(object, tag.as_deref(), has_data);
                Ok(true)
            }
            Some(lie) => {
                let looked = look(shared, object, None).await;
                prove(shared, object, &body, &lie, looked)
            }
        },
        Err(Trouble::Changed) => {
            let looked = look(shared, object, None).await;
            settle(shared, object, &body, &when, looked)
        }
        Err(trouble) => {
            let certain = matches!(
                trouble,
                Trouble::Refused(_) | Trouble::Missing(_) | Trouble::RunOut
            );
            let tried = (!certain).then(|| Digest::of(&body));
            lock(&shared.known).put_failed(object, tried);
            Err(trouble.io())
        }
    }
}

/// A put was answered with a version that may not be that of its content: the content decides.
fn prove(
    shared: &Shared,
    object: u64,
    body: &Bytes,
    lie: &Lie,
    looked: Result<(Found, Digest), Trouble>,
) -> Result<bool, IoError> {
    let own = Digest::of(body);
    let mut known = lock(&shared.known);
    match looked {
        Ok((found, digest)) if digest == own => {
            // The store has come to encrypt: its versions are no MD5 from now on.
            shared.client.learn(found.tag.as_deref(), body);
            known.put_done(object, found.tag.as_deref(), found.len > 0);
            Ok(true)
        }
        looked => {
            known.put_failed(object, Some(own));
            drop(known);
            shared.client.disbelieve("put", &name_of(object), lie);
            Err(match looked {
                Ok(_) | Err(Trouble::Missing(_)) => BROKEN,
                Err(trouble) => trouble.io(),
            })
        }
    }
}

/// A put met another version than the one it named: whose?
fn settle(
    shared: &Shared,
    object: u64,
    body: &Bytes,
    when: &When,
    looked: Result<(Found, Digest), Trouble>,
) -> Result<bool, IoError> {
    let own = Digest::of(body);
    let mut known = lock(&shared.known);
    match looked {
        Ok((found, digest)) => {
            let tag = found.tag.as_deref();
            let unchanged = matches!(when, When::Is(wanted) if tag == Some(wanted.as_str()));
            if digest == own {
                known.put_done(object, tag, found.len > 0);
                return Ok(true);
            }
            if known.seen(object).tried.contains(&digest) {
                known.put_done(object, tag, found.len > 0);
                return Ok(false);
            }
            known.put_failed(object, None);
            drop(known);
            if unchanged {
                // The store refused for a moment: S3 answers so while another put of the object
                // ends.
                return Ok(false);
            }
            Err(shared.changed(object))
        }
        Err(Trouble::Missing(_)) if matches!(when, When::Absent) => {
            known.put_failed(object, None);
            Ok(false)
        }
        Err(trouble) => {
            known.put_failed(object, Some(own));
            drop(known);
            Err(shared.missing_is_lost(object, trouble))
        }
    }
}

/// Fills `parts`, all of one object and near each other.
pub(crate) async fn read(shared: &Shared, object: u64, parts: &[WholePart]) -> Result<(), IoError> {
    shared.check()?;
    if shared.damaged.contains_key(&object) {
        return Err(BROKEN);
    }
    let (has_data, is_unproven, before) = {
        let known = lock(&shared.known);
        let has_data = known.has_data(object);
        (has_data, known.is_unproven(object), known.seen(object))
    };
    if !has_data || (is_unproven && !prove_data(shared, object).await?) {
        parts.iter().for_each(|part| zero(shared, part));
        return Ok(());
    }
    let begin = parts.iter().map(|part| part.range.start).min().unwrap_or(0);
    let end = parts.iter().map(|part| part.range.end).max().unwrap_or(0);
    let take = |at: u64, piece: &[u8]| {
        let at = begin + at;
        for part in parts {
            let from = part.range.start.max(at);
            let to = part.range.end.min(at + piece.len() as u64);
            if from < to {
                let bytes = &piece[within(from - at)..within(to - at)];
                let place = part.from + within(from - part.range.start);
                part.whole
                    .with(|request| shared.arena.copy_to_request(request, place, bytes));
            }
        }
    };
    let found = match shared
        .client
        .get(&name_of(object), Some(begin..end), take)
        .await
    {
        Ok(found) => found,
        Err(trouble) => return Err(unread(shared, object, &before, trouble).await),
    };
    let after = lock(&shared.known).seen(object);
    let certain = before.certain().filter(|_| before == after);
    let other = certain.is_some_and(|tag| Some(tag) != found.tag.as_deref());
    if other {
        return Err(shared.changed(object));
    }
    if found.len != shared.geometry.object_len(object) {
        return Err(shared.changed(object));
    }
    if after == Seen::default() {
        // Its version was forgotten: from now on it is known again if somebody else changes it.
        lock(&shared.known).found(object, found.tag.as_deref(), true);
    }
    Ok(())
}

/// Looks at an object that a list called empty. True: it has data.
async fn prove_data(shared: &Shared, object: u64) -> Result<bool, IoError> {
    let before = lock(&shared.known).seen(object);
    let found = match shared.client.head(&name_of(object)).await {
        Ok(found) => found,
        Err(trouble) => return Err(shared.missing_is_lost(object, trouble)),
    };
    agree(shared, object, found.len)?;
    let mut known = lock(&shared.known);
    // A put meanwhile knows better.
    if known.is_unproven(object) && known.seen(object) == before && !before.flying {
        known.found(object, found.tag.as_deref(), found.len > 0);
    }
    Ok(known.has_data(object))
}

/// Why a read failed: of an object that somebody cut, stores say no more than that there is no such
/// range.
async fn unread(shared: &Shared, object: u64, before: &Seen, trouble: Trouble) -> IoError {
    if matches!(trouble, Trouble::Failed(_) | Trouble::Length)
        && let Ok(found) = shared.client.head(&name_of(object)).await
    {
        // A put of ours that had no answer may have changed it.
        let is_quiet = !before.flying
            && before.tried.is_empty()
            && *before == lock(&shared.known).seen(object);
        if is_quiet && found.len != shared.geometry.object_len(object) {
            return shared.changed(object);
        }
        if matches!(trouble, Trouble::Length) {
            let lie = Lie::new("body", "is not as long as it says");
            shared.client.disbelieve("get", &name_of(object), &lie);
        }
    }
    shared.missing_is_lost(object, trouble)
}

/// Zeroes a part's share of the frames of a read.
pub(crate) fn zero(shared: &Shared, part: &WholePart) {
    let (from, len) = (part.from, within(part.range.end - part.range.start));
    part.whole
        .with(|request| zero_frames(&shared.arena, request, from, len));
}

/// Zeroes `len` bytes of the frames of a read from byte `from` on.
pub(crate) fn zero_frames(arena: &os::Arena, request: &env::IoRequest, from: usize, len: usize) {
    let page = within(PAGE_SIZE);
    let mut done = 0;
    while done < len {
        let (place, inside) = ((from + done) / page, (from + done) % page);
        let part = (page - inside).min(len - done);
        arena.zero(&request.busy[place], inside, part);
        done += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::IoClass;
    use std::ops::Range;

    #[expect(clippy::single_range_in_vec_init, reason = "a list of ranges")]
    #[test]
    fn one_range_covers_or_not() {
        assert!(covers(&parts(&[0..10]), 10));
        assert!(!covers(&parts(&[1..10]), 10));
        assert!(!covers(&parts(&[0..9]), 10));
    }

    fn parts(ranges: &[Range<u64>]) -> Vec<Part<()>> {
        ranges
            .iter()
            .map(|range| Part {
                whole: (),
                want: Want::Write,
                range: range.clone(),
                from: 0,
                class: IoClass::Writeback,
            })
            .collect()
    }

    #[test]
    fn what_covers_an_object() {
        assert!(covers(&parts(&[5..10, 0..5]), 10));
        assert!(covers(&parts(&[0..7, 2..4, 6..10]), 10));
        assert!(!covers(&parts(&[0..5, 6..10]), 10));
        assert!(!covers(&parts(&[]), 10));
    }
}
