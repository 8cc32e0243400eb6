//! The C interface: `include/governor.h`, where each function is described.
//!
//! A governor and a member are boxes behind opaque pointers. Nothing unwinds into C: what panics
//! here is caught and answered as a code. The header says what a caller promises: pointers come
//! from here and were not freed, and a shrinker's functions may be called from another thread.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::{Ask, Error, Freeable, Governor, Member, Scanned, Share, Shrinker};

const OK: c_int = 0;
const NULL: c_int = -1;
const INVALID: c_int = -2;
const REGISTERED: c_int = -3;
const FULL: c_int = -4;
const IN_SCAN: c_int = -5;
const SYSTEM: c_int = -6;
const PANIC: c_int = -7;
/// Longest wait of `tg_reserve`.
const WAIT_MAX: Duration = Duration::from_secs(10);

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// `struct tg_shrinker`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TgShrinker {
    size: u32,
    count: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    scan: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> u64>,
    drop: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// `struct tg_share`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TgShare {
    size: u32,
    floor: u64,
    ceiling: u64,
    weight: f64,
    miss_cost_ns: u64,
}

struct Foreign {
    count: unsafe extern "C" fn(*mut c_void) -> u64,
    scan: unsafe extern "C" fn(*mut c_void, u64, u64) -> u64,
    /// Set when it is a member: a caller that is refused keeps `data`.
    drop: OnceLock<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}

// SAFETY: the header says that the functions are called from the governor's thread; `data` is
// handed to them and not touched here.
unsafe impl Send for Foreign {}
// SAFETY: the same; and the governor makes one call at a time.
unsafe impl Sync for Foreign {}

impl Shrinker for Foreign {
    fn count(&self) -> Freeable {
        // SAFETY: a function of the caller's with the `data` that it gave for it.
        Freeable::bytes(unsafe { (self.count)(self.data) })
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        let left = u64::try_from(ask.time_left().as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: as above.
        Scanned::freed(unsafe { (self.scan)(self.data, ask.bytes, left) })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(drop) = self.drop.get() {
            // SAFETY: as above; nobody calls anything with `data` after the last owner of this has
            // gone.
            unsafe { drop(self.data) }
        }
    }
}

fn says(words: impl Into<String>, code: c_int) -> c_int {
    LAST.set(words.into());
    code
}

fn failed(error: &Error) -> c_int {
    let code = match error {
        Error::Registered { .. } => REGISTERED,
        Error::Full { .. } => FULL,
        Error::InScan { .. } => IN_SCAN,
        Error::NoThread { .. } => SYSTEM,
        _ => INVALID,
    };
    says(error.to_string(), code)
}

/// Runs it; a panic becomes a code.
fn guarded(what: impl FnOnce() -> c_int) -> c_int {
    let caught = catch_unwind(AssertUnwindSafe(what));
    caught.unwrap_or_else(|_| {
        says(
            "a bug of the library; see its message on the standard error",
            PANIC,
        )
    })
}

/// What a pointer points to, or the code for null.
///
/// # Safety
/// It is null, or points to a live `T` that nobody changes.
unsafe fn borrowed<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, c_int> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| says(format!("{name} is null"), NULL))
}

/// Puts a new box where the caller wants it.
///
/// # Safety
/// `place` is not null and can be written to.
unsafe fn give<T>(place: *mut *mut T, value: T) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
    OK
}

/// Copies as much of a text as fits, with a zero; answers its length.
///
/// # Safety
/// `place` is null, or has `size` bytes that can be written to.
unsafe fn copy(text: &str, place: *mut c_char, size: usize) -> usize {
    if !place.is_null() && size > 0 {
        let length = text.len().min(size - 1);
        // SAFETY: `length` and the zero behind it fit in `size`, and a text of ours does not lie in
        // the caller's buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), place, length);
            place.add(length).write(0);
        }
    }
    text.len()
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_governor_new(limit: u64, governor: *mut *mut Governor) -> c_int {
    guarded(|| {
        if governor.is_null() {
            return says("governor is null", NULL);
        }
        match Governor::new(limit) {
            // SAFETY: not null; the header promises that it can be written to.
            Ok(made) => unsafe { give(governor, made) },
            Err(error) => failed(&error),
        }
    })
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_governor_free(governor: *mut Governor) {
    guarded(|| {
        if !governor.is_null() {
            // SAFETY: it came out of a box in `tg_governor_new` and was not freed.
            drop(unsafe { Box::from_raw(governor) });
        }
        OK
    });
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_governor_set_limit(governor: *mut Governor, limit: u64) -> c_int {
    // SAFETY: the header's promise.
    guarded(|| match unsafe { borrowed(governor, "governor") } {
        Ok(governor) => governor
            .set_limit(limit)
            .map_or_else(|error| failed(&error), |()| OK),
        Err(code) => code,
    })
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_report(
    governor: *const Governor,
    text: *mut c_char,
    size: usize,
) -> usize {
    let mut length = 0;
    // SAFETY: the header's promise.
    guarded(|| match unsafe { borrowed(governor, "governor") } {
        Ok(governor) => {
            // SAFETY: the header's promise of `text` and `size`.
            length = unsafe { copy(&governor.report().to_string(), text, size) };
            OK
        }
        Err(code) => code,
    });
    length
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_register(
    governor: *const Governor,
    name: *const c_char,
    share: *const TgShare,
    shrinker: *const TgShrinker,
    data: *mut c_void,
    member: *mut *mut Member,
) -> c_int {
    // SAFETY: all of these are as the header has it; null is answered as a code.
    guarded(|| unsafe {
        let (governor, shrinker) = match (
            borrowed(governor, "governor"),
            borrowed(shrinker, "shrinker"),
        ) {
            (Ok(governor), Ok(shrinker)) => (governor, shrinker),
            (Err(code), _) | (_, Err(code)) => return code,
        };
        if name.is_null() || member.is_null() {
            return says("name or member is null", NULL);
        }
        let Ok(name) = CStr::from_ptr(name).to_str() else {
            return says("the name is not UTF-8", INVALID);
        };
        let (Some(count), Some(scan)) = (shrinker.count, shrinker.scan) else {
            return says(format!("{name}: a shrinker needs count and scan"), NULL);
        };
        if shrinker.size as usize != size_of::<TgShrinker>() {
            return says(format!("{name}: tg_shrinker.size is not its size"), NULL);
        }
        let share = match share.as_ref() {
            None => Share::default(),
            Some(share) if share.size as usize == size_of::<TgShare>() => share_of(share),
            Some(_) => return says(format!("{name}: tg_share.size is not its size"), NULL),
        };
        let foreign = Arc::new(Foreign {
            count,
            scan,
            drop: OnceLock::new(),
            data,
        });
        match governor.register(name, share, foreign.clone()) {
            Ok(made) => {
                if let Some(drop) = shrinker.drop {
                    let _ = foreign.drop.set(drop);
                }
                give(member, made)
            }
            Err(error) => failed(&error),
        }
    })
}

fn share_of(share: &TgShare) -> Share {
    let mut made = Share::default().floor(share.floor);
    if share.ceiling > 0 {
        made = made.ceiling(share.ceiling);
    }
    if share.weight != 0.0 {
        made = made.weight(share.weight);
    }
    if share.miss_cost_ns > 0 {
        made = made.miss_cost(Duration::from_nanos(share.miss_cost_ns));
    }
    made
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_member_free(member: *mut Member) {
    guarded(|| {
        if !member.is_null() {
            // SAFETY: it came out of a box in `tg_register` and was not freed.
            drop(unsafe { Box::from_raw(member) });
        }
        OK
    });
}

/// Does something with a member; nothing with null.
///
/// # Safety
/// As for `borrowed`.
unsafe fn with(member: *const Member, what: impl FnOnce(&Member)) {
    // SAFETY: the caller's promise.
    guarded(|| match unsafe { borrowed(member, "member") } {
        Ok(member) => {
            what(member);
            OK
        }
        Err(code) => code,
    });
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_grew(member: *const Member, bytes: u64) {
    // SAFETY: the header's promise.
    unsafe { with(member, |member| member.grew(bytes)) }
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_shrank(member: *const Member, bytes: u64) {
    // SAFETY: the header's promise.
    unsafe { with(member, |member| member.shrank(bytes)) }
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_held(member: *const Member) -> u64 {
    let mut held = 0;
    // SAFETY: the header's promise.
    unsafe { with(member, |member| held = member.held()) }
    held
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_reserve(member: *const Member, bytes: u64, timeout_ns: u64) -> c_int {
    // SAFETY: the header's promise.
    guarded(|| match unsafe { borrowed(member, "member") } {
        Ok(member) => {
            let at_most = Duration::from_nanos(timeout_ns).min(WAIT_MAX);
            match member.reserve_within(bytes, at_most) {
                Ok(permit) => {
                    permit.keep();
                    OK
                }
                Err(error) => failed(&error),
            }
        }
        Err(code) => code,
    })
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_release(member: *const Member, bytes: u64) {
    // SAFETY: the header's promise.
    unsafe { tg_shrank(member, bytes) }
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_evicted(member: *const Member, hash: u64, bytes: u64) {
    // SAFETY: the header's promise.
    unsafe { with(member, |member| member.evicted(hash, bytes)) }
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_missed(member: *const Member, hash: u64, cost_ns: u64) {
    // SAFETY: the header's promise.
    unsafe {
        with(member, |member| match cost_ns {
            0 => member.missed(hash),
            _ => member.missed_at(hash, Duration::from_nanos(cost_ns)),
        });
    }
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_used(member: *const Member) {
    // SAFETY: the header's promise.
    unsafe { with(member, Member::used) }
}

/// See the header.
///
/// # Safety
/// As the header has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_last_error(text: *mut c_char, size: usize) -> usize {
    // SAFETY: the header's promise of `text` and `size`.
    LAST.with_borrow(|last| unsafe { copy(last, text, size) })
}
