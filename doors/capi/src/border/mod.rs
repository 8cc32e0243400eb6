//! The border: what C hands over, and what it gets back.
//!
//! A pointer of C's arrives as `In<T>` (to be read) or `Out<T>` (to be written); both are the bare
//! pointer. The caller promises that they point to the object that the header names, for as long as
//! the call lasts; this cannot be checked: null is, and the length that came with it is believed.
//!
//! Invariants
//!   1. An `In` or `Out` is null, or points to as many `T` as the header says, until the call
//!      returns. They are made by C alone, but for texts that live as long as the program or, of
//!      `tg_error`, until the next failure of the thread.
//!   2. A borrow of one ends with the call: no slice is kept. A request of a queue keeps
//!      its pointer (`Kept`), and the header makes its memory the library's until it is reaped.
//!   3. Nothing unwinds out of `guarded`.
//!
//! Why a slice is sound while other threads of the caller's may write to it: it is not, in Rust's
//! terms, so the header forbids it, as it is forbidden for `read(2)`.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use crate::failure::{Failure, TG_CLOSED, TG_FORKED, TG_OK, TG_PANIC, keep};

#[macro_use]
mod macros;
pub(crate) mod slots;

/// Bytes, as C has them.
pub(crate) fn count(bytes: impl TryInto<i64>) -> i64 {
    bytes.try_into().unwrap_or(i64::MAX)
}

/// A result: what C gets when it is well.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A type that a function of the header answers.
pub(crate) trait Answer {
    /// Its answer to a failure.
    fn failed(code: i32) -> Self;
}

impl Answer for i32 {
    fn failed(code: i32) -> Self {
        code
    }
}

impl Answer for i64 {
    fn failed(code: i32) -> Self {
        Self::from(code)
    }
}

impl Answer for u64 {
    fn failed(_code: i32) -> Self {
        0
    }
}

impl Answer for usize {
    fn failed(_code: i32) -> Self {
        0
    }
}

impl Answer for In<c_char> {
    fn failed(_code: i32) -> Self {
        Self::default()
    }
}

impl Answer for Out<c_void> {
    fn failed(_code: i32) -> Self {
        Self::default()
    }
}

/// Runs a function of the header: a failure is kept for `tg_error`.
#[inline]
pub(crate) fn guarded<T: Answer>(what: impl FnOnce() -> Result<T>) -> T {
    caught(what).unwrap_or_else(|failure| T::failed(keep(failure)))
}

/// Runs something: a panic becomes a failure.
#[inline]
pub(crate) fn caught<T>(what: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| Err(panicked()))
}

#[cold]
fn panicked() -> Failure {
    let words = "a bug of the library; its message is on the standard error";
    Failure::new(TG_PANIC, words)
}

/// A name of the header's for a type.
pub(crate) trait CType {
    /// As C writes it.
    fn name() -> String;
}

/// `const T *`.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> Default for In<T> {
    fn default() -> Self {
        Self(std::ptr::null())
    }
}

impl<T> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> In<T> {
    /// `count` of them.
    pub(crate) fn read_many(self, count: usize, name: &str) -> Result<Vec<T>> {
        if count > 0 && self.is_null() {
            return Err(Failure::null(name));
        }
        // SAFETY: there are `count` of them (invariant 1).
        Ok((0..count)
            .map(|at| unsafe { self.0.add(at).read_unaligned() })
            .collect())
    }
}

impl<T: Sized_> In<T> {
    /// A struct of options, of which the caller knows the first `size` bytes: the rest is zero.
    pub(crate) fn read_sized(self, name: &str) -> Result<T> {
        if self.is_null() {
            return Ok(T::default());
        }
        // SAFETY: not null, and the first field of a `Sized_` is its size (invariant 1).
        let size = unsafe { self.0.cast::<u32>().read_unaligned() } as usize;
        let (least, most) = (size_of::<u64>(), size_of::<T>());
        if size < least || size > most {
            return Err(Failure::invalid(format!(
                "{name}.size is {size}, and this library knows {least} to {most} bytes; set it to sizeof({})",
                T::name()
            )));
        }
        let mut value = T::default();
        // SAFETY: both have `size` bytes at least, and every pattern of bits is a `T`: numbers and
        // bare pointers.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.cast::<u8>(), (&raw mut value).cast::<u8>(), size);
        }
        Ok(value)
    }
}

impl In<c_char> {
    pub(crate) fn of_text(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    fn c_str<'a>(self, name: &str) -> Result<&'a CStr> {
        if self.is_null() {
            return Err(Failure::null(name));
        }
        // SAFETY: not null, so it is a text that ends with a zero (invariant 1).
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// A text.
    pub(crate) fn text<'a>(self, name: &str) -> Result<&'a str> {
        let text = self.c_str(name)?.to_str();
        text.map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
    }

    /// A path: any bytes.
    pub(crate) fn path<'a>(self, name: &str) -> Result<&'a Path> {
        Ok(Path::new(OsStr::from_bytes(self.c_str(name)?.to_bytes())))
    }
}

impl In<c_void> {
    /// `len` bytes that are only read.
    pub(crate) fn bytes<'a>(self, len: usize, name: &str) -> Result<&'a [u8]> {
        match (len, self.is_null()) {
            (0, _) => Ok(&[]),
            (_, true) => Err(Failure::null(name)),
            // SAFETY: `len` bytes are there (invariant 1) and nobody writes to them meanwhile.
            (_, false) => Ok(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), len) }),
        }
    }
}

/// `T *`.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Default for Out<T> {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

impl<T> From<Out<T>> for In<T> {
    fn from(out: Out<T>) -> Self {
        Self(out.0.cast_const())
    }
}

impl<T> Out<T> {
    /// It is not null: to be asked before anything is made for it.
    pub(crate) fn there(self, name: &str) -> Result<Self> {
        if self.0.is_null() {
            return Err(Failure::null(name));
        }
        Ok(self)
    }
}

impl<T: Copy> Out<T> {
    /// Puts a value there.
    #[inline]
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so there is room for a `T` (invariant 1).
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Puts values there, as many as `max`.
    pub(crate) fn put_many(self, values: &[T], max: usize) {
        for (at, value) in values.iter().take(max).enumerate() {
            // SAFETY: there is room for `max` of them (invariant 1), so for this one.
            unsafe { self.0.add(at).write_unaligned(*value) }
        }
    }
}

impl<T: Sized_> Out<T> {
    /// Puts the beginning of a reading there that the caller knows: its `size` bytes.
    pub(crate) fn put_sized(self, mut value: T, name: &str) -> Result<()> {
        self.there(name)?;
        let size = In(self.0.cast_const())
            .read_sized(name)
            .map(|known: T| known.size())?;
        value.set_size(size);
        // SAFETY: the caller said that it has `size` bytes there, which `read_sized` has found to
        // be no more than a `T` has.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const value).cast::<u8>(),
                self.0.cast::<u8>(),
                size as usize,
            );
        }
        Ok(())
    }
}

impl Out<c_char> {
    /// Copies as much of a text as fits, with a zero; answers its length.
    pub(crate) fn put_text(self, text: &str, size: usize) -> usize {
        if !self.0.is_null() && size > 0 {
            let length = text.len().min(size - 1);
            // SAFETY: `length` and the zero behind it fit in `size`, and a text of ours does not
            // lie in the caller's buffer.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), self.0, length);
                self.0.add(length).write(0);
            }
        }
        text.len()
    }
}

impl Out<c_void> {
    /// Memory that the caller is given, and that is not touched here.
    pub(crate) fn of_memory(memory: *mut u8) -> Self {
        Self(memory.cast())
    }

    /// `len` bytes that are to be filled.
    #[inline]
    pub(crate) fn bytes<'a>(self, len: usize, name: &str) -> Result<&'a mut [u8]> {
        match (len, self.0.is_null()) {
            (0, _) => Ok(&mut []),
            (_, true) => Err(Failure::null(name)),
            // SAFETY: `len` bytes are there (invariant 1), and nobody else uses them meanwhile.
            // They may never have been written to: they are filled, and not read.
            (_, false) => Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast::<u8>(), len) }),
        }
    }
}

/// A struct that begins with its size as the caller knows it (a `u32`), and is numbers and bare
/// pointers only.
pub(crate) trait Sized_: CType + Copy + Default {
    fn size(&self) -> u32;
    fn set_size(&mut self, size: u32);
}

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) data: Out<c_void>,
    pub(crate) len: usize,
}

impl CType for Part {
    fn name() -> String {
        "struct iovec".into()
    }
}

/// Memory of a request, which is the library's until the request is reaped.
pub(crate) struct Kept {
    data: Out<c_void>,
    len: usize,
}

// SAFETY: a bare pointer that one thread at a time uses: the request moves from the thread that
// submits it to the one that carries it out.
unsafe impl Send for Kept {}

impl Kept {
    pub(crate) fn new(data: Out<c_void>, len: usize) -> Result<Self> {
        data.bytes(len, "data")?;
        Ok(Self { data, len })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.data.bytes(self.len, "data").unwrap_or_default()
    }
}

/// Functions of the caller's with what they are called with.
pub(crate) struct Callbacks {
    count: CountFn,
    scan: ScanFn,
    drop: OnceLock<DropFn>,
    data: *mut c_void,
}

/// `count`, `scan` and `drop` of the header's `tg_shrinker`.
pub(crate) type CountFn = unsafe extern "C" fn(*mut c_void) -> u64;
pub(crate) type ScanFn = unsafe extern "C" fn(*mut c_void, u64, u64) -> u64;
pub(crate) type DropFn = unsafe extern "C" fn(*mut c_void);

// SAFETY: the header says that the functions are called from the governor's threads, one call at a
// time; `data` is handed to them and not touched here.
unsafe impl Send for Callbacks {}
// SAFETY: the same.
unsafe impl Sync for Callbacks {}

impl Callbacks {
    pub(crate) fn new(count: CountFn, scan: ScanFn, data: Out<c_void>) -> Self {
        Self {
            count,
            scan,
            drop: OnceLock::new(),
            data: data.0,
        }
    }

    /// From now on `data` is given back by this: a caller that is refused keeps it.
    pub(crate) fn drop_by(&self, drop: Option<DropFn>) {
        if let Some(drop) = drop {
            let _ = self.drop.set(drop);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        // SAFETY: a function of the caller's with the `data` that it gave for it.
        unsafe { (self.count)(self.data) }
    }

    pub(crate) fn scan(&self, bytes: u64, left_ns: u64) -> u64 {
        // SAFETY: as above.
        unsafe { (self.scan)(self.data, bytes, left_ns) }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(drop) = self.drop.get() {
            // SAFETY: as above; nothing calls anything with `data` after the last owner of this has
            // gone.
            unsafe { drop(self.data) }
        }
    }
}

c_struct! {
    /// Pinned pages; `data` is null when they were given back.
    "tg_pin" Pin {
        data: In<c_void>,
        len: usize,
        words: [u64; 6],
    }
}

#[expect(dead_code, reason = "it is held until it is dropped")]
enum AnyPin {
    One(tidegate::Pin<'static>),
    Run(tidegate::PinRun<'static>),
}

const _: () = assert!(size_of::<AnyPin>() <= size_of::<[u64; 6]>() && align_of::<AnyPin>() <= 8);

impl Out<Pin> {
    /// Puts a pinned page there, of which `most` bytes are the file's.
    ///
    /// A pin borrows its file in Rust. It uses the frames and the table of the cache, which
    /// the cache's last owner gives back: `tg_cache_close` refuses while a page is pinned.
    #[inline(always)]
    pub(crate) fn put_page(self, pin: tidegate::Pin<'_>, most: usize) {
        // SAFETY: it lives no longer than the cache's memory, see above.
        let pin: tidegate::Pin<'static> = unsafe { std::mem::transmute(pin) };
        let bytes: &[u8] = &pin;
        let (data, len) = (bytes.as_ptr(), bytes.len());
        self.put_pin(data, len.min(most), AnyPin::One(pin));
    }

    /// The same of several pages.
    pub(crate) fn put_run(self, run: tidegate::PinRun<'_>, most: usize) {
        // SAFETY: as above.
        let run: tidegate::PinRun<'static> = unsafe { std::mem::transmute(run) };
        let bytes: &[u8] = &run;
        let (data, len) = (bytes.as_ptr(), bytes.len());
        self.put_pin(data, len.min(most), AnyPin::Run(run));
    }

    #[inline(always)]
    fn put_pin(self, data: *const u8, len: usize, pin: AnyPin) {
        // SAFETY: `there` was asked, so there is room for a `Pin` (invariant 1), and for an
        // `AnyPin` in its words (asserted above).
        unsafe {
            (*self.0).data = In(data.cast());
            (*self.0).len = len;
            (&raw mut (*self.0).words).cast::<AnyPin>().write(pin);
        }
    }

    /// Gives the pages back that `put_page` or `put_run` has put there. A copy of a pin that was
    /// given back cannot be told from it, which the header says.
    #[inline]
    pub(crate) fn unpin(self) -> Result<i32> {
        self.there("pin")?;
        // SAFETY: not null, so there is a `Pin` (invariant 1): its words are those of an `AnyPin`
        // as long as `data` is not null, which it is from now on: they are dropped once.
        unsafe {
            if (*self.0).data.is_null() {
                let words = "the pin is empty: it was given back, or nothing was pinned with it";
                return Err(Failure::new(TG_CLOSED, words));
            }
            (*self.0).data = In::default();
            std::ptr::drop_in_place((&raw mut (*self.0).words).cast::<AnyPin>());
        }
        Ok(TG_OK)
    }
}

/// The answer to a call in a child of the process that a handle belongs to.
pub(crate) fn forked() -> Failure {
    Failure::new(
        TG_FORKED,
        "this handle belongs to the process before the fork, whose cache the child has not; build a cache of its own in \
         the child, or close everything before the fork",
    )
}
