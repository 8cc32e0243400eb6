//! Pinned pages as a read-only buffer of Python, without a copy.
//!
//! Invariants
//!   1. The bytes of a page stay where and as they are while it is pinned (`tidegate::OwnedPin`).
//!   2. A buffer that was exported holds a reference to the `Pin`: the pages are pinned as long
//!      as any `memoryview` or array over it lives.
//!   3. `close` lets the pages go only while no buffer is out; else it raises `BufferError`, as
//!      `mmap.close` does. A closed pin exports nothing.
#![expect(unsafe_code, reason = "the buffer protocol takes a pointer")]

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use tidegate::{File, OwnedPin};

use crate::process::Own;

/// The pages, and how many buffers of them are out.
struct State {
    pinned: Option<OwnedPin>,
    exports: usize,
}

/// Pages of a cached file as they were when they were pinned: a read-only buffer of them in one
/// piece, or of what there is of the last one, without a copy.
///
/// ``memoryview(pin)``, ``numpy.frombuffer(pin, ...)`` and the like read the cache's own memory.
/// The pages count against the memory limit until the pin is closed: use it in a ``with`` block.
#[pyclass(frozen, module = "tidegate")]
pub(crate) struct Pin {
    state: Own<Mutex<State>>,
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
        Self {
            state: Own::new(Mutex::new(State {
                pinned: Some(pinned),
                exports: 0,
            })),
            len,
        }
    }

    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.get()?.lock();
        Ok(state.unwrap_or_else(PoisonError::into_inner))
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
        let mut state = self.state()?;
        if state.exports > 0 {
            return Err(PyBufferError::new_err(format!(
                "the pin cannot be closed while {} of its buffers exist; release them first",
                state.exports
            )));
        }
        state.pinned = None;
        Ok(())
    }

    /// True if the pages were released.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.state()?.pinned.is_none())
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close()
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
        let mut state = pin.state()?;
        let Some(pinned) = &state.pinned else {
            return Err(PyValueError::new_err("the pin is closed"));
        };
        let bytes = pinned.as_ptr();
        let length = ffi::Py_ssize_t::try_from(pin.len).unwrap_or(0);
        // SAFETY: `view` is the caller's. `bytes` are valid for `length` as long as the pages are
        // pinned (invariant 1), and they are as long as this buffer is out (2, 3): the view holds a
        // reference to `slf`, and `exports` counts it. A flag that asks for writing is refused.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.cast_mut().cast(),
                length,
                1,
                flags,
            )
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        state.exports += 1;
        Ok(())
    }

    /// # Safety
    /// As the buffer protocol has it: once for each buffer.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        // In a child of a fork there is nothing to release.
        if let Ok(mut state) = self.state() {
            state.exports -= 1;
        }
    }
}
