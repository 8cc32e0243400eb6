"""A page cache with one memory limit, and its files as Python's."""

from __future__ import annotations

import io
import operator
import os
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from . import _core
from ._core import Map, Pin, Region, Writer

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath
    from typing_extensions import Buffer, Self

    Advice = Literal["normal", "sequential", "random", "no-reuse", "will-need", "dont-need"]

os.register_at_fork(after_in_child=_core.forked)

PAGE = 4096


@dataclass(frozen=True)
class Wait:
    """Waits of one cause: their number, how many a timeout ended, and their lengths."""

    cause: str
    waits: int
    timed_out: int
    total_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class CacheStats:
    """A reading of a cache. Sizes are in bytes, times in seconds."""

    #: The memory limit now, and what is resident beyond a limit that was lowered.
    limit: int
    over_limit: int
    #: Bytes that the control group of the process leaves the cache, if that is less.
    ceiling: int | None
    #: Pages in the cache; memory that is not in use; pinned by callers.
    cached: int
    free: int
    pinned: int
    #: Written and not yet on its way to a device; on its way.
    dirty: int
    writeback: int
    #: Over the first writers are paced, over the second writeback begins.
    dirty_limit: int
    background_limit: int
    #: Frame table, lists, index.
    metadata: int
    #: Regions: what of them is in memory; the swap file.
    anonymous: int
    swap_total: int
    swap_free: int
    #: Ever dirtied, written to devices, read from them, freed by reclaim; writes that failed.
    dirtied_total: int
    written_total: int
    read_total: int
    reclaimed_total: int
    failed_total: int
    #: Time for which somebody was stalled for memory, and all that were at work.
    stalled_some_s: float
    stalled_full_s: float
    #: Why not all I/O goes through io_uring.
    no_io_uring: str | None
    #: Of all calls, by cause: ``pandas.DataFrame(stats.waits)`` is a table.
    waits: list[Wait]
    #: Counters under their names in Linux' /proc/vmstat, in pages.
    vmstat: Mapping[str, int]


@dataclass(frozen=True)
class FileStats:
    """Bytes that a file has in its cache, by state; pages that its reads and pins hit or missed; and
    the waits of its calls: by cause, their number and seconds."""

    cached: int
    dirty: int
    writeback: int
    hits_total: int
    misses_total: int
    waits: Mapping[str, tuple[int, float]]


@dataclass(frozen=True)
class SlowCall:
    """A call that took long. ``str`` of it is a line."""

    #: ``write``, ``read``, ``sync`` ...; its file; its range, of no bytes where it is all of the file.
    call: str
    path: str
    offset: int
    n: int
    took_s: float
    #: In their order: the cause, how many one after the other, seconds; and the time that was no wait.
    waits: list[tuple[str, int, float]]
    own_s: float
    words: str

    def __str__(self) -> str:
        return self.words


class _Single:
    """One of its kind: a copy that ends would end the original."""

    def __reduce_ex__(self, protocol: object, /) -> str | tuple[object, ...]:
        raise TypeError(f"cannot copy or pickle {self!r}: open it again where it is wanted")


class Cache(_Single):
    """Files under one memory limit that holds, with writers that are paced instead of stalled.

    Parameters
    ----------
    memory : int or str
        The limit: pages, their metadata and pins together. Bytes, or a size as ``"64MiB"``.
    dirty_limit : int or str, optional
        Data not yet written over which writers are paced; bytes, a size, or ``"20%"`` of the
        memory, which it is if not given.
    background_limit : int or str, optional
        The same over which writeback begins; ``"10%"`` if not given.
    swap_file : (path, size), optional
        A new file to which regions (``Cache.region``) spill. Its name is removed at once.
    readahead : int or str, optional
        Largest read-ahead window; less than two pages turn it off.
    page_rule : str, optional
        The rule that picks the page to evict when memory is full: ``reuse``, ``lirs``, ``s3-fifo``,
        ``mru``. If not given, active and inactive pages and refault distances decide, as in Linux.
    maps : bool
        Files can be mapped (``File.map``). The memory then consists of pages of 4 KiB.
    layers : str, optional
        A bad disk for tests: ``"slow:rate=16MB,latency=2ms+faulty:eio_writes=0.01"``.
    on_slow : (seconds, function), optional
        Each call on a file that takes so long or longer is told to the function, as a ``SlowCall``:
        after it, on the thread that did it, which is another one for calls of the main thread.
        ``on_slow=(0.02, print)``. Its exceptions go to ``sys.unraisablehook``. It must
        not use a ``Writer``: the call that it is told of may hold that still.

    Raises
    ------
    ValueError
        A limit that cannot be met, or a value that is out of range.
    OSError
        The system has no memory, thread or file for it.

    Notes
    -----
    Close it, best in a ``with`` block: a cache that is forgotten says so (``ResourceWarning``) and is
    synced when it is collected. Calls on the main thread hear signals while they wait: after a
    ``KeyboardInterrupt`` a sync or a close goes on by itself as long as the program lives, and a write
    ends after its next piece. A child of a fork has no part of it: every call there raises
    ``RuntimeError``.

    Examples
    --------
    >>> with tidegate.Cache(memory="64MiB") as cache, cache.open("data", "w+") as file:
    ...     file.write(b"hello")
    ...     file.pread(5, 0)
    """

    # Of one that could not be made.
    _closed = True

    def __init__(
        self,
        memory: int | str = "256MiB",
        *,
        dirty_limit: int | str | None = None,
        background_limit: int | str | None = None,
        swap_file: tuple[StrOrBytesPath, int | str] | None = None,
        readahead: int | str | None = None,
        page_rule: str | None = None,
        maps: bool = False,
        layers: str | None = None,
        on_slow: tuple[float, Callable[[SlowCall], object]] | None = None,
    ) -> None:
        told = None
        if on_slow is not None:
            least, tell = on_slow
            told = least, lambda *fields: tell(SlowCall(*fields))
        self._core = _core.Cache(
            memory, dirty_limit, background_limit, swap_file, readahead, page_rule, layers, maps, told
        )
        self._closed = False
        self._pid = os.getpid()
        self._memory = memory
        self._files: weakref.WeakSet[File] = weakref.WeakSet()
        self._maps: weakref.WeakSet[Map] = weakref.WeakSet()

    def open(
        self,
        path: StrOrBytesPath,
        mode: str = "r",
        *,
        preallocate: int | str | None = None,
        direct: bool = False,
    ) -> File:
        """Open a file, or a block device, in the cache. While it is open nobody else should write it.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            Which.
        mode : str
            ``r`` reads, ``r+`` writes too; ``w+`` (and ``w``) begins with an empty file, ``x+``
            (``x``) with a new one. Files are binary; a ``b`` makes no difference.
        preallocate : int or str, optional
            Take so much space on the device now.
        direct : bool
            Refuse file systems without direct I/O.

        Returns
        -------
        File
            An ``io.RawIOBase``: ``io.BufferedReader(file)`` is what pandas, numpy and others take.

        Raises
        ------
        OSError
            As the built-in ``open``.
        ValueError
            The cache is closed, or a mode that is none.
        """
        kind = mode.replace("b", "", 1)
        if kind not in ("r", "r+", "w", "w+", "x", "x+"):
            raise ValueError(f"invalid mode: {mode!r}; one of r, r+, w, w+, x, x+")
        if kind[0] == "x":
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        options = (kind[0] != "r", kind[0] == "w", kind == "r")
        try:
            handle = self._core.open(path, options, preallocate, direct)
        except OSError as error:
            if error.filename is None and error.errno is not None:
                raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
            raise
        file = File(self, handle, path, "rb" if kind == "r" else "rb+")
        self._files.add(file)
        return file

    def region(self, size: int | str) -> Region:
        """Make a region of ``size`` bytes of anonymous memory, larger than the limit if need be: it
        takes memory as it is written, and spills to the swap file when memory is short."""
        return self._core.spill(size)

    def writer(self) -> Writer:
        """Make a writer of its own, for a client of the program: ``file.pwrite(data, offset, writer)``
        is paced for what that client wrote, and no other is. Without, a thread is a writer."""
        return self._core.writer()

    def sync(self) -> None:
        """Make all that was written durable, in all files."""
        self._core.sync()

    def set_limit(self, memory: int | str) -> None:
        """Change the limit, up to the one it was made with; a lower one is reached in the background."""
        self._core.set_limit(memory)

    def trim(self) -> int:
        """Give memory that no page needs back to the system; answers the bytes."""
        return self._core.trim()

    def stats(self) -> CacheStats:
        """Read levels, totals, and who waited for what."""
        fields = self._core.stats()
        return CacheStats(**fields | {"waits": [Wait(**wait) for wait in fields["waits"]]})

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        return self._closed

    def close(self) -> None:
        """Sync and end the cache; its maps and files are closed with it. A pin stays readable.

        Raises
        ------
        BufferError
            A ``memoryview`` or an array over a map is still there: it would be no memory any more.
            The cache and its files stay open, and so does that map.
        OSError
            Data that could not be made durable. The cache is ended all the same.
        KeyboardInterrupt
            Ctrl-C: it is ended all the same, and data is written as long as the program lives.
        """
        if self._closed:
            return
        for map_ in list(self._maps):
            map_.close()
        problem: Exception | None = None
        try:
            for file in list(self._files):
                try:
                    file.close()
                except OSError as error:
                    problem = problem or error
            self._closed = True
            self._core.close()
        finally:
            if not self._closed:
                # Interrupted: the rest goes on by itself.
                self._closed = True
                self._core.leave()
        if problem is not None:
            raise problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BufferError as kept:
            if error is None:
                raise
            error.add_note(f"{self!r} stays open: {kept}")

    def __del__(self) -> None:
        if not self._closed and self._pid == os.getpid():
            warnings.warn(f"unclosed cache {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<tidegate.Cache: memory={self._memory!r}{closed}>"


class File(_Single, io.RawIOBase):
    """A file in a cache, unbuffered and binary; made by ``Cache.open``.

    The calls with an offset leave the position alone, and may be used from any thread.
    """

    name: str | bytes
    mode: str

    def __init__(
        self, cache: Cache, handle: _core.File, path: StrOrBytesPath, mode: str
    ) -> None:
        super().__init__()
        self._cache = cache  # lives as long as its files
        self._file = handle
        self._at = 0
        self._pid = os.getpid()
        self.name = os.fspath(path)
        self.mode = mode
        # Called by the million: the compiled functions themselves.
        for call in ("pread", "preadinto", "pwrite", "pin", "pin_run"):
            setattr(self, call, getattr(handle, call))

    def pread(self, n: int, offset: int, /) -> bytes:
        """Read at most ``n`` bytes at ``offset``; fewer at the end of the file."""
        return self._file.pread(n, offset)

    def preadinto(self, buffer: Buffer, offset: int, /) -> int:
        """Fill ``buffer`` from ``offset``; answers how many bytes there were."""
        return self._file.preadinto(buffer, offset)

    def pwrite(self, data: Buffer, offset: int, /, writer: Writer | None = None) -> int:
        """Write all of ``data`` at ``offset``: into memory, paced while the device is behind, as this
        thread or as ``writer`` (``Cache.writer``)."""
        return self._file.pwrite(data, offset, writer)

    def pin(self, page: int, /) -> Pin:
        """Pin a page (4 KiB each, from 0): a read-only buffer without a copy. Pages that are pinned in
        order are read ahead."""
        return self._file.pin(page)

    def pin_run(self, first: int, pages: int, /) -> Pin:
        """Pin ``pages`` pages from ``first`` on, 1 to 512 (2 MiB), in one piece: a read-only buffer
        without a copy, ``numpy.frombuffer(file.pin_run(0, 256), numpy.float32)``. What does not stand
        side by side in memory is moved together.

        Raises
        ------
        ValueError
            No pages, or more than 512.
        OSError
            Beyond the end; too many pins (all together are a quarter of the memory at most); the disk.
        """
        return self._file.pin_run(first, pages)

    def show_at(self, offset: int, n: int, show: Callable[[memoryview], object], /) -> int:
        """Call ``show`` with a read-only view of each page's part of ``n`` bytes at ``offset``, in order,
        without a copy; answers how many bytes there were. A view that is kept keeps its page pinned."""
        at, end = offset, min(offset + n, self._file.size())
        while at < end:
            page, start = divmod(at, PAGE)
            part = memoryview(self.pin(page))[start : start + end - at]
            if not part:
                break  # it was cut meanwhile
            at += len(part)
            show(part)
        return at - offset

    def map(
        self, offset: int = 0, n: int | None = None, *, write: bool | None = None, user_mode: bool = False
    ) -> Map:
        """Map bytes of the file as memory, within the cache's limit whatever is touched: a buffer, as of
        ``numpy.frombuffer(file.map(), numpy.float32)``. In a cache with ``maps=True``; one map of a file
        at a time, and meanwhile its pages are not pinned.

        Parameters
        ----------
        offset : int
            A multiple of 4096.
        n : int, optional
            Bytes; if not given, to the end.
        write : bool, optional
            For stores, too; if not given, as the file was opened.
        user_mode : bool
            Take less than full rights, where the process has no more: then calls of the system that
            are given memory of the map which is not there fail with EFAULT.

        Raises
        ------
        OSError
            The process may not answer page faults (the words have the ways out); the file has a map.
        """
        self._check()
        n = max(self._file.size() - offset, 0) if n is None else n
        write = self.writable() if write is None else write
        made = self._file.map(offset, n, write, user_mode, self._cache)
        self._cache._maps.add(made)
        return made

    def advise(self, advice: Advice, offset: int = 0, n: int = 0, /) -> None:
        """Say what is to come, as ``os.posix_fadvise`` does. Nobody is held to it.

        Parameters
        ----------
        advice : str
            How this file will be read: ``sequential`` (twice as far ahead), ``random`` (nothing
            ahead), ``no-reuse`` (its pages go first), ``normal``. What becomes of a range:
            ``will-need`` begins to read it, ``dont-need`` drops its pages that are clean.
        offset, n : int
            The range in bytes; of 0 bytes, to the end of the file.
        """
        self._check()
        self._file.advise(advice, offset, n)

    def readable(self) -> bool:
        self._check()
        return True

    def writable(self) -> bool:
        self._check()
        return self.mode != "rb"

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def readinto(self, buffer: Buffer, /) -> int:
        self._check()
        read = self.preadinto(buffer, self._at)
        self._at += read
        return read

    def readall(self) -> bytes:
        self._check()
        data = self.pread(max(self._file.size() - self._at, 0), self._at)
        self._at += len(data)
        return data

    def write(self, data: Buffer, /) -> int:
        self._check()
        written = self.pwrite(data, self._at)
        self._at += written
        return written

    def tell(self) -> int:
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check()
        offset = operator.index(offset)
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}
        if whence == io.SEEK_END:
            base[io.SEEK_END] = self._file.size()
        if whence not in base:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        at = base[whence] + offset
        if at < 0:
            raise OSError(22, "Invalid argument")
        self._at = at
        return at

    def truncate(self, size: int | None = None, /) -> int:
        self._check()
        if not self.writable():
            raise io.UnsupportedOperation("truncate")
        size = self._at if size is None else operator.index(size)
        self._file.set_len(size)
        return size

    def sync(self) -> None:
        """Make all that was written to the file durable: on the device, and the device flushed."""
        self._check()
        self._file.sync()

    def sync_range(self, offset: int, n: int, /) -> None:
        """Make ``n`` bytes at ``offset`` durable, as ``sync`` does."""
        self._check()
        self._file.sync_range(offset, n)

    def stats(self) -> FileStats:
        """Bytes that the file has in the cache, hits and misses, and what its calls waited for."""
        self._check()
        return FileStats(**self._file.stats())

    def close(self) -> None:
        """Write back and sync the file, and take it out of the cache. A pin of it stays readable.

        Raises
        ------
        OSError
            Data that could not be made durable.
        """
        if not self.closed:
            try:
                # A cache that was closed has written it back.
                if self._pid == os.getpid() and not self._cache.closed:
                    self._file.close()
            finally:
                super().close()

    def __del__(self) -> None:
        try:
            forgotten = not self.closed and self._pid == os.getpid()
        except AttributeError:
            return  # not even made
        if forgotten:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self, stacklevel=2)
        try:
            self.close()
        except Exception as error:  # nobody is left to hear it
            warnings.warn(f"{self!r} could not be written back: {error}", RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return f"<tidegate.File{closed} name={self.name!r} mode={self.mode!r}>"


