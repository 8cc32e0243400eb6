"""Runs: experiments in virtual time, from a call."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable

from . import _lab
from ._lab import Run, Scenario


def _progress(name: str, wanted: bool) -> tuple[Callable[[int, int], None] | None, Callable[[], None]]:
    """A function to call with (runs done, all runs), and one that ends it."""
    if not wanted:
        return None, lambda: None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if not sys.stderr.isatty():
            return None, lambda: None

        def say(done: int, all_: int) -> None:
            print(f"\r{name}: {done} of {all_} runs", end="", file=sys.stderr, flush=True)

        return say, lambda: print(file=sys.stderr)
    bar = tqdm(desc=name, unit="run", leave=False, delay=1)

    def tick(done: int, all_: int) -> None:
        bar.total = all_
        bar.update(done - bar.n)

    return tick, bar.close


def scenario_of(scenario: Scenario | str | os.PathLike[str]) -> Scenario:
    return scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)


def run(
    scenario: Scenario | str | os.PathLike[str],
    policies: Iterable[str] | str | None = None,
    repetitions: int | None = None,
    scale: float | None = None,
    seed: int | None = None,
    progress: bool = True,
) -> Run:
    """Run an experiment in virtual time, on all cores.

    Parameters
    ----------
    scenario : Scenario, str or os.PathLike
        A scenario, the name of a built-in experiment, or a scenario file.
    policies : list of str, optional
        Columns of the scenario, or names of ``tidegate.policies()``; all columns if not given.
    repetitions : int, optional
        Runs of each row and column, instead of the scenario's.
    scale : float, optional
        Part of the full size, one over a whole number, instead of the scenario's.
    seed : int, optional
        Seed of the first run; the others follow from it. The same seed has the same trace hash.
    progress : bool
        Show a bar (tqdm if it is installed, else a line on a terminal).

    Returns
    -------
    Run
        Tables, claims, hashes; a notebook shows it with its plots.

    Raises
    ------
    ScenarioError
        The scenario has mistakes, or a setting fits nowhere.
    UsageError
        There is no such experiment or policy.
    RunError
        All runs failed. If only some did, a warning says so and ``Run.failed`` names them.
    Interrupted
        Ctrl-C, a ``KeyboardInterrupt``: its ``run`` has the runs that had ended.

    Notes
    -----
    The interpreter's lock is free meanwhile; runs in several threads do not disturb each other.
    """
    scenario = scenario_of(scenario)
    names = [policies] if isinstance(policies, str) else list(policies or [])
    tick, end = _progress(scenario.name, progress)
    try:
        made = _lab.run_scenario(scenario, names, repetitions, scale, seed, tick, True)
    finally:
        end()
    for name, why in made.failed:
        warnings.warn(f"{name} failed: {why}", RuntimeWarning, stacklevel=2)
    return made
