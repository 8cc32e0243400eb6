"""``numpy.memmap`` with a limit."""

from __future__ import annotations

import atexit
import operator
import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ._cache import PAGE, Cache, File

if TYPE_CHECKING:
    from ._core import Map

MODES = {"r": "r", "r+": "r+", "w+": "w+", "readonly": "r", "readwrite": "r+", "write": "w+"}

_shared: Cache | None = None


def _cache(memory: int | str | Cache | None) -> tuple[Cache, bool]:
    """The cache of an array, and whether it ends with that."""
    global _shared
    if isinstance(memory, Cache):
        return memory, False
    if memory is not None:
        return Cache(memory, maps=True), True
    if _shared is None or _shared._pid != os.getpid():
        _shared = Cache("256MiB", maps=True)
    return _shared, False


class _Owner:
    """The file of a map, which ends after the map, and what else ends then."""

    all: weakref.WeakSet[_Owner] = weakref.WeakSet()

    def __init__(self, file: File, own: bool) -> None:
        self.file, self.own = file, own
        self.all.add(self)

    def __del__(self) -> None:
        self.file.close()
        if self.own:
            self.file._cache.close()


@atexit.register
def _sync() -> None:
    """Arrays may outlive the interpreter's end; what they stored must, too."""
    for owner in list(_Owner.all):
        if owner.file._pid == os.getpid() and not owner.file.closed:
            owner.file.sync()
    if _shared is not None and not _shared._maps:
        _shared.close()


class memmap(np.ndarray[Any, Any]):
    """An array in a file, as ``numpy.memmap``, that takes no more memory than it may.

    Parameters
    ----------
    filename, dtype, mode, offset, shape, order
        As those of ``numpy.memmap``. There is no mode ``c``: private copies of pages have no limit.
    memory : int, str or Cache, optional
        The limit of a cache of its own; or the cache (with ``maps=True``) to share. If not given, a
        cache of 256 MiB that all such arrays of the process share.
    user_mode : bool
        As of ``File.map``: take less than full rights, where the process has no more.

    Raises
    ------
    OSError
        The process may not answer page faults: the words have the ways out.

    Notes
    -----
    What was stored is on the disk after ``flush``, or when the last array over it has ended, also at
    the end of the program; a program that is killed loses it. A file has one such array at a time, and
    no other process sees what was not flushed. A child of a fork must not touch it.
    """

    _mmap: Map | None
    filename: Any
    offset: int | None
    mode: str | None

    def __new__(
        subtype,
        filename: Any,
        dtype: Any = np.uint8,
        mode: str = "r+",
        offset: int = 0,
        shape: Any = None,
        order: Any = "C",
        *,
        memory: int | str | Cache | None = None,
        user_mode: bool = False,
    ) -> memmap:
        if mode not in MODES:
            why = "; private copies have no limit: copy what you change" if mode in ("c", "copyonwrite") else ""
            raise ValueError(f"mode must be one of {list(MODES)} (got {mode!r}){why}")
        mode = MODES[mode]
        if mode == "w+" and shape is None:
            raise ValueError("shape must be given if mode == 'w+'")
        opened = mode
        if hasattr(filename, "read"):
            filename.seek(0, 2)  # it may have something in a buffer
            path = filename.name
            path = path if isinstance(path, str) else f"/proc/self/fd/{filename.fileno()}"
            opened = "r" if mode == "r" else "r+"
            name = os.path.abspath(filename.name) if isinstance(filename.name, str) else None
        else:
            path = os.fspath(filename)
            name = filename.resolve() if hasattr(filename, "resolve") else os.path.abspath(path)
        cache, own = _cache(memory)
        try:
            owner = _Owner(cache.open(path, opened), own)
        except BaseException:
            if own:
                cache.close()
            raise
        length = owner.file._file.size()
        dtype = np.dtype(dtype)
        if shape is None:
            count, rest = divmod(length - offset, dtype.itemsize)
            if rest:
                raise ValueError("Size of available data is not a multiple of the data-type size.")
            shape = (count,)
        else:
            try:
                shape = (operator.index(shape),)
            except TypeError:
                shape = tuple(operator.index(one) for one in shape)
        end = offset + dtype.itemsize * int(np.prod(shape, dtype=object))
        if mode != "r":
            end = max(end, 1)  # of no bytes there is no map
            if length < end:
                owner.file.truncate(end)
        elif length == 0:
            raise ValueError("cannot map an empty file")
        start = offset - offset % PAGE
        if start == end:
            start -= PAGE
        made = owner.file._file.map(start, end - start, mode != "r", user_mode, owner)
        cache._maps.add(made)
        self = super().__new__(subtype, shape, dtype, memoryview(made), offset - start, order=order)
        self._mmap, self.filename, self.offset, self.mode = made, name, offset, mode
        return self

    def __array_finalize__(self, obj: Any) -> None:
        of = obj if getattr(obj, "_mmap", None) is not None and np.may_share_memory(self, obj) else None
        for name in ("_mmap", "filename", "offset", "mode"):
            setattr(self, name, getattr(of, name, None))

    def flush(self) -> None:
        """Make what was stored durable."""
        if self._mmap is not None and self.mode != "r":
            self._mmap.sync()

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        array = super().__array_wrap__(array, context)
        if array is self or type(self) is not memmap:
            return array
        return array[()] if return_scalar else array.view(np.ndarray)

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return part.view(np.ndarray) if type(part) is memmap and part._mmap is None else part
