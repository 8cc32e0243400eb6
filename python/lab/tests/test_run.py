"""Experiments: the same as the program's, as tables of others, and ended by Ctrl-C."""

import csv
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading

import pandas
import polars
import pyarrow
import pytest

import tidegate
import tidegate_lab

ROOT = pathlib.Path(__file__).resolve().parents[3]
#: The scale of experiments/hashes.txt.
SCALE = 0.03125


def stored(experiment):
    """Trace hashes that the program came to, by row and column."""
    lines = (ROOT / "experiments/hashes.txt").read_text().splitlines()
    words = [line.split() for line in lines if not line.startswith("#")]
    return {run: hash_ for name, run, hash_ in words if name == experiment}


def test_its_names_are_those_of_the_package():
    assert set(tidegate_lab.__all__) == tidegate._LAB == {*tidegate.__all__} & tidegate._LAB
    assert tidegate.run is tidegate_lab.run


@pytest.fixture(scope="module")
def small():
    return tidegate.run("two-writers", scale=SCALE, repetitions=1, progress=False)


@pytest.mark.parametrize("experiment", ["two-writers", "dd", "light-writer"])
def test_the_hashes_are_the_programs(experiment):
    run = tidegate.run(experiment, scale=SCALE, repetitions=1, progress=False)
    ours = {name.removesuffix("/0"): hash_ for name, hash_ in run.trace_hashes.items()}
    assert ours == stored(experiment)


def test_a_scenario_is_immutable_and_travels(small):
    scenario = tidegate.Scenario.load("dd")
    larger = scenario.with_("machine.memory", "8GiB")
    assert "memory_mib = 8192.0" in larger.toml and "8192" not in scenario.toml
    assert pickle.loads(pickle.dumps(larger)) == larger != scenario
    slow = tidegate.Scenario.load("light-writer").with_({"devices.0.rate": "16MiB/s", "run.seed": 7})
    assert "rate_mib = 16.0" in slow.toml and "seed = 7" in slow.toml
    assert tidegate.Scenario.from_toml(scenario.toml) == scenario
    with pytest.raises(AttributeError):
        scenario.name = "other"
    assert small.scenario.name == "two-writers"


def test_mistakes_have_a_place_and_a_way_out():
    scenario = tidegate.Scenario.load("dd")
    with pytest.raises(tidegate.ScenarioError) as caught:
        tidegate.Scenario.from_toml(scenario.toml.replace("cpus", "cpuz"), "mine.toml")
    (mistake, *_) = caught.value.mistakes
    line = mistake["line"]
    assert scenario.toml.replace("cpus", "cpuz").splitlines()[line - 1].startswith("cpuz")
    assert f"mine.toml:{line}:" in str(caught.value) and "cpus" in mistake["help"]
    with pytest.raises(tidegate.UsageError, match="did you mean `stutterp`"):
        tidegate.run("stuterp")
    with pytest.raises(tidegate.UsageError, match="unknown column `linux-9`"):
        tidegate.run("dd", policies="linux-9")
    with pytest.raises(tidegate.ScenarioError, match="machine.nothing"):
        scenario.with_("machine.nothing", 1)
    with pytest.raises(TypeError):
        scenario.with_("machine.cpus", object())
    with pytest.raises(FileNotFoundError):
        tidegate.Scenario.load("no/such.toml")


def test_tables_are_the_csv_files_in_every_reader(small, tmp_path):
    folder = small.save(tmp_path / "out")
    for name in ("runs", "waits", "counters"):
        table = small.tables[name]
        with open(folder / f"{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(table) > 0
        arrow = pyarrow.table(table)
        frame, other = table.to_pandas(), polars.DataFrame(table)
        assert arrow.column_names == list(rows[0]) == list(frame.columns) == other.columns
        for column in arrow.column_names:
            if column == "started":
                continue
            ours = arrow[column].to_pylist()
            assert other[column].to_list() == ours == table[column]
            assert pandas.Series(ours, dtype=frame[column].dtype).equals(frame[column])
            for value, text in zip(ours, (row[column] for row in rows), strict=True):
                match value:
                    case None:
                        assert text == ""
                    case bool():
                        assert text == str(value).lower()
                    case float() | int():
                        assert float(text) == value
                    case _:
                        assert text == value
    assert pyarrow.schema(small.rows) == pyarrow.table(small.rows).schema


def test_a_notebook_shows_tables_and_plots(small):
    html = small._repr_html_()
    assert "<table" in html and "<svg" in html and "two-writers" not in html.split("<table")[0]
    assert "<td" in small.claims._repr_html_()
    assert set(small.claims["standing"]) <= {"holds", "misses", "fails", "not_run"}


def test_two_threads_do_not_disturb_each_other(small):
    came = {}

    def one(seed):
        came[seed] = tidegate.run(
            "two-writers", scale=SCALE, repetitions=1, seed=seed, progress=False
        ).trace_hashes

    threads = [threading.Thread(target=one, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert came[1] == small.trace_hashes and came[2] != came[1]


def test_ctrl_c_ends_runs_soon_and_keeps_those_that_had_ended():
    script = """
        import sys, time, tidegate
        ticks = 0
        def tick(done, all):
            global ticks
            ticks = done
            if done >= 2:
                print("go", flush=True)
        from tidegate_lab import _lab
        scenario = tidegate.Scenario.load("two-writers")
        try:
            _lab.run_scenario(scenario, [], 1000, 0.03125, None, tick, True)
        except KeyboardInterrupt as interrupted:
            kept = interrupted.run
            print(type(interrupted).__name__, len(kept.rows), kept.is_whole, flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "go\n"
    child.send_signal(signal.SIGINT)
    said = [line for line in child.communicate(timeout=60)[0].splitlines() if line != "go"]
    word, kept, whole = said[-1].split()
    assert (word, whole) == ("Interrupted", "False") and 2 <= int(kept) < 2000
    assert child.returncode == 0


def test_lists_say_what_there_is():
    assert "stutterp" in tidegate.experiments()["name"]
    assert "tidegate" in tidegate.policies()["name"]
    assert set(tidegate.metrics()["better"]) == {"lower", "higher"}
    assert "hog" in tidegate.kinds()["kind"] and len(tidegate.devices()) > 0
    with pytest.raises(KeyError, match="name, title, paper"):
        tidegate.experiments()["nothing"]
