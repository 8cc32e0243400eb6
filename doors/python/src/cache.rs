//! The page cache: one memory limit, its files, its regions.
//!
//! Calls give the interpreter's lock away while they work: a read may wait for the device, a write
//! may be paced.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tidegate::{Advice, CallWait, Error, MapOptions, OpenOptions, RuleMaker, SlowCall, rule};

use crate::bytes::Borrowed;
use crate::errors;
use crate::heard::{answer, heard, hears};
use crate::lent::{Map, Pin};
use crate::numbers::{Limit, Size, advice, number};
use crate::paths::FsPath;
use crate::process::Own;

/// Bytes that a call moves between two looks for signals.
const PIECE: usize = 256 << 10;

/// Fills `bytes` from `offset`: pages in memory by this thread, the rest heard. Answers the number
/// of bytes that there were.
fn read(
    py: Python<'_>,
    file: &Arc<tidegate::File>,
    bytes: &mut [u8],
    offset: u64,
) -> PyResult<usize> {
    if !hears(py) {
        return py
            .detach(|| file.read_at(bytes, offset))
            .map_err(errors::cache);
    }
    let mut at = 0;
    loop {
        let (rest, from) = (&mut bytes[at..], offset.saturating_add(at as u64));
        let read = py.detach(|| file.try_read_at(rest, from));
        let read = read.map_err(errors::cache)?;
        at += read.bytes;
        if at == bytes.len() || !read.would_block {
            return Ok(at);
        }
        let (own, from) = (Arc::clone(file), offset.saturating_add(at as u64));
        let len = PIECE.min(bytes.len() - at);
        let piece = answer(py, move || {
            let mut piece = vec![0; len];
            let read = own.read_at(&mut piece, from)?;
            piece.truncate(read);
            Ok(piece)
        })?;
        bytes[at..][..piece.len()].copy_from_slice(&piece);
        at += piece.len();
        if at == bytes.len() || piece.len() < len {
            return Ok(at);
        }
    }
}

/// The writer that a write is of, where it is not the thread's own.
type By = Option<Arc<Mutex<tidegate::Writer>>>;

fn write_at(file: &tidegate::File, by: &By, data: &[u8], offset: u64) -> Result<usize, Error> {
    match by {
        None => file.write_at(data, offset),
        Some(by) => {
            let mut by = by.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_at_with(&mut by, data, offset)
        }
    }
}

/// Writes as far as no wait is needed: the number of bytes, and true if the next one needs one.
fn try_write_at(
    file: &tidegate::File,
    by: &By,
    data: &[u8],
    offset: u64,
) -> Result<(usize, bool), Error> {
    let written = match by.as_ref().map(|by| by.try_lock()) {
        None => file.try_write_at(data, offset)?,
        Some(Ok(mut by)) => file.try_write_at_with(&mut by, data, offset)?,
        // Another thread writes by it.
        Some(Err(_)) => return Ok((0, true)),
    };
    Ok((written.bytes, written.would_block))
}

/// Writes all of `data` at `offset`: by this thread while nothing waits, the rest heard.
fn write(
    py: Python<'_>,
    file: &Arc<tidegate::File>,
    data: Borrowed,
    offset: u64,
    by: By,
) -> PyResult<usize> {
    let len = data.as_slice().len();
    if !hears(py) {
        let data = data.as_slice();
        return py
            .detach(|| write_at(file, &by, data, offset))
            .map_err(errors::cache);
    }
    let mut at = 0;
    loop {
        let (rest, from) = (&data.as_slice()[at..], offset.saturating_add(at as u64));
        let written = py.detach(|| try_write_at(file, &by, rest, from));
        let (bytes, would_block) =
            written.map_err(|error| errors::cache(error.after(at as u64)))?;
        at += bytes;
        if would_block {
            break;
        }
        if at == len {
            return Ok(len);
        }
        py.check_signals()?;
    }
    let own = Arc::clone(file);
    let written = heard(py, move |stop| {
        while at < len && !stop.is_raised() {
            let piece = &data.as_slice()[at..len.min(at + PIECE)];
            let from = offset.saturating_add(at as u64);
            write_at(&own, &by, piece, from).map_err(|error| error.after(at as u64))?;
            at += piece.len();
        }
        Ok(at)
    });
    written?.map_err(errors::cache)
}

/// Does `call` on pieces of `len` bytes, each with its place from `offset` on, and looks for
/// signals between them.
fn in_pieces(
    py: Python<'_>,
    (offset, len): (u64, usize),
    mut call: impl FnMut(std::ops::Range<usize>, u64) -> Result<(), Error> + Send,
) -> PyResult<()> {
    let mut at = 0;
    loop {
        let (end, from) = (len.min(at + PIECE), offset.saturating_add(at as u64));
        py.detach(|| call(at..end, from)).map_err(errors::cache)?;
        if end == len {
            return Ok(());
        }
        at = end;
        py.check_signals()?;
    }
}

/// The cache, as `tidegate.Cache` uses it.
#[pyclass(frozen, module = "tidegate._core", name = "Cache")]
pub(crate) struct Cache {
    inner: Own<Arc<tidegate::Cache>>,
}

impl Cache {
    fn cache(&self) -> PyResult<Arc<tidegate::Cache>> {
        Ok(Arc::clone(self.inner.get()?))
    }
}

#[pymethods]
impl Cache {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one for each option")]
    fn new(
        py: Python<'_>,
        memory: Size,
        dirty_limit: Option<Limit>,
        background_limit: Option<Limit>,
        swap_file: Option<(FsPath, Size)>,
        readahead: Option<Size>,
        page_rule: Option<&str>,
        layers: Option<&str>,
        maps: bool,
        on_slow: Option<(f64, Py<PyAny>)>,
    ) -> PyResult<Self> {
        let mut builder = tidegate::Cache::builder().memory(memory.0).maps(maps);
        if let Some(limit) = dirty_limit {
            builder = builder.dirty_limit(limit.0);
        }
        if let Some(limit) = background_limit {
            builder = builder.background_limit(limit.0);
        }
        if let Some((path, bytes)) = swap_file {
            builder = builder.swap_file(path.0, bytes.0);
        }
        if let Some(bytes) = readahead {
            builder = builder.readahead(bytes.0);
        }
        if let Some(name) = page_rule {
            let unknown = || {
                let names: Vec<&str> = rule::ALL.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                PyValueError::new_err(format!("there is no page rule '{name}'; there are {names}"))
            };
            builder = builder.page_rule(RuleMaker::by_name(name).ok_or_else(unknown)?);
        }
        if let Some(layers) = layers {
            builder = builder.layers(layers).map_err(errors::cache)?;
        }
        if let Some((least, tell)) = on_slow {
            let least = Duration::try_from_secs_f64(least)
                .map_err(|error| PyValueError::new_err(format!("on_slow: {least}: {error}")))?;
            builder = builder.on_slow(least, move |call| tell_of(&tell, call));
        }
        let built = answer(py, move || builder.build())?;
        let inner = Own::new(Arc::new(built));
        Ok(Self { inner })
    }

    /// `options`: create, truncate, read only.
    fn open(
        &self,
        py: Python<'_>,
        path: FsPath,
        options: (bool, bool, bool),
        preallocate: Option<Size>,
        direct: bool,
    ) -> PyResult<File> {
        let (create, truncate, read_only) = options;
        let mut options = OpenOptions::new()
            .create(create)
            .truncate(truncate)
            .read_only(read_only)
            .direct(direct);
        if let Some(bytes) = preallocate {
            options = options.preallocate(bytes.0);
        }
        let cache = self.cache()?;
        let file = answer(py, move || cache.open(&path.0, options))?;
        Ok(File {
            inner: Own::new(RwLock::new(Some(Arc::new(file)))),
        })
    }

    fn spill(&self, py: Python<'_>, bytes: Size) -> PyResult<Region> {
        let cache = self.cache()?;
        let region = answer(py, move || cache.spill(bytes.0))?;
        Ok(Region {
            inner: Own::new(region),
        })
    }

    fn writer(&self) -> PyResult<Writer> {
        let writer = self.inner.get()?.writer();
        Ok(Writer {
            inner: Own::new(Arc::new(Mutex::new(writer))),
        })
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.cache()?;
        answer(py, move || cache.sync())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.cache()?;
        let closed = heard(py, move |_| cache.close());
        if closed.is_err() {
            self.inner.leave();
        }
        closed?.map_err(errors::cache)
    }

    /// Closes it without anybody who waits for that.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.cache()?;
        self.inner.leave();
        py.detach(|| crate::heard::hand_over(Box::new(move || drop(cache.close()))));
        Ok(())
    }

    fn set_limit(&self, py: Python<'_>, bytes: Size) -> PyResult<()> {
        let cache = self.cache()?;
        answer(py, move || cache.set_limit(bytes.0))
    }

    fn trim(&self, py: Python<'_>) -> PyResult<u64> {
        let cache = self.cache()?;
        heard(py, move |_| cache.trim())
    }

    /// The fields of `tidegate.CacheStats`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cache = self.inner.get()?;
        let stats = py.detach(|| cache.stats());
        let dict = PyDict::new(py);
        for (name, value) in [
            ("limit", stats.limit),
            ("over_limit", stats.over_limit),
            ("cached", stats.cached),
            ("free", stats.free),
            ("pinned", stats.pinned),
            ("dirty", stats.dirty),
            ("writeback", stats.writeback),
            ("dirty_limit", stats.dirty_limit),
            ("background_limit", stats.background_limit),
            ("metadata", stats.metadata),
            ("anonymous", stats.anonymous),
            ("swap_total", stats.swap.total),
            ("swap_free", stats.swap.free),
            ("dirtied_total", stats.dirtied_total),
            ("written_total", stats.written_total),
            ("read_total", stats.read_total),
            ("reclaimed_total", stats.reclaimed_total),
            ("failed_total", stats.failed_total),
        ] {
            dict.set_item(name, value)?;
        }
        dict.set_item("stalled_some_s", stats.pressure.some.as_secs_f64())?;
        dict.set_item("stalled_full_s", stats.pressure.full.as_secs_f64())?;
        dict.set_item("ceiling", stats.ceiling)?;
        dict.set_item("no_io_uring", &stats.no_io_uring)?;
        let waits: PyResult<Vec<_>> = stats.waits.iter().map(|wait| as_dict(py, wait)).collect();
        dict.set_item("waits", waits?)?;
        let vmstat = PyDict::new(py);
        for (name, value) in &stats.vmstat {
            vmstat.set_item(name, value)?;
        }
        dict.set_item("vmstat", vmstat)?;
        Ok(dict)
    }
}

/// The fields of `tidegate.Wait`.
fn as_dict<'py>(py: Python<'py>, wait: &tidegate::Wait) -> PyResult<Bound<'py, PyDict>> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let dict = PyDict::new(py);
    dict.set_item("cause", wait.cause)?;
    dict.set_item("waits", wait.count)?;
    dict.set_item("timed_out", wait.timed_out)?;
    dict.set_item("total_s", wait.total.as_secs_f64())?;
    dict.set_item("p50_ms", ms(wait.quantile(500)))?;
    dict.set_item("p99_ms", ms(wait.quantile(990)))?;
    dict.set_item("max_ms", ms(wait.max))?;
    Ok(dict)
}

/// Number and seconds of waits, by their cause.
fn by_cause<'py>(py: Python<'py>, waits: &[CallWait]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for wait in waits {
        dict.set_item(wait.cause, (wait.count, wait.total.as_secs_f64()))?;
    }
    Ok(dict)
}

/// Calls `tell` with the fields of a `tidegate.SlowCall`, in their order. Its exception is for
/// `sys.unraisablehook`; an interpreter that ends hears of no call.
fn tell_of(tell: &Py<PyAny>, call: &SlowCall<'_>) {
    let _ = Python::try_attach(|py| {
        let waits = call.waits.iter();
        let waits: Vec<_> = waits
            .map(|wait| (wait.cause, wait.count, wait.total.as_secs_f64()))
            .collect();
        let fields = (
            call.call,
            call.path.as_os_str(),
            call.offset,
            call.len,
            call.took.as_secs_f64(),
            waits,
            call.own.as_secs_f64(),
            call.to_string(),
        );
        if let Err(error) = tell.call1(py, fields) {
            error.write_unraisable(py, Some(tell.bind(py)));
        }
    });
}

/// A client of the program that is paced by itself, whichever threads write for it: one after the
/// other. Made by ``Cache.writer``, for ``File.pwrite``.
#[pyclass(frozen, module = "tidegate")]
pub(crate) struct Writer {
    inner: Own<Arc<Mutex<tidegate::Writer>>>,
}

#[pymethods]
impl Writer {
    /// The waits of its writes so far: number and seconds, by cause.
    fn waits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let writer = self.inner.get()?;
        // A thread that writes by it may be paused.
        let waits = py.detach(|| {
            let writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.waits()
        });
        by_cause(py, &waits.by_cause)
    }
}

/// An open file, as `tidegate.File` uses it.
#[pyclass(frozen, module = "tidegate._core", name = "File")]
pub(crate) struct File {
    /// Nothing once it was closed. A pin holds the file, too.
    inner: Own<RwLock<Option<Arc<tidegate::File>>>>,
}

fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file.")
}

impl File {
    fn file(&self) -> PyResult<Arc<tidegate::File>> {
        let file = self
            .inner
            .get()?
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(closed)
    }
}

#[pymethods]
impl File {
    /// Reads at most `n` bytes at `offset`; the position of the file stays.
    ///
    /// Parameters
    /// ----------
    /// n : int
    ///     Bytes, at most.
    /// offset : int
    ///     From where on, bytes.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     Fewer than `n` at the end of the file.
    #[pyo3(signature = (n, offset, /))]
    fn pread<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] n: usize,
        #[pyo3(from_py_with = number)] offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file()?;
        let left = usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut done = 0;
        let whole = PyBytes::new_with(py, n.min(left), |bytes| {
            done = read(py, &file, bytes, offset)?;
            Ok(())
        })?;
        // The file was cut meanwhile.
        if done < whole.as_bytes().len() {
            return Ok(PyBytes::new(py, &whole.as_bytes()[..done]));
        }
        Ok(whole)
    }

    /// Fills `buffer` from `offset`; answers how many bytes there were.
    #[pyo3(signature = (buffer, offset, /))]
    fn preadinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] offset: u64,
    ) -> PyResult<usize> {
        let file = self.file()?;
        let mut buffer = Borrowed::of(buffer, true)?;
        read(py, &file, buffer.as_mut_slice(), offset)
    }

    /// Writes all of `data` at `offset`: into memory, and paced while the device is behind, as this
    /// thread or as `writer`.
    #[pyo3(signature = (data, offset, /, writer = None))]
    fn pwrite(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] offset: u64,
        writer: Option<&Bound<'_, Writer>>,
    ) -> PyResult<usize> {
        let (file, data) = (self.file()?, Borrowed::of(data, false)?);
        let by = writer.map(|writer| writer.get().inner.get().cloned());
        write(py, &file, data, offset, by.transpose()?)
    }

    /// Pins a page (4 KiB each, from 0) for reading without a copy.
    #[pyo3(signature = (page, /))]
    fn pin(&self, py: Python<'_>, #[pyo3(from_py_with = number)] page: u32) -> PyResult<Pin> {
        let file = self.file()?;
        if let Some(pin) = file.try_pin(page) {
            return Ok(Pin::of(pin.into_owned(), &file, page));
        }
        answer(py, move || {
            let pin = file.pin(page)?.into_owned();
            Ok(Pin::of(pin, &file, page))
        })
    }

    /// Pins 1 to 512 pages from `first` on, in one piece, for reading without a copy.
    #[pyo3(signature = (first, pages, /))]
    fn pin_run(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] first: u32,
        #[pyo3(from_py_with = number)] pages: u32,
    ) -> PyResult<Pin> {
        let file = self.file()?;
        if let Some(run) = file.try_pin_run(first, pages) {
            return Ok(Pin::of(run.into_owned(), &file, first));
        }
        answer(py, move || {
            let run = file.pin_run(first, pages)?.into_owned();
            Ok(Pin::of(run, &file, first))
        })
    }

    /// Maps `len` bytes at `offset`; `owner` lives as long as the map.
    fn map(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = number)] len: u64,
        write: bool,
        user_mode: bool,
        owner: Py<PyAny>,
    ) -> PyResult<Map> {
        let (file, end) = (self.file()?, offset.saturating_add(len));
        let options = MapOptions::new().write(write).user_mode(user_mode);
        let map = answer(py, move || file.map(offset..end, options))?;
        Ok(Map::of(map, write, owner))
    }

    /// Says what is to come.
    fn advise(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = advice)] advice: Advice,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = number)] len: u64,
    ) -> PyResult<()> {
        let file = self.file()?;
        answer(py, move || file.advise(advice, offset, len))
    }

    /// Makes a range durable.
    fn sync_range(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = number)] len: u64,
    ) -> PyResult<()> {
        let file = self.file()?;
        answer(py, move || file.sync_range(offset, len))
    }

    /// Makes all that was written durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file()?;
        answer(py, move || file.sync())
    }

    fn set_len(&self, py: Python<'_>, #[pyo3(from_py_with = number)] len: u64) -> PyResult<()> {
        let file = self.file()?;
        answer(py, move || file.set_len(len))
    }

    /// Its length in bytes.
    fn size(&self) -> PyResult<u64> {
        Ok(self.file()?.len())
    }

    /// True if its I/O bypasses the kernel's page cache.
    #[getter]
    fn is_direct(&self) -> PyResult<bool> {
        Ok(self.file()?.is_direct())
    }

    /// The fields of `tidegate.FileStats`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let file = self.file()?;
        let stats = py.detach(|| file.stats()).map_err(errors::cache)?;
        let dict = PyDict::new(py);
        dict.set_item("cached", stats.cached)?;
        dict.set_item("dirty", stats.dirty)?;
        dict.set_item("writeback", stats.writeback)?;
        dict.set_item("hits_total", stats.hits_total)?;
        dict.set_item("misses_total", stats.misses_total)?;
        dict.set_item("waits", by_cause(py, &file.waits().by_cause)?)?;
        Ok(dict)
    }

    /// Syncs the file and, unless it is pinned or open elsewhere, takes it out of the cache.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self
            .inner
            .get()?
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(file) = file else { return Ok(()) };
        answer(py, move || match Arc::try_unwrap(file) {
            Ok(file) => file.close().map_err(|error| error.error),
            Err(shared) => shared.sync(),
        })
    }
}

/// A region of bytes that are in memory, and in the swap file when memory is short.
#[pyclass(frozen, module = "tidegate", name = "Region")]
pub(crate) struct Region {
    inner: Own<tidegate::Spill>,
}

#[pymethods]
impl Region {
    /// Reads `n` bytes at `offset`.
    #[pyo3(signature = (n, offset, /))]
    fn pread<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] n: usize,
        #[pyo3(from_py_with = number)] offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let region = self.inner.get()?;
        PyBytes::new_with(py, n, |bytes| {
            in_pieces(py, (offset, n), |part, from| {
                region.read_at(&mut bytes[part], from)
            })
        })
    }

    /// Fills `buffer` from `offset`.
    #[pyo3(signature = (buffer, offset, /))]
    fn preadinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] offset: u64,
    ) -> PyResult<()> {
        let region = self.inner.get()?;
        let mut buffer = Borrowed::of(buffer, true)?;
        let bytes = buffer.as_mut_slice();
        in_pieces(py, (offset, bytes.len()), |part, from| {
            region.read_at(&mut bytes[part], from)
        })
    }

    /// Writes all of `data` at `offset`.
    #[pyo3(signature = (data, offset, /))]
    fn pwrite(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] offset: u64,
    ) -> PyResult<()> {
        let region = self.inner.get()?;
        let data = Borrowed::of(data, false)?;
        let bytes = data.as_slice();
        in_pieces(py, (offset, bytes.len()), |part, from| {
            region.write_at(&bytes[part], from)
        })
    }

    /// Gives whole pages back, memory and swap space; they read as zeroes again.
    #[pyo3(signature = (offset, len, /))]
    fn discard(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = number)] len: u64,
    ) -> PyResult<()> {
        let region = self.inner.get()?;
        py.detach(|| region.discard(offset, len))
            .map_err(errors::cache)
    }
}
