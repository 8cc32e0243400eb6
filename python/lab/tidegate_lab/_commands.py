"""The program's other commands as calls."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import _lab
from ._lab import Table


def _list(one_or_more: object) -> list[str]:
    if one_or_more is None:
        return []
    if isinstance(one_or_more, (str, bytes, os.PathLike)) or not hasattr(one_or_more, "__iter__"):
        return [_text(one_or_more)]
    return [_text(one) for one in one_or_more]


def _text(one: object) -> str:
    return os.fsdecode(one) if isinstance(one, (bytes, os.PathLike)) else str(one)


def _settings(settings: Mapping[str, object] | None) -> list[str]:
    """``KEY=VALUE`` as the program has them; of a list, ``KEY=A,B,C``."""
    return [f"{key}={','.join(_list(value))}" for key, value in (settings or {}).items()]


@dataclass(frozen=True)
class Comparison:
    """A recording of a real kernel beside the lab, and what changes would do.

    Attributes
    ----------
    figures : Table
        A row for each figure of the recording, of each policy's run, and of each run under a change:
        ``recording``, ``column`` (``recording``, or the policy), ``figure``, ``unit``, ``value``.
    answers : Table or None
        A row for each change, policy and figure: ``change``, ``value`` (a number for an axis, sizes in
        MiB), ``recorded``, ``lab`` (without the change), ``changed`` (the lab with it), ``answer``. The answer of the first
        policy is the recorded value times what the change does in the lab; of the others, the lab's own value. ``doubt`` says
        how far the lab is from this recording without the change; beyond a factor of two there is no answer.
        ``against`` is the value of the recording named so.
    text : str
        The output of ``tidegate compare``.
    """

    figures: Table = field(repr=False)
    answers: Table | None = field(repr=False)
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def compare(
    recording: str | os.PathLike[str],
    set: Mapping[str, object] | None = None,
    given: Mapping[str, object] | None = None,
    policies: Iterable[str] | str | None = None,
    against: str | os.PathLike[str] | None = None,
    seed: int = 1,
) -> Comparison:
    """Compare a recording of a real kernel with the lab, and ask what a change would do.

    Parameters
    ----------
    recording : path
        A folder of tables, as ``cargo instruments guest`` makes them, or a file with the text of a trace.
    set : dict, optional
        Changes of the setting (what if) by the kernel's names, as ``{"vm.dirty_bytes": "200MiB"}``. A list of
        values, or a text ``"FROM..TO:STEP"``, asks for each of them; one key may have several.
    given : dict, optional
        Values that the recording lacks or has wrong, by the same keys.
    policies : list of str, optional
        Columns of the lab, of which the first is judged; ``["linux-6.12", "tidegate"]`` if not given.
    against : path, optional
        A recording of the changed setting, which shows the error of the answer.
    seed : int
        Seed of the lab.

    Returns
    -------
    Comparison

    Raises
    ------
    UsageError
        A recording that cannot be used, with file and line; a key, a value or a policy that is none.
    RunError
        A run failed.
    KeyboardInterrupt
        Ctrl-C.
    """
    return Comparison(
        *_lab.compare_recording(
            recording, _settings(set), _settings(given), _list(policies), against, seed
        )
    )


def replay(
    traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    rules: Iterable[str] | str = ("lru", "tidegate", "belady"),
    pages: Iterable[int | str] | int | str | None = None,
    memory: Iterable[str] | str | None = None,
    readahead: bool = False,
    format: str | None = None,
) -> Table:
    """Replay traces of accesses under page rules and sizes of memory, in virtual time, on all cores.

    Parameters
    ----------
    traces : path or list of paths
        Files of accesses, plain or packed by gzip or xz.
    rules : list of str
        ``lru``, ``clock``, ``2q``, ``arc``, ``lirs``, ``s3-fifo``, ``w-tinylfu``, ``reuse``,
        ``linux-6.12-mglru``, ``belady`` (which knows the future: no rule does better), and names of
        ``tidegate.policies()``.
    pages : int, str, or list, optional
        Sizes of memory: pages of 4 KiB (``4096``), or per cent of the pages of the trace (``"5%"``).
        Without this and ``memory``: eight sizes from 1 to 80 %.
    memory : str or list, optional
        The same in bytes, as ``"64MiB"``.
    readahead : bool
        Policies read ahead; rules never do.
    format : str, optional
        ``u64``, ``numbers``, ``oracle-general``, ``msr``, ``blkparse``, ``perf``; from name and contents if
        not given.

    Returns
    -------
    Table
        A row for each trace, size and rule: ``hit_ratio``, ``hits``, ``misses``, ``refaults`` (misses of pages
        that had been in memory), ``evicted``, ``written``, ``read_ahead``, ``cached`` (pages in memory on
        average). A rule that cannot work in so little memory has no row.

    Raises
    ------
    UsageError
        A trace that cannot be read, with its line; a rule or a size that is none.
    KeyboardInterrupt
        Ctrl-C.
    """
    return _lab.replay_traces(
        _list(traces), _list(rules), _list(pages), _list(memory), readahead, format
    )


@dataclass(frozen=True)
class Board:
    """The verdicts on all published claims.

    Attributes
    ----------
    claims : Table
        A row for each: ``paper``, ``experiment``, ``id``, ``claim``, ``published``, ``ours``, ``band``,
        ``verdict`` (``holds``, ``missed``, ``not built``, ``not run``, ``not judged``),
        ``grade`` (``A`` to ``D`` of a claim that holds), ``why``.
    folder : pathlib.Path
        All results: ``index.html``, and a folder for each experiment.
    """

    claims: Table = field(repr=False)
    folder: Path

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of claims by verdict."""
        counts: dict[str, int] = {}
        for verdict in self.claims["verdict"]:
            counts[verdict] = counts.get(verdict, 0) + 1
        return counts

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items())
        return f"{len(self.claims)} claims: {counts}; {self.folder / 'index.html'}"

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>{self.claims._repr_html_()}"


def reproduce(
    papers: Iterable[str] | str | None = None,
    repetitions: int | None = None,
    scale: float | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Board:
    """Reproduce the published claims: every experiment, on all cores (some minutes on two).

    Parameters
    ----------
    papers : list of str, optional
        Papers (``p0`` to ``p4``) or experiments; all of them if not given.
    repetitions : int, optional
        Runs of each row and column, instead of one.
    scale : float, optional
        Part of the full size, one over a whole number, instead of each experiment's own.
    out : path, optional
        A folder for the results, instead of a new one. Results that an earlier call left there are
        used: a call that was interrupted goes on.

    Returns
    -------
    Board

    Raises
    ------
    UsageError
        There is no such paper or experiment.
    KeyboardInterrupt
        Ctrl-C; experiments that had ended are in ``out``.
    """
    claims, folder = _lab.reproduce_claims(_list(papers), repetitions, scale, out)
    return Board(claims, Path(folder))
