//! Pinned pages and maps as buffers of Python, without a copy.
//!
//! Invariants
//!   1. The bytes of a page stay where and as they are while it is pinned (`tidegate::OwnedPin`);
//!      those of a map stay where they are while it lives (`tidegate::Map`).
//!   2. A buffer that was exported holds a reference to its `Pin` or `Map`: that lives as long as
//!      any `memoryview` or array over it.
//!   3. `close` ends it only while no buffer is out; else it raises `BufferError`, as `mmap.close`
//!      does. A closed one exports nothing.
#![expect(unsafe_code, reason = "the buffer protocol takes a pointer")]

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tidegate::{File, OwnedPin, Rights};

use crate::heard::answer;
use crate::numbers::{advice, number};
use crate::process::Own;

/// A pin or a map, until it is closed, and how many buffers of it are out.
struct Lent<T> {
    state: Own<Mutex<(Option<T>, usize)>>,
    what: &'static str,
}

impl<T> Lent<T> {
    fn new(what: &'static str, lent: T) -> Self {
        let state = Own::new(Mutex::new((Some(lent), 0)));
        Self { state, what }
    }

    fn state(&self) -> PyResult<MutexGuard<'_, (Option<T>, usize)>> {
        let state = self.state.get()?.lock();
        Ok(state.unwrap_or_else(PoisonError::into_inner))
    }

    /// It, to be ended; nothing if it is closed.
    fn close(&self) -> PyResult<Option<T>> {
        let mut state = self.state()?;
        match state.1 {
            0 => Ok(state.0.take()),
            buffers => Err(PyBufferError::new_err(format!(
                "the {} cannot be closed while {buffers} of its buffers exist; release them first",
                self.what
            ))),
        }
    }

    fn closed(&self) -> PyResult<bool> {
        Ok(self.state()?.0.is_none())
    }

    /// # Safety
    /// `view` is there to be filled, and `slf` is the object that `self` is in. `bytes` answers
    /// memory that stays as long as `T` does, its length, and whether it is for reading alone.
    unsafe fn export(
        &self,
        slf: &Bound<'_, PyAny>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
        bytes: impl FnOnce(&T) -> (*const u8, usize, bool),
    ) -> PyResult<()> {
        let mut state = self.state()?;
        let Some(lent) = &state.0 else {
            return Err(PyValueError::new_err(format!(
                "the {} is closed",
                self.what
            )));
        };
        let (bytes, len, read_only) = bytes(lent);
        let len = ffi::Py_ssize_t::try_from(len).unwrap_or(0);
        // SAFETY: `view` is the caller's. `bytes` are valid for `len` as long as `T` lives
        // (invariant 1), which it does as long as this buffer is out (2, 3): the view holds a
        // reference to `slf`, and the state counts it. A flag that asks for writing is refused for
        // what is for reading.
        let filled = unsafe {
            let bytes = bytes.cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes, len, read_only.into(), flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        state.1 += 1;
        Ok(())
    }

    fn release(&self) {
        // In a child of a fork there is nothing to release.
        if let Ok(mut state) = self.state() {
            state.1 -= 1;
        }
    }
}

/// The end of a `with` block: an error of the program comes out of it, and has as a note which
/// buffers are still out.
fn leave(closed: PyResult<()>, block: &Bound<'_, PyTuple>) -> PyResult<()> {
    let error = block.get_item(1).ok().filter(|error| !error.is_none());
    match (closed, error) {
        (Err(kept), Some(error)) if kept.is_instance_of::<PyBufferError>(block.py()) => {
            let words = kept.value(block.py()).str()?;
            error.call_method1("add_note", (words,)).map(drop)
        }
        (closed, _) => closed,
    }
}

/// Pages of a cached file as they were when they were pinned: a read-only buffer of them in one
/// piece, or of what there is of the last one, without a copy.
///
/// ``memoryview(pin)``, ``numpy.frombuffer(pin, ...)`` and the like read the cache's own memory.
/// The pages count against the memory limit until the pin is closed: use it in a ``with`` block.
#[pyclass(frozen, module = "tidegate")]
pub(crate) struct Pin {
    lent: Lent<OwnedPin>,
    /// Bytes of the pages that belong to the file.
    len: usize,
}

impl Pin {
    /// Of pages from `first` on.
    pub(crate) fn of(pinned: OwnedPin, file: &File, first: u32) -> Self {
        let left = file
            .len()
            .saturating_sub(u64::from(first) * tidegate::PAGE_SIZE as u64);
        let len = pinned
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let lent = Lent::new("pin", pinned);
        Self { lent, len }
    }
}

#[pymethods]
impl Pin {
    /// Releases the pages.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     A ``memoryview`` or an array over it is still there.
    fn close(&self) -> PyResult<()> {
        self.lent.close().map(drop)
    }

    /// True if the pages were released.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        self.lent.closed()
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*block))]
    fn __exit__(&self, block: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(self.close(), block)
    }

    fn __repr__(&self) -> PyResult<String> {
        let closed = if self.closed()? { ", closed" } else { "" };
        Ok(format!("<tidegate.Pin: {} bytes{closed}>", self.len))
    }

    /// # Safety
    /// As the buffer protocol has it: `view` is the caller's, to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let pin = slf.get();
        let bytes = |pinned: &OwnedPin| (pinned.as_ptr(), pin.len, true);
        // SAFETY: as the caller says; `len` is at most that of the pinned bytes.
        unsafe { pin.lent.export(slf.as_any(), view, flags, bytes) }
    }

    /// # Safety
    /// As the buffer protocol has it: once for each buffer.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.lent.release();
    }
}

/// A part of a cached file as memory, within the cache's limit whatever is touched; made by
/// ``File.map``.
///
/// ``memoryview(map)``, ``numpy.frombuffer(map, ...)`` and the like are that memory, without a
/// copy, and keep the map. A store is in the file for every call at once, and on the device
/// when ``sync`` has answered: **stores that were not synced when the process ends are lost**. An
/// access that cannot be answered (the device fails, or is full; the file was cut) ends the process
/// by SIGBUS. A child of a fork must not touch it.
#[pyclass(frozen, weakref, module = "tidegate")]
pub(crate) struct Map {
    lent: Lent<Arc<tidegate::Map>>,
    write: bool,
    len: usize,
    /// Lives as long as the map does, and ends after it.
    _owner: Py<PyAny>,
}

impl Map {
    pub(crate) fn of(map: tidegate::Map, write: bool, owner: Py<PyAny>) -> Self {
        let len = map.len();
        let lent = Lent::new("map", Arc::new(map));
        Self {
            lent,
            write,
            len,
            _owner: owner,
        }
    }

    fn map(&self) -> PyResult<Arc<tidegate::Map>> {
        let state = self.lent.state()?;
        state
            .0
            .clone()
            .ok_or_else(|| PyValueError::new_err("the map is closed"))
    }

    /// `n` bytes at `offset`; without `n`, to the end.
    fn range(&self, offset: u64, n: Option<u64>) -> std::ops::Range<u64> {
        let end = n.map_or(self.len as u64, |n| offset.saturating_add(n));
        offset..end.max(offset)
    }
}

/// A number, or none.
fn maybe(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    (!object.is_none()).then(|| number(object)).transpose()
}

#[pymethods]
impl Map {
    /// Makes what was stored durable: on the device, and the device flushed.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     Data that could not be made durable.
    #[pyo3(signature = (offset = 0, n = None, /))]
    fn sync(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = maybe)] n: Option<u64>,
    ) -> PyResult<()> {
        let (map, range) = (self.map()?, self.range(offset, n));
        answer(py, move || map.sync(range))
    }

    /// Brings it into memory, as far as the cache has room, without the interpreter's lock.
    #[pyo3(signature = (offset = 0, n = None, /))]
    fn populate(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = maybe)] n: Option<u64>,
    ) -> PyResult<()> {
        let (map, range) = (self.map()?, self.range(offset, n));
        answer(py, move || map.populate(range))
    }

    /// Says what is to come, as ``File.advise``.
    #[pyo3(signature = (advice, offset = 0, n = None, /))]
    fn advise(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = advice)] advice: tidegate::Advice,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = maybe)] n: Option<u64>,
    ) -> PyResult<()> {
        let (map, range) = (self.map()?, self.range(offset, n));
        answer(py, move || map.advise(advice, range))
    }

    /// Bytes of it in memory, of those that were used through it.
    #[getter]
    fn resident(&self) -> PyResult<u64> {
        Ok(self.map()?.resident())
    }

    /// ``full``; or ``user-mode``: calls of the system that are given memory of it which is not
    /// there answer EFAULT.
    #[getter]
    fn rights(&self) -> PyResult<&'static str> {
        Ok(match self.map()?.rights() {
            Rights::Full => "full",
            Rights::UserMode => "user-mode",
        })
    }

    /// Totals: accesses that had to be answered, of these those that read from the device, that
    /// stored, that waited; pages they were answered with; those that ended in SIGBUS.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, dict) = (self.map()?.stats(), PyDict::new(py));
        for (name, value) in [
            ("faults_total", stats.faults_total),
            ("reads_total", stats.reads_total),
            ("stores_total", stats.stores_total),
            ("waited_total", stats.waited_total),
            ("pages_total", stats.pages_total),
            ("failed_total", stats.failed_total),
            ("resident", stats.resident),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Ends it. Its stores are in the file, and durable when that is synced.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     A ``memoryview`` or an array over it is still there.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let map = self.lent.close()?;
        py.detach(|| drop(map));
        Ok(())
    }

    /// True if it was ended.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        self.lent.closed()
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*block))]
    fn __exit__(&self, py: Python<'_>, block: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(self.close(py), block)
    }

    fn __repr__(&self) -> PyResult<String> {
        let closed = if self.closed()? { ", closed" } else { "" };
        Ok(format!("<tidegate.Map: {} bytes{closed}>", self.len))
    }

    /// # Safety
    /// As the buffer protocol has it: `view` is the caller's, to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let own = slf.get();
        let bytes = |map: &Arc<tidegate::Map>| (map.as_ptr().cast_const(), own.len, !own.write);
        // SAFETY: as the caller says; the memory is `len` bytes as long as the map lives.
        unsafe { own.lent.export(slf.as_any(), view, flags, bytes) }
    }

    /// # Safety
    /// As the buffer protocol has it: once for each buffer.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.lent.release();
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if let Ok(map) = self.lent.close() {
            // Its threads end, at a device maybe.
            Python::attach(|py| py.detach(|| drop(map)));
        }
    }
}
