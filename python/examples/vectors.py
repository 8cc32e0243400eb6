"""Rows of a file larger than memory: gathers and scans, beside numpy.memmap in the same memory.

    python vectors.py FOLDER [--rows 3145728] [--limit 512MiB] [--cache 256MiB] [--rounds 3]

Makes a file of rows of 256 float32 (1 KiB each; 3 GiB) and measures, each way in a process of its own, in a memory
cgroup (version 1, as root) with this limit, and by turns:

- gather: 50,000 rows, of which 80 % lie in 5 % of the file, twice with other rows: the second time is *warm*.
- scan: all rows once, in order.

Before each, the kernel's pages of the file are dropped. Of the rounds, the median of seconds is printed, and the largest
resident memory of the process.
"""

import argparse
import contextlib
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tidegate

WIDTH = 256
ROW = 4 * WIDTH
MANY, HOT = 50_000, 0.05
GROUP = pathlib.Path("/sys/fs/cgroup/memory")


def make(path, rows):
    with tidegate.Cache("64MiB") as cache, cache.open(path, "w+", preallocate=rows * ROW) as file:
        for at in range(0, rows, 4096):
            numbers = np.arange(at, min(at + 4096, rows), dtype=np.float32)
            file.write(np.repeat(numbers, WIDTH))


def wanted(rows, seed):
    """Numbers of rows: four of five from the first 5 % of the file."""
    dice = np.random.default_rng(seed)
    hot = dice.integers(0, int(rows * HOT), MANY * 4 // 5)
    return dice.permutation(np.concatenate([hot, dice.integers(0, rows, MANY - len(hot))]))


def gather_pread(file, ids):
    out = np.empty((len(ids), WIDTH), np.float32)
    read = file.preadinto
    for row, at in zip(out, ids.tolist()):
        read(row, at * ROW)
    return out


def gather_threads(file, ids):
    out = np.empty((len(ids), WIDTH), np.float32)

    def part(numbers):
        for number in numbers.tolist():
            file.preadinto(out[number], int(ids[number]) * ROW)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(part, np.array_split(np.arange(len(ids)), 4)))
    return out


def gather_pin(file, ids):
    out, pin = np.empty((len(ids), WIDTH), np.float32), file.pin
    for row, at in zip(out, ids.tolist()):
        page, within = divmod(at * ROW, 4096)
        row[:] = np.frombuffer(pin(page), np.float32, WIDTH, within)
    return out


def scan_pread(file, rows):
    total, block = 0.0, np.empty((1024, WIDTH), np.float32)
    for at in range(0, rows, 1024):
        read = file.preadinto(block, at * ROW) // ROW
        total += float(block[:read, 0].sum(dtype=np.float64))
    return total


def scan_pins(file, rows):
    total = 0.0
    for page in range(rows * ROW // 4096):
        total += float(np.frombuffer(file.pin(page), np.float32)[::WIDTH].sum(dtype=np.float64))
    return total


def scan_array(array):
    return sum(float(array[at : at + 1024, 0].sum(dtype=np.float64)) for at in range(0, len(array), 1024))


@contextlib.contextmanager
def opened(way, path, memory, what):
    """The file in the cache, or as an array."""
    if way.startswith("tidegate.memmap"):
        array = tidegate.memmap(path, np.float32, "r", memory=memory).reshape(-1, WIDTH)
        if what == "gather":
            array.base._mmap.advise("random")
        yield array
    elif way.startswith("numpy.memmap"):
        array = np.memmap(path, np.float32, "r").reshape(-1, WIDTH)
        if way.endswith("MADV_RANDOM"):
            array._mmap.madvise(mmap.MADV_RANDOM)
        yield array
    else:
        with tidegate.Cache(memory) as cache, cache.open(path) as file:
            if what == "gather":
                file.advise("random")
            yield file


GATHERS = {
    "preadinto": gather_pread,
    "preadinto, 4 threads": gather_threads,
    "pin": gather_pin,
    "tidegate.memmap": lambda array, ids: array[ids],
    "numpy.memmap, MADV_RANDOM": lambda array, ids: array[ids],
    "numpy.memmap": lambda array, ids: array[ids],
}
SCANS = {
    "preadinto, 1 MiB": scan_pread,
    "pin, a page each": scan_pins,
    "tidegate.memmap": lambda array, rows: scan_array(array),
    "numpy.memmap": lambda array, rows: scan_array(array),
}


def one(what, way, path, memory, group):
    """One measurement, in this process."""
    if group:
        (pathlib.Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    rows, seconds = os.path.getsize(path) // ROW, []
    with opened(way, path, memory, what) as source:
        if what == "scan":
            began = time.perf_counter()
            assert SCANS[way](source, rows) == float(rows * (rows - 1) // 2)
            seconds.append(time.perf_counter() - began)
        else:
            for seed in (1, 2):
                ids, began = wanted(rows, seed), time.perf_counter()
                out = GATHERS[way](source, ids)
                seconds.append(time.perf_counter() - began)
                assert (out[:, 0] == ids).all() and (out[:, -1] == ids).all()
                del out
    status = pathlib.Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    print(json.dumps([seconds, int(peak) // 1024]))


def dropped(path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, default=3 << 20)
    parser.add_argument("--limit", default="512MiB")
    parser.add_argument("--cache", default="256MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=20, help="seconds that one measurement may take")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    path = os.path.join(asked.folder, "tidegate-vectors")
    if asked.one:
        return one(asked.one[0], asked.one[1], path, asked.cache, asked.one[2])
    if not os.path.exists(path) or os.path.getsize(path) != asked.rows * ROW:
        make(path, asked.rows)
    group = GROUP / f"tidegate-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(asked.limit.removesuffix("iB"))
    except OSError as error:
        print(f"without a limit: {error}")
        group = None
    try:
        ways = [(what, way) for what, all_ in (("gather", GATHERS), ("scan", SCANS)) for way in all_]
        took = {way: [] for way in ways}
        for _ in range(asked.rounds):
            for what, way in ways:
                dropped(path)
                words = [sys.executable, __file__, asked.folder, "--cache", asked.cache, "--one", what, way, str(group or "")]
                try:
                    ended = subprocess.run(words, stdout=subprocess.PIPE, timeout=asked.most)
                    took[what, way].append(json.loads(ended.stdout) if ended.returncode == 0 else None)
                except subprocess.TimeoutExpired:
                    took[what, way].append(None)
        print(f"{'':36}{'cold':>9}{'warm':>9}   peak RSS")
        for (what, way), rounds in took.items():
            whole = [one for one in rounds if one]
            if not whole:
                print(f"{what + ', ' + way:36}   more than {asked.most:.0f} s, or killed")
                continue
            medians = [statistics.median(times) for times in zip(*(one[0] for one in whole))]
            times = "".join(f"{seconds:7.2f} s" for seconds in medians)
            print(f"{what + ', ' + way:36}{times:18}{max(one[1] for one in whole):8} MiB"
                  + ("" if len(whole) == len(rounds) else f", {len(rounds) - len(whole)} not ended"))
    finally:
        if group:
            group.rmdir()


if __name__ == "__main__":
    main()
