"""Programs of others under libtidegate-preload.so: numpy.memmap and LMDB, in processes of their own.

    python programs.py LIBRARY FOLDER

Prints what each took at most, and ends with 1 if a byte is wrong or the limit did not hold.
"""

import os
import subprocess
import sys
import textwrap

MIB = 1 << 20

# Bytes of the process that are in memory, each once, at their most: the pages of a map are mapped twice.
WATCH = """
import os, sys, threading, time
def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10
most = 0
def watch():
    global most
    while True:
        most = max(most, resident())
        time.sleep(0.01)
path = sys.argv[1]
"""
BEGIN = """
before = resident()
threading.Thread(target=watch, daemon=True).start()
"""
END = """
print(most - before)
"""

NUMPY = (
    WATCH
    + "import numpy\nnumpy.random.default_rng(1)\n"
    + BEGIN
    + """
table = numpy.memmap(path, dtype=numpy.uint32, mode="w+", shape=(64 << 18,))
for at in range(0, len(table), 1 << 18):
    table[at : at + (1 << 18)] = numpy.arange(at, at + (1 << 18), dtype=numpy.uint32)
assert int(table.sum(dtype=numpy.uint64)) == len(table) * (len(table) - 1) // 2
table[:: 1024] += 1
some = numpy.random.default_rng(1).integers(0, len(table), 20_000)
assert (table[some] == some + (some % 1024 == 0)).all()
table.flush()
"""
    + END
)
NUMPY_AFTER = """
import numpy, sys
table = numpy.fromfile(sys.argv[1], dtype=numpy.uint32)
wanted = numpy.arange(len(table), dtype=numpy.uint32)
wanted[:: 1024] += 1
assert len(table) == 64 << 18 and (table == wanted).all()
"""

LMDB = (
    WATCH
    + "import lmdb\n"
    + BEGIN
    + """
env = lmdb.open(path, map_size=64 << 20, writemap=True)
for batch in range(60):
    with env.begin(write=True) as txn:
        for n in range(batch * 1000, batch * 1000 + 1000):
            txn.put(b"%08d" % (n * 7919 % 60_000), b"value %08d" % n * 20)
with env.begin() as txn:
    for n in range(0, 60_000, 3):
        assert txn.get(b"%08d" % (n * 7919 % 60_000)) == b"value %08d" % n * 20
env.close()
"""
    + END
)
LMDB_AFTER = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=64 << 20, readonly=True) as env, env.begin() as txn:
    assert txn.stat()["entries"] == 60_000
    for n in range(60_000):
        assert txn.get(b"%08d" % (n * 7919 % 60_000)) == b"value %08d" % n * 20
"""


def run(program: str, path: str, **more: str) -> str:
    words = [sys.executable, "-c", textwrap.dedent(program), path]
    ran = subprocess.run(words, env={**os.environ, **more}, capture_output=True, text=True)
    if ran.returncode != 0 or "tidegate-preload" in ran.stderr:
        sys.exit(f"{path}: {ran.returncode}\n{ran.stderr}")
    return ran.stdout


def main(library: str, folder: str) -> None:
    for name, program, after, limit in [
        ("numpy", NUMPY, NUMPY_AFTER, 32 * MIB),
        ("lmdb", LMDB, LMDB_AFTER, 16 * MIB),
    ]:
        path = os.path.join(folder, name)
        took = int(run(program, path, LD_PRELOAD=library, TIDEGATE_MEMORY=f"{limit}B"))
        run(after, path)
        print(f"{name}: {took / MIB:.1f} MiB at most, of a limit of {limit / MIB:.0f} MiB")
        # 8 MiB: page tables, threads, what the program itself takes meanwhile.
        if not limit / 2 < took < limit + 8 * MIB:
            sys.exit(f"{name}: {took} bytes with a limit of {limit}")


main(*sys.argv[1:])
