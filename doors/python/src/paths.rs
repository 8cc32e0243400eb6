//! Paths of files as Python's own calls take them: `str`, `bytes`, or what has `__fspath__`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// See the module.
pub(crate) struct FsPath(pub(crate) PathBuf);

impl FromPyObject<'_, '_> for FsPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let os = object.py().import("os")?;
        let bytes: Vec<u8> = os.call_method1("fsencode", (&*object,))?.extract()?;
        if bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(Self(OsString::from_vec(bytes).into()))
    }
}
