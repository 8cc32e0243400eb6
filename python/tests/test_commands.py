"""Traces and claims: the program's commands as calls."""

import random

import pytest

import tidegate


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
    # What is there is used: nothing is run again.
    before = (board.folder / "dd" / "part.json").stat().st_mtime_ns
    again = tidegate.reproduce("dd", out=tmp_path / "out")
    assert again.claims.to_dict() == claims.to_dict()
    assert (board.folder / "dd" / "part.json").stat().st_mtime_ns == before


def test_reproduce_of_no_paper():
    with pytest.raises(tidegate.UsageError, match="p9"):
        tidegate.reproduce("p9")
