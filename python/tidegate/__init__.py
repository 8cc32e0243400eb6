"""Published kernel experiments on reclaim and writeback, re-run in virtual time; and a page cache
with one memory limit.

>>> import tidegate
>>> run = tidegate.run("dd", policies=["linux-6.12", "tidegate"], repetitions=1)
>>> run.rows.to_pandas()[["case", "policy", "real", "pause_max_ms"]]

``experiments``, ``policies``, ``metrics``, ``kinds``, ``devices`` say what there is; ``Scenario`` and
``run`` are for experiments; ``sweep`` and ``campaign`` for thousands of them; ``reproduce`` is for all
published claims, ``compare`` for recordings of real kernels and what a change would do, ``replay`` for traces of accesses,
``Cache`` for files.
"""

from ._cache import Cache, CacheStats, File, FileStats
from ._core import (
    Pin,
    Region,
    Run,
    Scenario,
    Table,
    devices,
    experiments,
    kinds,
    metrics,
    policies,
    version,
)
from ._commands import Board, Comparison, compare, replay, reproduce
from ._errors import Error, Interrupted, RunError, ScenarioError, UsageError
from ._run import run
from ._sweep import Campaign, Sweep, campaign, sweep

__version__ = version()

__all__ = [
    "Board",
    "Cache",
    "CacheStats",
    "Campaign",
    "Comparison",
    "Error",
    "File",
    "FileStats",
    "Interrupted",
    "Pin",
    "Region",
    "Run",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Sweep",
    "Table",
    "UsageError",
    "campaign",
    "compare",
    "devices",
    "experiments",
    "kinds",
    "metrics",
    "policies",
    "replay",
    "reproduce",
    "run",
    "sweep",
    "version",
]
