"""Sweeps: many runs of one scenario, on this machine's cores or on Dask's workers.

A *cell* is one scenario with its settings, one policy and one seed. Its key is made of its content
and of the program's version, so a cell that a result folder has is not run again, whoever ran it.
A cell's rows do not depend on where or beside what it was run.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from . import _lab
from ._commands import _list
from ._lab import Scenario
from ._errors import Error, UsageError
from ._run import scenario_of

if TYPE_CHECKING:
    import pandas
    import pyarrow

#: A batch takes at least so long, once it is known how long a cell takes, in seconds.
BATCH_S = 1.0
#: And for each worker so long: what a scheduler takes for a batch (docs/study/sweeps.md).
FED_S = 0.01
#: Cells in a batch at most, so that a worker that dies costs little.
BATCH_MOST = 256
#: Batches under way for each worker: one that runs and one that waits.
AHEAD = 2
#: Most times that a cell is begun again whose worker died.
TRIES_MOST = 3


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what it is, as text."""

    key: str
    toml: str
    origin: str
    policy: str
    seed: int
    settings: tuple[tuple[str, Any], ...]


def cells_of(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]] | None,
    policies: Iterable[str] | None,
    seeds: Iterable[int],
) -> Iterator[Cell]:
    """The cells of a sweep, in order: the grid outermost, then policies, then seeds."""
    grid = dict(grid or {})
    names = [policies] if isinstance(policies, str) else list(policies or scenario.policies)
    seeds = list(seeds)
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        set_ = scenario.with_(settings) if settings else scenario
        for policy, seed in itertools.product(names, seeds):
            content = "\0".join((_lab.version(), set_.toml, policy, str(seed)))
            key = hashlib.sha256(content.encode()).hexdigest()[:32]
            yield Cell(key, set_.toml, scenario.origin, policy, seed, tuple(settings.items()))


def run_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Run a batch, one cell after the other; answers its rows. A cell that fails is a row with its error."""
    rows: list[dict[str, Any]] = []
    for cell in cells:
        about = {"key": cell.key, "policy": cell.policy, "seed": cell.seed}
        about |= {name: _plain(value) for name, value in cell.settings}
        try:
            scenario = Scenario.from_toml(cell.toml, cell.origin)
            run = _lab.run_scenario(scenario, [cell.policy], 1, None, cell.seed, None, False)
        except Error as error:
            rows.append(about | {"case": "", "error": str(error)})
            continue
        rows += [about | {"case": name, "error": why} for name, why in run.failed]
        table = run.rows.to_dict()
        metrics = [name for name in table if name not in _ABOUT_RUN]
        for at in range(len(run.rows)):
            row = about | {"case": table["case"][at], "error": None}
            row["trace_hash"] = table["trace_hash"][at]
            rows.append(row | {name: table[name][at] for name in metrics})
    return rows


#: Columns of ``Run.rows`` that a sweep has otherwise, or that differ from machine to machine.
_ABOUT_RUN = {"run_id", "case", "policy", "replica", "seed", "trace_hash", "virt_s", "wall_s"}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else repr(value)


class Store:
    """A Parquet data set, a file a batch, in a folder or at an fsspec address."""

    def __init__(self, out: str | os.PathLike[str], columns: pyarrow.Schema) -> None:
        import fsspec

        self.schema = columns
        self.fs, self.path = fsspec.core.url_to_fs(os.fspath(out))
        self.fs.makedirs(self.path, exist_ok=True)

    def _files(self) -> list[str]:
        return sorted(self.fs.glob(f"{self.path}/part-*.parquet"))

    def keys(self) -> set[str]:
        """Keys of the cells that are there, failed ones apart: they are run again."""
        import pyarrow.parquet as parquet

        found: set[str] = set()
        for path in self._files():
            with self.fs.open(path, "rb") as file:
                table = parquet.read_table(file, columns=["key", "error"])
            errors = table["error"].to_pylist()
            found |= {key for key, error in zip(table["key"].to_pylist(), errors, strict=True) if error is None}
        return found

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write rows as one file, whole or not at all."""
        import pyarrow
        import pyarrow.parquet as parquet

        name = hashlib.sha256("".join(row["key"] for row in rows).encode()).hexdigest()[:24]
        path = f"{self.path}/part-{name}.parquet"
        with self.fs.open(path + ".tmp", "wb") as file:
            parquet.write_table(pyarrow.Table.from_pylist(rows, schema=self.schema), file)
        self.fs.mv(path + ".tmp", path)

    def read(self, keys: Sequence[str] | None = None) -> pyarrow.Table:
        """All rows, or those of these cells in their order."""
        import pyarrow
        import pyarrow.parquet as parquet

        tables = []
        for path in self._files():
            with self.fs.open(path, "rb") as file:
                tables.append(parquet.read_table(file))
        whole = pyarrow.concat_tables([self.schema.empty_table(), *tables], promote_options="default")
        if keys is None:
            return whole
        place = {key: at for at, key in enumerate(keys)}
        # A cell that failed before and was run again has two rows: the error, and what came of it.
        rows: dict[tuple[int, str], int] = {}
        found = zip(whole["key"].to_pylist(), whole["case"].to_pylist(), whole["error"].to_pylist(), strict=True)
        healed = set()
        failed = []
        for at, (key, case, error) in enumerate(found):
            if key not in place:
                continue
            if error is None:
                rows.setdefault((place[key], case), at)
                healed.add(key)
            else:
                failed.append((key, case, at))
        for key, case, at in failed:
            if key not in healed:
                rows.setdefault((place[key], case), at)
        # Rows of a scenario in the order in which a cell wrote them.
        order = sorted(rows.items(), key=lambda item: (item[0][0], item[1]))
        return whole.take([at for _, at in order])


def _schema(scenario: Scenario, settings: Mapping[str, Sequence[Any]], metrics: Sequence[str]) -> pyarrow.Schema:
    import pyarrow

    kinds = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}

    def kind(values: Sequence[Any]) -> Any:
        types = {type(_plain(value)) for value in values}
        if types == {int, float}:
            return kinds[float]
        return kinds[types.pop()] if len(types) == 1 else pyarrow.string()

    fields = [("key", pyarrow.string()), ("case", pyarrow.string()), ("policy", pyarrow.string())]
    fields += [("seed", pyarrow.int64())]
    fields += [(name, kind(values)) for name, values in settings.items()]
    fields += [("error", pyarrow.string()), ("trace_hash", pyarrow.string())]
    fields += [(name, pyarrow.float64()) for name in metrics]
    return pyarrow.schema(fields)


@dataclass
class Sweep:
    """A sweep under way, or its end.

    Iterating is not needed: ``table()`` waits. In a notebook, ``sweep(..., wait=False)`` answers at
    once, and ``cancel()`` keeps what is done.
    """

    cells: list[Cell]
    store: Store
    ran: int = 0
    failed: int = 0
    problem: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def cancel(self) -> None:
        """Begin no further cell; those under way are kept when they end."""
        self._stop.set()

    @property
    def done(self) -> bool:
        """True if it has ended, or was cancelled and has ended."""
        return self._thread is None or not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> Sweep:
        """Wait for its end. Ctrl-C cancels it, and keeps what is done."""
        if self._thread is not None:
            try:
                until = None if timeout is None else time.monotonic() + timeout
                while self._thread.is_alive() and (until is None or time.monotonic() < until):
                    self._thread.join(0.1)
            except KeyboardInterrupt:
                self.cancel()
                self._thread.join()
                raise
            if not self._thread.is_alive() and self.problem is not None:
                raise self.problem
        return self

    def table(self) -> pyarrow.Table:
        """Wait, and read the rows of all its cells, in the order of the grid."""
        self.wait()
        return self.store.read([cell.key for cell in self.cells])

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``."""
        return self.table().to_pandas()

    def __repr__(self) -> str:
        state = "done" if self.done else "under way"
        return f"<tidegate.Sweep: {len(self.cells)} cells, {self.ran} run now, {self.failed} failed, {state}>"


class _Local:
    """This machine's cores: a thread each, as runs leave the interpreter's lock alone."""

    def __init__(self, workers: int | None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="tidegate")

    def submit(self, work: Callable[..., Any], batch: Sequence[Any]) -> Future[Any]:
        return self._pool.submit(work, batch)

    def ended(self, under_way: Iterable[Future[Any]]) -> list[tuple[Future[Any], Any]]:
        """Those that have ended meanwhile, each with its answer or its exception."""
        done = wait(under_way, timeout=0.1, return_when=FIRST_COMPLETED).done
        return [(future, future.exception() or future.result()) for future in done]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class _Dask:
    """The workers of a ``dask.distributed.Client``. A batch whose worker died goes to another."""

    def __init__(self, client: Any) -> None:
        from distributed import as_completed

        self._client = client
        # Answers arrive while others are asked for.
        self._answers = as_completed(with_results=True, raise_errors=False)

        self._workers, self._asked = 1, 0.0

    @property
    def workers(self) -> int:
        """They come and go: asked for once a second."""
        if time.monotonic() - self._asked > 1:
            self._workers = max(int(sum(self._client.nthreads().values())), 1)
            self._asked = time.monotonic()
        return self._workers

    def submit(self, work: Callable[..., Any], batch: Sequence[Any]) -> Any:
        future = self._client.submit(work, list(batch), pure=False)
        self._answers.add(future)
        return future

    def ended(self, under_way: Iterable[Any]) -> list[tuple[Any, Any]]:
        ended = self._answers.next_batch(block=False)
        if not ended:
            time.sleep(0.005)
        return [
            (future, answer if future.status == "finished" else _problem(future)) for future, answer in ended
        ]

    def close(self) -> None:
        pass


def _problem(future: Any) -> BaseException:
    """Why a batch has no answer."""
    if future.status == "error":
        problem: BaseException = future.exception()
        return problem
    return RuntimeError(f"the batch is {future.status}")


def timed(work: Callable[[list[Any]], Any], batch: list[Any]) -> tuple[Any, float]:
    """The answer of a batch, and the seconds that it took."""
    began = time.perf_counter()
    return work(batch), time.perf_counter() - began


def _drive(
    work: Callable[[list[Any]], Any],
    items: list[Any],
    took: Callable[[list[Any], Any], None],
    lost: Callable[[Any, str], None],
    *,
    client: Any,
    workers: int | None,
    bar: Any,
    stop: threading.Event | None = None,
) -> None:
    """Send items in batches of at least a second until all are done. A batch that is lost with its
    worker is sent again, one item at a time, so that the item that kills workers is found."""
    waiting: list[tuple[Any, int]] = [(item, 0) for item in reversed(items)]
    under_way: dict[Any, list[tuple[Any, int]]] = {}
    mean_s: float | None = None
    stop = stop or threading.Event()
    engine = _Local(workers) if client is None else _Dask(client)
    try:
        while under_way or (waiting and not stop.is_set()):
            cores = engine.workers
            while waiting and not stop.is_set() and len(under_way) < AHEAD * cores:
                seconds = max(BATCH_S, FED_S * cores)
                size = 1 if mean_s is None else max(1, round(seconds / max(mean_s, 1e-6)))
                # The last ones are shared among all.
                size = min(size, BATCH_MOST, max(1, len(waiting) // cores))
                if waiting[-1][1] > 0:
                    size = 1
                batch = [waiting.pop() for _ in range(min(size, len(waiting)))]
                under_way[engine.submit(partial(timed, work), [item for item, _ in batch])] = batch
            for future, answer in engine.ended(under_way):
                batch = under_way.pop(future)
                if isinstance(answer, BaseException):
                    for item, tries in batch:
                        if tries + 1 < TRIES_MOST:
                            waiting.append((item, tries + 1))
                        else:
                            lost(item, f"its worker died {TRIES_MOST} times: {answer!r}")
                            bar.update(1)
                    continue
                each = answer[1] / len(batch)
                mean_s = each if mean_s is None else 0.7 * mean_s + 0.3 * each
                took([item for item, _ in batch], answer[0])
                bar.update(len(batch))
    finally:
        engine.close()
        bar.close()


def _bar(total: int, wanted: bool, what: str) -> Any:
    if wanted:
        try:
            from tqdm.auto import tqdm

            return tqdm(total=total, unit="cell", desc=what)
        except ImportError:
            pass
    return SimpleNamespace(update=lambda count: None, close=lambda: None)


def sweep(
    scenario: Scenario | str | os.PathLike[str],
    grid: Mapping[str, Sequence[Any]] | None = None,
    policies: Iterable[str] | str | None = None,
    seeds: Iterable[int] = range(1),
    *,
    metrics: Sequence[str] | None = None,
    client: Any = None,
    workers: int | None = None,
    out: str | os.PathLike[str] = "results/",
    progress: bool = True,
    wait: bool = True,
) -> Sweep:
    """Run a scenario under every combination of settings, policies and seeds.

    Parameters
    ----------
    scenario : Scenario, str or os.PathLike
        The scenario to run.
    grid : dict of str to list
        Values for keys of ``Scenario.with_``: ``{"machine.memory": ["1GiB", "2GiB"]}``.
    policies : list of str, optional
        Columns; those of the scenario if not given.
    seeds : iterable of int
        One run of all the scenario's rows for each.
    metrics : list of str, optional
        Columns of the result; those that the scenario prints, or all, if not given.
    client : dask.distributed.Client, optional
        Whose workers do it; this machine's cores without one. The rows are the same.
    workers : int, optional
        Threads without a client; one for each core if not given.
    out : str or os.PathLike
        Folder, or an address that fsspec knows, of a Parquet data set, written as cells end. A cell
        that it has is not run again.
    progress : bool
        Show a bar, if tqdm is installed.
    wait : bool
        Wait for the end; else the sweep goes on in the background.

    Returns
    -------
    Sweep
        ``table()`` is a ``pyarrow.Table``: key, case, policy, seed, settings, error, trace_hash,
        metrics.

    Raises
    ------
    ScenarioError
        A combination of settings has a mistake: told before anything is run.
    UsageError
        A metric that does not exist, or two cells that are the same.
    """
    scenario = scenario_of(scenario)
    known = _lab.metrics()["name"]
    wanted = list(metrics if metrics is not None else (scenario.metrics or known))
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no metric `{name}`; tidegate.metrics() has all")
    cells = list(cells_of(scenario, grid, policies, seeds))
    if len({cell.key for cell in cells}) < len(cells):
        raise UsageError("two cells of the grid are the same: a value, a policy or a seed is named twice")
    store = Store(out, _schema(scenario, grid or {}, wanted))
    there = store.keys()
    missing = [cell for cell in cells if cell.key not in there]
    made = Sweep(cells, store)
    bar = _bar(len(cells), progress, "sweep")
    bar.update(len(cells) - len(missing))

    def took(batch: list[Cell], rows: list[dict[str, Any]]) -> None:
        store.write(rows)
        made.ran += len(batch)
        made.failed += len({row["key"] for row in rows if row["error"] is not None})

    def lost(cell: Cell, why: str) -> None:
        row = {"key": cell.key, "case": "", "policy": cell.policy, "seed": cell.seed, "error": why}
        took([cell], [row | {name: _plain(value) for name, value in cell.settings}])

    def go() -> None:
        try:
            _drive(run_cells, missing, took, lost, client=client, workers=workers, bar=bar, stop=made._stop)
        except BaseException as error:
            made.problem = error

    made._thread = threading.Thread(target=go, name="tidegate sweep", daemon=True)
    made._thread.start()
    return made.wait() if wait else made


def _replay_cells(cells: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """As ``run_cells``: a trace, a rule, sizes as of ``replay`` each, and the rest of its arguments."""
    rows: list[dict[str, Any]] = []
    for at, trace, rule, pages, memory, readahead, format in cells:
        about = {"at": at, "trace": trace, "rule": rule}
        try:
            table = _lab.replay_traces([trace], [rule], pages, memory, readahead, format).to_dict()
        except Error as error:
            rows.append(about | {"error": str(error)})
            continue
        names = [name for name in table if name not in about]
        of_each = zip(*(table[name] for name in names), strict=True)
        rows += [about | {"error": None} | dict(zip(names, values, strict=True)) for values in of_each]
    return rows


def replay_sweep(
    traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    rules: Iterable[str] | str = ("lru", "tidegate", "belady"),
    pages: Iterable[int | str] | int | str | None = None,
    memory: Iterable[str] | str | None = None,
    *,
    readahead: bool = False,
    format: str | None = None,
    client: Any = None,
    workers: int | None = None,
    progress: bool = True,
) -> pandas.DataFrame:
    """Replay traces as ``replay`` does: each trace, rule and size by itself, by Dask where its workers
    have the traces under the same paths.

    Parameters
    ----------
    traces, rules, pages, memory, readahead, format
        As for ``replay``.
    client, workers, progress
        As for ``sweep``.

    Returns
    -------
    pandas.DataFrame
        The rows of ``replay``, by trace, rule and size, and ``error``: a trace, rule or size that
        could not be replayed has a row that says why.
    """
    import pandas

    sizes: list[tuple[list[str], list[str]]] = [([size], []) for size in _list(pages)]
    sizes += [([], [size]) for size in _list(memory)]
    names = itertools.product(_list(traces), _list(rules), sizes or [([], [])])
    cells = [
        (at, trace, rule, *size, readahead, format) for at, (trace, rule, size) in enumerate(names)
    ]
    rows: list[dict[str, Any]] = []
    _drive(
        _replay_cells,
        cells,
        lambda _, more: rows.extend(more),
        lambda cell, why: rows.append({"at": cell[0], "trace": cell[1], "rule": cell[2], "error": why}),
        client=client,
        workers=workers,
        bar=_bar(len(cells), progress, "replay"),
    )
    return pandas.DataFrame(sorted(rows, key=lambda row: row["at"])).drop(columns="at", errors="ignore")


@dataclass(frozen=True)
class Campaign:
    """The results of a fault campaign."""

    #: Seeds that were run, and trace hashes of those that passed.
    hashes: Mapping[int, str]
    #: Seeds that failed: why, and the plan's file.
    failed: Mapping[int, tuple[str, str]]

    def __repr__(self) -> str:
        return f"<tidegate.Campaign: {len(self.hashes)} seeds passed, {len(self.failed)} failed>"


def campaign(
    seeds: Iterable[int] = range(1000),
    *,
    client: Any = None,
    workers: int | None = None,
    out: str | os.PathLike[str] = "campaign-out",
    progress: bool = True,
) -> Campaign:
    """Run random machines, workloads and faults in virtual time, as ``cargo xtask campaign`` does.

    Parameters
    ----------
    seeds : iterable of int
        Which.
    client, workers, progress
        As for ``sweep``.
    out : str or os.PathLike
        Folder for the plans of failing seeds: ``cargo xtask campaign --replay FILE --shrink`` runs one
        and makes it smaller.

    Returns
    -------
    Campaign
        Hashes of the seeds that passed; those that failed, each with its plan's file.
    """
    seeds = list(seeds)
    hashes: dict[int, str] = {}
    failed: dict[int, tuple[str, str]] = {}

    def took(_: list[int], answers: list[tuple[int, str, str | None, str | None]]) -> None:
        for seed, hash_, why, plan in answers:
            if why is None:
                hashes[seed] = hash_
                continue
            os.makedirs(out, exist_ok=True)
            path = os.path.join(out, f"seed-{seed}.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(plan or "")
            failed[seed] = (why, path)

    def lost(seed: int, why: str) -> None:
        failed[seed] = (why, "")

    bar = _bar(len(seeds), progress, "campaign")
    _drive(_lab.campaign_seeds, seeds, took, lost, client=client, workers=workers, bar=bar)
    return Campaign(hashes, failed)
