"""The cost of calls and sweeps on this machine: the tables of docs/study/python.md and docs/study/sweeps.md.

    python costs.py calls                  # ns: pread and pin, beside os.pread and an mmap
    python costs.py run PROGRAM            # seconds: run("dd") beside `tidegate run dd`, in turn
    python costs.py sweep [--cells 200]    # seconds: cells on two processes, by Dask and by themselves

Figures are the best of several rounds, which other programs have disturbed least.
"""

import argparse
import concurrent.futures
import functools
import mmap
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time

import tidegate
import tidegate_lab._sweep

PAGES = 1024
ROUNDS = 41
#: A cell of about half a second; `sweep` prints what it takes here.
CELL = tidegate.Scenario.load("dd")


def ns(call, many=2000):
    """The least time of a call with a page's number, over rounds."""
    pages = [at * 2654435761 % PAGES for at in range(many)]
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        for page in pages:
            call(page)
        best = min(best, (time.perf_counter_ns() - began) / many)
    return best


def calls():
    with tempfile.TemporaryDirectory() as folder, tidegate.Cache(memory="64MiB") as cache:
        path = os.path.join(folder, "data")
        with cache.open(path, "w+") as file, open(path, "r+b") as own:
            file.write(os.urandom(PAGES * 4096))
            file.sync()
            handle, mapped = own.fileno(), mmap.mmap(own.fileno(), 0)
            view = memoryview(mapped)

            def pin(page):
                with file.pin(page) as pinned:
                    memoryview(pinned).release()

            for name, call in [
                ("nothing: the loop and its call", lambda page: None),
                ("file.pread(4096, offset)", lambda page: file.pread(4096, page * 4096)),
                ("os.pread(fd, 4096, offset)", lambda page: os.pread(handle, 4096, page * 4096)),
                ("a slice of an mmap, copied", lambda page: mapped[page * 4096 : page * 4096 + 4096]),
                ("pin, a memoryview of it, both given back", pin),
                ("a slice of a memoryview of an mmap", lambda page: view[page * 4096 : page * 4096 + 4096].release()),
            ]:
                print(f"{name:44}{ns(call):8.0f} ns")
            view.release()
            mapped.close()


def cpu(of):
    used = resource.getrusage(of)
    return used.ru_utime + used.ru_stime


def run(program):
    """Each by turns; seconds of CPU time, and of the clock."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(5):
            began, before = time.perf_counter(), cpu(resource.RUSAGE_SELF)
            tidegate.run("dd", repetitions=1, progress=False)
            ours.append((cpu(resource.RUSAGE_SELF) - before, time.perf_counter() - began))
            began, before = time.perf_counter(), cpu(resource.RUSAGE_CHILDREN)
            words = [program, "run", "dd", "--replicas", "1", "--out", os.path.join(folder, "out")]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            theirs.append((cpu(resource.RUSAGE_CHILDREN) - before, time.perf_counter() - began))
    for name, times in (('run("dd", repetitions=1)', ours), ("tidegate run dd --replicas 1", theirs)):
        least = [min(time[at] for time in times) for at in (0, 1)]
        print(f"{name:44}{least[0]:8.2f} s of CPU time {least[1]:8.2f} s")


def sweep(cells):
    import distributed

    # The sweep's own work, one cell at a time.
    many = [[cell] for cell in tidegate_lab._sweep.cells_of(CELL, {}, ["tidegate"], range(cells))]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        work = functools.partial(tidegate_lab._sweep.timed, tidegate_lab._sweep.run_cells)
        list(pool.map(work, many[:4]))  # both have the package now
        began = time.perf_counter()
        lengths = [seconds for _, seconds in pool.map(work, many)]
        alone = time.perf_counter() - began
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with tempfile.TemporaryDirectory() as out, distributed.LocalCluster(**options) as cluster:
        with distributed.Client(cluster) as client:
            asked = {"policies": ["tidegate"], "client": client, "progress": False}
            tidegate.sweep(CELL, seeds=range(cells, cells + 4), out=f"{out}/first", **asked)
            before, began = cpu(resource.RUSAGE_SELF), time.perf_counter()
            made = tidegate.sweep(CELL, seeds=range(cells), out=f"{out}/all", **asked)
            dask, spent = time.perf_counter() - began, cpu(resource.RUSAGE_SELF) - before
    assert (made.ran, made.failed) == (cells, 0)
    print(f"{cells} cells of {sum(lengths) / cells:.2f} s, two processes without Dask {alone:8.1f} s")
    print(f"the same as a sweep on a LocalCluster of two processes {dask:8.1f} s: {alone / dask:.2f} of the cores")
    print(f"client and scheduler, CPU time of a cell {1000 * spent / cells:8.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("calls")
    what.add_parser("run").add_argument("program")
    what.add_parser("sweep").add_argument("--cells", type=int, default=200)
    asked = parser.parse_args()
    if asked.what == "calls":
        calls()
    elif asked.what == "run":
        run(asked.program)
    else:
        sweep(asked.cells)
