//! Memory of Python's objects, by the buffer protocol.
//!
//! A call that fills or reads such memory does so without the interpreter's lock, as those of
//! Python's own files do.
#![expect(unsafe_code, reason = "a buffer is a pointer and a length")]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// Bytes that are somebody else's, as long as this lives.
pub(crate) struct Borrowed {
    buffer: PyUntypedBuffer,
}

impl Borrowed {
    /// The buffer of an object; `for_writing`: to be filled.
    pub(crate) fn of(object: &Bound<'_, PyAny>, for_writing: bool) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object).or_else(|error| {
            if !error.is_instance_of::<PyBufferError>(object.py()) {
                return Err(error);
            }
            // A number as an array of no dimension, which has no shape.
            let view = object.py().import("builtins")?.getattr("memoryview")?;
            PyUntypedBuffer::get(&view.call1((object,))?.call_method1("cast", ("B",))?)
        })?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(format!(
                "the buffer of {} items in {} dimensions is not contiguous (C order); pass a copy that is, as of \
                 numpy.ascontiguousarray",
                buffer.item_count(),
                buffer.dimensions()
            )));
        }
        if for_writing && buffer.readonly() {
            return Err(PyTypeError::new_err("a read-only buffer cannot be filled"));
        }
        Ok(Self { buffer })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.buffer.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the object keeps `len_bytes` bytes at `buf_ptr` in place and valid until the
        // buffer is released, which is when `self` is dropped. Python code that changes them
        // meanwhile in another thread has a race of its own, as with `os.pwrite`; what is read is
        // copied and means nothing to this crate.
        unsafe {
            std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), self.buffer.len_bytes())
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.buffer.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as above; `of` was asked for a buffer to be filled and has refused one that is
        // read-only. Python code that uses them meanwhile has a race of its own, as with
        // `readinto` of Python's files.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.buffer.buf_ptr().cast::<u8>(),
                self.buffer.len_bytes(),
            )
        }
    }
}
