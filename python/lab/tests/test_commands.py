"""Recordings, traces and claims: the program's commands as calls."""

import csv
import os
import pathlib
import random
import subprocess

import pytest

import tidegate

RECORDINGS = pathlib.Path(__file__).resolve().parents[3] / "recordings" / "held"


@pytest.mark.skipif("TIDEGATE" not in os.environ, reason="TIDEGATE names no program to compare with")
@pytest.mark.parametrize(
    ("set", "options", "rows"),
    [
        ({}, [], 0),
        ({"vm.dirty_ratio": [2, 10]}, ["--set", "vm.dirty_ratio=2,10"], 2),
        (
            {"vm.dirty_bytes": "200MiB", "vm.dirty_background_bytes": "20MiB"},
            ["--set", "vm.dirty_bytes=200MiB", "--set", "vm.dirty_background_bytes=20MiB"],
            1,
        ),
    ],
)
def test_compare_is_what_the_program_writes(set, options, rows, tmp_path):
    recording = RECORDINGS / "one-dd"
    made = tidegate.compare(recording, set=set, policies="linux-6.12")
    out = tmp_path / "out"
    program = [os.environ["TIDEGATE"], "compare", recording, *options, "--column", "linux-6.12", "--out", out]
    printed = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert printed.startswith(made.text)
    for table in filter(None, [made.figures, made.answers]):
        with open(out / f"{table.name}.csv") as file:
            written = list(csv.DictReader(file))
        assert table.column_names == list(written[0])
        for name in table.column_names:
            texts = [row[name] for row in written]
            if name in {"value", "recorded", "lab", "changed", "answer", "against"}:
                assert table[name] == [float(text) if text else None for text in texts]
            else:
                assert table[name] == texts
    assert (made.answers is not None) == (rows > 0) == (out / "answers.csv").exists()
    if rows:
        assert len(dict.fromkeys(made.answers["change"])) == rows


def test_compare_answers_a_change():
    made = tidegate.compare(RECORDINGS / "one-dd", set={"vm.dirty_bytes": ["32MiB", "128MiB"]}, policies="linux-6.12")
    answers = made.answers.to_pandas().query("figure == 'level'")
    assert answers.value.tolist() == [32, 128] and answers.doubt.tolist() == ["", ""]
    small, large = answers.answer
    assert small < 32 < large < 128
    assert answers.recorded.nunique() == 1 and (answers.recorded * answers.changed / answers.lab).tolist() == [small, large]
    assert "What if vm.dirty_bytes were 32MiB, 128MiB?" in made._repr_html_()
    assert made.figures["recording"][0] == "one-dd"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ({"set": {"vm.dirty_bites": 1}}, "vm.dirty_bytes"),
        ({"set": {"cpus": [1, 2], "hz": [100, 250]}}, "one key at a time"),
        ({"set": {"cpus": 0}}, "cpus=0"),
        ({"policies": "linux-9"}, "linux-9"),
        ({"against": "nowhere"}, "nowhere"),
    ],
)
def test_compare_names_what_is_wrong(call, named):
    with pytest.raises(tidegate.UsageError, match=named):
        tidegate.compare(RECORDINGS / "one-dd", **call)


def test_compare_of_no_recording(tmp_path):
    with pytest.raises(tidegate.UsageError, match="nowhere"):
        tidegate.compare(tmp_path / "nowhere")


@pytest.fixture
def trace(tmp_path):
    dice = random.Random(7)
    pages = [min(int(dice.paretovariate(0.8)), 4000) for _ in range(20_000)]
    path = tmp_path / "pages.txt"
    path.write_text("\n".join(map(str, pages)))
    return path


def lru(pages, size):
    held, hits = {}, 0
    for page in pages:
        if page in held:
            hits += 1
            del held[page]
        elif len(held) == size:
            del held[next(iter(held))]
        held[page] = None
    return hits


def test_replay_counts_what_a_model_counts(trace):
    pages = list(map(int, trace.read_text().split()))
    table = tidegate.replay(trace, rules=["lru", "belady"], pages=[16, "10%"])
    assert table["rule"] == ["lru", "belady"] * 2
    sizes = table["pages"]
    assert sizes[0] == 16 and sizes[2] == len(set(pages)) // 10
    hits = table["hits"]
    assert [hits[0], hits[2]] == [lru(pages, sizes[0]), lru(pages, sizes[2])]
    assert hits[1] >= hits[0] and hits[3] >= hits[2]
    assert table["hit_ratio"][0] == pytest.approx(hits[0] / len(pages))


def test_replay_runs_the_cache_itself(trace):
    table = tidegate.replay(trace, rules="tidegate", memory="1MiB")
    assert table["pages"] == [256] and 0 < table["hit_ratio"][0] < 1


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


@pytest.mark.parametrize("by_dask", [False, True])
def test_a_sweep_of_replays_is_each_replay(trace, tmp_path, by_dask, request):
    other = tmp_path / "other.txt"
    other.write_text(trace.read_text()[:10_000].rsplit("\n", 1)[0])
    asked = {"rules": ["lru", "tidegate"], "pages": ["10%", 99], "memory": "1MiB"}
    client = request.getfixturevalue("client") if by_dask else None
    made = tidegate.replay_sweep([trace, other, tmp_path / "none"], **asked, client=client, progress=False)
    for path in (trace, other):
        ours = made[(made.trace == str(path)) & made.error.isna()]
        theirs = tidegate.replay(path, **asked).to_pandas()
        ours, theirs = (table.sort_values(["rule", "pages"]).reset_index(drop=True) for table in (ours, theirs))
        assert len(ours) == 4 and ours[theirs.columns].astype(theirs.dtypes).equals(theirs)
    none = str(tmp_path / "none")
    failed = made[made.error.notna()].groupby("trace").error.unique()
    assert len(failed[none]) == 1 and none in failed[none][0] and "needs at least" in failed[str(trace)][0]
    assert list(made.trace.unique()) == [str(trace), str(other), none]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ({"rules": "arcc"}, "arcc"),
        ({"pages": "0"}, "`0`"),
        ({"memory": "1KiB"}, "1KiB"),
        ({"format": "csv"}, "`csv`"),
    ],
)
def test_replay_names_what_is_wrong(trace, call, named):
    with pytest.raises(tidegate.UsageError, match=named):
        tidegate.replay(trace, **call)


def test_replay_of_no_file(tmp_path):
    with pytest.raises(tidegate.UsageError, match="nowhere"):
        tidegate.replay(tmp_path / "nowhere")


def test_reproduce_is_the_scoreboard(tmp_path):
    board = tidegate.reproduce("dd", out=tmp_path / "out")
    claims = board.claims
    judged = [id for id, verdict in zip(claims["id"], claims["verdict"]) if verdict in ("holds", "missed")]
    assert judged and len(set(judged)) == len(judged)
    assert (board.folder / "index.html").exists()
    assert sum(board.verdicts.values()) == len(claims)
    # Results in the folder are used: nothing is run again.
    before = (board.folder / "dd" / "part.json").stat().st_mtime_ns
    again = tidegate.reproduce("dd", out=tmp_path / "out")
    assert again.claims.to_dict() == claims.to_dict()
    assert (board.folder / "dd" / "part.json").stat().st_mtime_ns == before


def test_reproduce_of_no_paper():
    with pytest.raises(tidegate.UsageError, match="p9"):
        tidegate.reproduce("p9")
