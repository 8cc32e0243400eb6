"""A page cache with one memory limit, its files as Python's; and, with the package ``tidegate-lab``,
published kernel experiments on reclaim and writeback, re-run in virtual time.

>>> import tidegate
>>> with tidegate.Cache(memory="64MiB") as cache, cache.open("data") as file:
...     file.pread(4096, 0)

The laboratory: ``experiments``, ``policies``, ``metrics``, ``kinds``, ``devices`` say what there is;
``Scenario`` and ``run`` are for experiments; ``sweep`` and ``campaign`` for thousands of them;
``reproduce`` is for all published claims, ``compare`` for recordings of real kernels and what a change
would do, ``replay`` and ``replay_sweep`` for traces of accesses.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ._cache import Cache, CacheStats, File, FileStats, SlowCall, Wait
from ._core import Map, Pin, Region, Writer, version

__version__ = version()

__all__ = [
    "Cache", "CacheStats", "File", "FileStats", "Map", "Pin", "Region", "SlowCall", "Wait", "Writer", "memmap", "version"
]

#: The names of the laboratory, for those who look for them here.
_LAB = frozenset(
    """Board Campaign Comparison Error Interrupted Run RunError Scenario ScenarioError Sweep Table UsageError campaign
    compare devices experiments kinds metrics policies replay replay_sweep reproduce run sweep""".split()
)

if TYPE_CHECKING:
    import tidegate_lab
    from tidegate_lab import *

    from ._memmap import memmap

    __all__ += tidegate_lab.__all__
elif find_spec("tidegate_lab"):
    __all__ += sorted(_LAB)


def __getattr__(name: str) -> Any:
    if name == "memmap":  # needs numpy
        from ._memmap import memmap

        return memmap
    if name not in _LAB:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    try:
        import tidegate_lab
    except ModuleNotFoundError as error:
        if error.name != "tidegate_lab":
            raise
        raise ModuleNotFoundError(
            f"tidegate.{name} is of the laboratory, which is not installed: pip install './python[lab]' in the "
            "repository of Tidegate, or its wheel, tidegate_lab",
            name=error.name,
        ) from None
    return getattr(tidegate_lab, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
