"""Sweeps: each cell once, whoever runs it, and bit by bit the same."""

import os
import pickle
import signal
import threading
import time

import pyarrow.parquet as parquet
import pytest

import tidegate
from tidegate_lab import _lab

#: Milliseconds a run.
TWO = tidegate.Scenario.from_toml(
    """
    schema = "tidegate-exp/1"
    name = "small"
    [machine]
    cpus = 2
    memory_mib = 64
    [[device]]
    id = "disk"
    model = "null"
    rate_mib = 16
    [[task]]
    id = "writer"
    kind = "dd"
    device = "disk"
    file_mib = 64
    [[row]]
    name = "one"
    [[row]]
    name = "two"
    count = 2
    [[column]]
    name = "tidegate"
    [[column]]
    name = "linux-6.12"
    """
)
GRID = {"machine.memory": ["64MiB", "128MiB"], "machine.cpus": [2, 4]}


def sweep(out, **more):
    asked = {"policies": ["tidegate"], "seeds": range(3), "progress": False} | more
    return tidegate.sweep(TWO, GRID, out=out, **asked)


def test_a_second_start_runs_nothing_and_a_shared_cell_is_run_once(tmp_path):
    first = sweep(tmp_path)
    assert (first.ran, first.failed) == (12, 0)
    table = first.table()
    again = sweep(tmp_path)
    assert again.ran == 0 and again.table().equals(table)
    wider = sweep(tmp_path, seeds=range(4))
    assert wider.ran == 4
    part = wider.table().to_pandas()
    assert part[part.seed < 3].reset_index(drop=True).equals(table.to_pandas())
    lone = tidegate.run(
        TWO.with_({"machine.memory": "128MiB", "machine.cpus": 4}),
        policies=["tidegate"], repetitions=1, seed=2, progress=False,
    )
    rows = table.to_pandas().query("`machine.memory` == '128MiB' and `machine.cpus` == 4 and seed == 2")
    assert rows.trace_hash.tolist() == lone.rows["trace_hash"]


def test_a_cell_that_fails_is_a_row_with_its_error(tmp_path):
    short = TWO.with_("run.max_s", 1)
    made = tidegate.sweep(short, policies=["tidegate"], out=tmp_path, progress=False)
    assert made.failed == 1
    (error,) = set(made.table()["error"].to_pylist())
    assert "run.max_s" in error
    # It is not taken for done.
    assert tidegate.sweep(short, policies=["tidegate"], out=tmp_path, progress=False).ran == 1


def test_mistakes_are_told_before_anything_runs(tmp_path):
    with pytest.raises(tidegate.ScenarioError):
        tidegate.sweep("dd", {"machine.cpus": [2, 0]}, out=tmp_path / "a")
    with pytest.raises(tidegate.UsageError, match="no metric"):
        tidegate.sweep("dd", metrics=["realy"], out=tmp_path / "a")
    with pytest.raises(tidegate.UsageError, match="twice"):
        tidegate.sweep("dd", {"machine.cpus": [2, 2]}, out=tmp_path / "a")
    assert not list(tmp_path.glob("a/part*"))


def test_cancel_keeps_what_is_done(tmp_path):
    made = sweep(tmp_path, seeds=range(2000), wait=False)
    while made.ran < 3:
        time.sleep(0.01)
    made.cancel()
    made.wait(60)
    assert made.done and 3 <= made.ran < 8000
    assert len(made.table()) == made.ran * len(TWO.rows)


def test_an_address_of_fsspec(tmp_path):
    made = sweep(f"file://{tmp_path}/sub", seeds=[1])
    assert parquet.read_table(tmp_path / "sub").num_rows == len(made.table()) == 4 * len(TWO.rows)


def test_200_cells_on_two_processes_of_which_one_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    ours = sweep(tmp_path / "ours", seeds=range(50)).table()
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        made = sweep(tmp_path / "dask", seeds=range(50), client=client, wait=False)

        def kill():
            while made.ran < 100 and not made.done:
                time.sleep(0.01)
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        made.wait(300)
        killer.join()
        theirs = made.table()
        assert sweep(tmp_path / "dask", seeds=range(50), client=client).ran == 0
    assert (made.ran, made.failed) == (200, 0)
    assert theirs.equals(ours)


def test_a_campaign_passes_and_its_hashes_do_not_depend_on_the_workers():
    one = tidegate.campaign(range(1, 9), workers=1, progress=False)
    two = tidegate.campaign(range(1, 9), workers=2, progress=False)
    pickle.dumps(_lab.campaign_seeds)  # as Dask sends it
    assert dict(one.hashes) == dict(two.hashes) and set(one.hashes) == set(range(1, 9)) and not one.failed
