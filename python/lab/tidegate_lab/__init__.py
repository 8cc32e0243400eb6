"""The laboratory of Tidegate: published kernel experiments, re-run in virtual time. Its names are those
of ``tidegate``, too.

>>> import tidegate
>>> run = tidegate.run("dd", policies=["linux-6.12", "tidegate"], repetitions=1)
>>> run.rows.to_pandas()[["case", "policy", "real", "pause_max_ms"]]
"""

from ._commands import Board, Comparison, compare, replay, reproduce
from ._errors import Error, Interrupted, RunError, ScenarioError, UsageError
from ._lab import Run, Scenario, Table, devices, experiments, kinds, metrics, policies
from ._run import run
from ._sweep import Campaign, Sweep, campaign, replay_sweep, sweep

__all__ = [
    "Board",
    "Campaign",
    "Comparison",
    "Error",
    "Interrupted",
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
    "replay_sweep",
    "reproduce",
    "run",
    "sweep",
]
