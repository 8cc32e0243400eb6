"""A vector index on disk that is four times as large as its memory: the kernel's map in a memory group, and the preload.

    pip install faiss-cpu numpy
    python vectors.py LIBRARY FOLDER [ROUNDS]

Makes an index of 2 million vectors of 128 floats (IVF, 994 MiB) in the folder where it is not there yet. Then searches it by
IO_FLAG_MMAP, by turns: with the kernel's map in a control group of 256 MiB (root; memory of version 1), and with the preload
and TIDEGATE_MEMORY=256MiB. Only the index is in the group: the process joins it once all else is loaded. The kernel reads as
much around a fault as `read_ahead_kb` of the device says, which is printed: with 8192 it is several times slower than with 128.
"""

import os
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
LIMIT = 256 * MIB
VECTORS, WIDTH, LISTS, PROBES = 2_000_000, 128, 4096, 4
SECONDS = 15
GROUP = "/sys/fs/cgroup/memory/tidegate-vectors"


def vectors(count: int, seed: int):
    """Vectors in clusters, as embeddings are: the centres, vectors, and the cluster of each."""
    import numpy

    centres = numpy.random.default_rng(1).standard_normal((LISTS, WIDTH), dtype=numpy.float32)
    random = numpy.random.default_rng(seed)
    of = random.integers(0, LISTS, count)
    return centres, centres[of] + 0.3 * random.standard_normal((count, WIDTH), dtype=numpy.float32), of


def make(path: str) -> None:
    import faiss

    # The clusters are known: nothing has to be trained.
    quantizer = faiss.IndexFlatL2(WIDTH)
    index = faiss.IndexIVFFlat(quantizer, WIDTH, LISTS)
    index.is_trained = True
    for part in range(20):
        centres, data, of = vectors(VECTORS // 20, 100 + part)
        if part == 0:
            quantizer.add(centres)
        index.add_core(len(data), faiss.swig_ptr(data), None, faiss.swig_ptr(of))
    faiss.write_index(index, path)


def search(path: str, kind: str) -> None:
    import faiss
    import numpy

    faiss.omp_set_num_threads(1)
    random = numpy.random.default_rng(3)
    _, queries, _ = vectors(4000, 4)
    # Four of five are among the same 50, as users ask.
    order = numpy.where(random.random(200_000) < 0.8, random.integers(0, 50, 200_000), random.integers(0, 4000, 200_000))
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if kind == "kernel":
        with open(f"{GROUP}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    before = resident()
    index = faiss.read_index(path, faiss.IO_FLAG_MMAP)
    index.nprobe = PROBES
    took, most = [], 0
    began = looked = time.monotonic()
    while looked - began < SECONDS:
        query = order[len(took) % len(order)]
        index.search(queries[query : query + 1], 10)
        now = time.monotonic()
        took.append(now - looked)
        looked = now
        if len(took) % 200 == 0:
            most = max(most, resident() - before)
            looked = time.monotonic()
    took.sort()
    rate = len(took) / sum(took)
    found = index.search(queries[order[:300]], 10)[1]
    if kind == "kernel":
        with open(f"{GROUP}/memory.max_usage_in_bytes") as file:
            most = int(file.read())
    print(rate, took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3, took[-1] * 1e3, most / MIB, int(found.sum()))


def resident() -> int:
    """Bytes of the process in memory, each once: the pages of a map of Tidegate are mapped twice."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10


def group() -> None:
    os.makedirs(GROUP, exist_ok=True)
    with open(f"{GROUP}/memory.limit_in_bytes", "w") as file:
        file.write(str(LIMIT))
    with open(f"{GROUP}/memory.max_usage_in_bytes", "w") as file:
        file.write("0")


def main(library: str, folder: str, rounds: str = "3") -> None:
    path = os.path.join(folder, "vectors.faiss")
    if not os.path.exists(path):
        subprocess.run([sys.executable, __file__, "make", path + ".new"], check=True)
        os.rename(path + ".new", path)
    device = os.stat(path).st_dev
    with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb") as file:
        ahead = file.read().strip()
    print(f"{os.path.getsize(path) / MIB:.0f} MiB, {LIMIT // MIB} MiB of memory, {SECONDS} s a run, read_ahead_kb {ahead}")
    more = {"kernel": {}, "tidegate": {"LD_PRELOAD": library, "TIDEGATE_MEMORY": f"{LIMIT}B", "TIDEGATE_STRICT": "1"}}
    runs: dict[str, list[list[float]]] = {kind: [] for kind in more}
    for _ in range(int(rounds)):
        for kind, variables in more.items():
            group()
            words = [sys.executable, __file__, "search", path, kind]
            ran = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
            if ran.returncode != 0:
                sys.exit(ran.stderr)
            runs[kind].append([float(word) for word in ran.stdout.split()])
            rate, middle, high, longest, most, found = runs[kind][-1]
            if found != runs["kernel"][0][-1]:
                sys.exit(f"{kind}: other neighbours were found")
            print(f"{kind:9} {rate:7.0f} queries/s, p50 {middle:.2f} ms, p99 {high:.1f} ms, longest {longest:.0f} ms, resident {most:.0f} MiB")
            os.rmdir(GROUP)
    medians = {kind: statistics.median(run[0] for run in of) for kind, of in runs.items()}
    print(f"median: kernel {medians['kernel']:.0f}, tidegate {medians['tidegate']:.0f} queries/s")


if sys.argv[1] == "make":
    make(sys.argv[2])
elif sys.argv[1] == "search":
    search(sys.argv[2], sys.argv[3])
else:
    main(*sys.argv[1:])
