"""Files as memory, within the limit; and numpy.memmap's own tests on ours."""

import gc
import io
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest
from numpy._core.tests import test_memmap

import tidegate

PAGE = 4096

try:
    with tidegate.Cache("16MiB", maps=True) as probed, probed.open("/proc/self/exe") as probe:
        probe.map(0, PAGE).close()
except OSError as error:
    pytest.skip(f"no maps here: {error}", allow_module_level=True)


@pytest.fixture
def cache():
    with tidegate.Cache("16MiB", maps=True) as made:
        yield made


def test_a_map_is_the_files_bytes_within_the_limit(cache, tmp_path):
    numbers = numpy.arange(12 << 20, dtype=numpy.uint32)
    (tmp_path / "numbers").write_bytes(numbers.tobytes())
    with cache.open(tmp_path / "numbers", "r+") as file, file.map() as map_:
        array = numpy.frombuffer(map_, numpy.uint32)
        assert (array == numbers).all() and array.flags.writeable
        assert 0 < map_.resident <= 16 << 20 and len(map_) == numbers.nbytes
        array[::1024] = 7
        assert file.pread(4, 0) == (7).to_bytes(4, "little")
        file.pwrite(b"seen", 8)
        assert array[2:3].tobytes() == b"seen"
        map_.sync()
        stats = map_.stats()
        assert stats["faults_total"] > 0 and stats["stores_total"] > 0 and stats["failed_total"] == 0
        assert stats["resident"] == map_.resident and map_.rights in ("full", "user-mode")
        with pytest.raises(BufferError):
            map_.close()
        with pytest.raises(OSError, match="map"):
            file.pin(0)
        del array
    assert map_.closed
    stored = numpy.fromfile(tmp_path / "numbers", numpy.uint32)
    assert (stored[1024::1024] == 7).all() and (stored[1025::1024] == numbers[1025::1024]).all()
    for use in (lambda: memoryview(map_), map_.sync, lambda: map_.resident):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_map_of_a_part_and_for_reading(cache, tmp_path):
    data = os.urandom(5 * PAGE + 10)
    (tmp_path / "part").write_bytes(data)
    with cache.open(tmp_path / "part") as file:
        with file.map(PAGE, 2 * PAGE + 5) as map_:
            view = memoryview(map_)
            assert view.readonly and view == data[PAGE : 3 * PAGE + 5]
            with pytest.raises(TypeError):
                view[0] = 1
            view.release()
        with pytest.raises(io.UnsupportedOperation, match="read"):
            file.map(write=True)
        for wrong in (1, 6 * PAGE):
            with pytest.raises((ValueError, OSError)):
                file.map(wrong, PAGE)
        with pytest.raises(ValueError, match="-1"):
            file.map(-1, PAGE)
    with cache.open(tmp_path / "part", "r+") as file:
        assert memoryview(file.map(write=False)).readonly
        file.map(3 * PAGE).close()  # it begins where the one before has ended


#: Each context manager of the package, and what has a buffer that is out when its block ends.
MANAGERS = {
    "Cache": lambda cache, file: (cache, file.map()),
    "File": lambda cache, file: (file, file.map()),
    "Map": lambda cache, file: [file.map()] * 2,
    "Pin": lambda cache, file: [file.pin(0)] * 2,
}


def test_each_context_manager_is_tried():
    assert MANAGERS.keys() == {name for name in tidegate.__all__ if hasattr(getattr(tidegate, name), "__exit__")}


@pytest.mark.parametrize("name", MANAGERS)
def test_the_programs_error_comes_out_of_a_with_block(cache, tmp_path, name):
    file = cache.open(tmp_path / "with", "w+")
    file.truncate(PAGE)
    manager, lent = MANAGERS[name](cache, file)
    view = memoryview(lent)
    with pytest.raises(KeyError, match="the program's") as caught, manager:
        raise KeyError("the program's")
    notes = "".join(getattr(caught.value, "__notes__", []))
    if name != "File":  # it ends beside its map
        assert "buffers exist" in notes and not manager.closed
        with pytest.raises(BufferError), manager:
            pass
    view.release()
    lent.close()
    file.close()


def test_a_buffer_keeps_its_map_and_a_map_its_cache(tmp_path):
    (tmp_path / "kept").write_bytes(bytes(64 * PAGE))
    cache = tidegate.Cache("16MiB", maps=True)
    file = cache.open(tmp_path / "kept", "r+")
    array = numpy.frombuffer(file.map(), numpy.uint8)
    with pytest.raises(BufferError):
        cache.close()
    assert not cache.closed and not file.closed
    file.close()
    del file, cache
    gc.collect()
    array[5 * PAGE] = 1
    assert array.sum() == 1
    with pytest.warns(ResourceWarning, match="unclosed cache"):
        del array
        gc.collect()
    assert (tmp_path / "kept").read_bytes()[5 * PAGE] == 1


def test_populate_and_advice(cache, tmp_path):
    (tmp_path / "some").write_bytes(bytes(1024 * PAGE))
    with cache.open(tmp_path / "some") as file, file.map() as map_:
        map_.populate(0, 256 * PAGE)
        assert map_.resident >= 256 * PAGE
        map_.advise("dont-need")
        assert map_.resident < 256 * PAGE  # reads ahead may be under way
        map_.advise("random")
        assert memoryview(map_)[500 * PAGE] == 0
        for wrong in (lambda: map_.sync(0, 1025 * PAGE), lambda: map_.populate(1025 * PAGE)):
            with pytest.raises(OSError, match="beyond|end|out of"):
                wrong()
        with pytest.raises(ValueError, match="no advice"):
            map_.advise("none")


def test_populate_gives_the_interpreters_lock_up(tmp_path):
    (tmp_path / "slow").write_bytes(bytes(256 * PAGE))
    with tidegate.Cache("16MiB", maps=True, layers="slow:rate=1MB") as cache:
        with cache.open(tmp_path / "slow") as file, file.map() as map_:
            ticks, ended = 0, threading.Event()

            def count():
                nonlocal ticks
                while not ended.wait(0.01):
                    ticks += 1

            thread = threading.Thread(target=count)
            thread.start()
            began = time.monotonic()
            map_.populate()
            took = time.monotonic() - began
            ended.set()
            thread.join()
            assert took > 0.5 and ticks > took * 10, (took, ticks)


def test_a_cache_without_maps_says_how(tmp_path):
    (tmp_path / "none").write_bytes(bytes(PAGE))
    with tidegate.Cache("16MiB") as cache, cache.open(tmp_path / "none") as file:
        with pytest.raises((OSError, ValueError), match="maps"):
            file.map()


def test_rights_that_are_missing_are_named(tmp_path):
    """The words of the error reach Python; user mode is asked for by name."""
    program = f"""
    import ctypes, os, sys, tidegate
    open({str(tmp_path / "f")!r}, "wb").write(bytes(4096))
    libc = ctypes.CDLL(None, use_errno=True)
    # Without /dev/userfaultfd (another one is put over it, in a namespace of this process) and the capability.
    if libc.unshare(0x20000) or libc.mount(b"/dev/null", b"/dev/userfaultfd", None, 4096, None):
        print("skipped"); sys.exit()
    if libc.prctl(24, 19, 0, 0, 0):  # SYS_PTRACE
        print("skipped"); sys.exit()
    class Head(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
    sets = (ctypes.c_uint32 * 6)()
    if libc.syscall(126, ctypes.byref(Head(0x20080522, 0)), sets):  # capset: none
        print("skipped"); sys.exit()
    with tidegate.Cache("16MiB", maps=True) as cache, cache.open({str(tmp_path / "f")!r}) as file:
        for user_mode in (False, True):
            for map in (file.map, lambda **how: tidegate.memmap(file.name, mode="r", memory=cache, **how)._mmap):
                try:
                    print(map(user_mode=user_mode).rights)
                except OSError as error:
                    print(type(error).__name__, error)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    if ended.stdout.startswith(("skipped", "full")):
        pytest.skip("this process has rights that cannot be dropped")
    files, arrays = ended.stdout.splitlines()[::2], ended.stdout.splitlines()[1::2]
    assert files == arrays and "/dev/userfaultfd" in files[0] and "PermissionError" in files[0]
    # Docker's profile has no call for it at all.
    assert files[1] == "user-mode" or "userfaultfd" in files[1]


class TestNumpys(test_memmap.TestMemmap):
    """All of them pass. Not among them, and not there: mode ``c``, and two arrays of one file at a time."""

    @pytest.fixture(autouse=True)
    def ours(self, monkeypatch):
        monkeypatch.setattr(test_memmap, "memmap", tidegate.memmap)


def test_an_array_takes_no_more_than_it_may(tmp_path):
    array = tidegate.memmap(tmp_path / "large", numpy.float32, "w+", shape=(12 << 18, 4), memory="16MiB")
    array[:] = numpy.arange(4, dtype=numpy.float32)
    assert (array.sum(axis=0) == (12 << 18) * numpy.arange(4)).all()
    assert 0 < array._mmap.resident <= 16 << 20
    array.flush()
    assert (numpy.memmap(tmp_path / "large", numpy.float32, "r", shape=(12 << 18, 4)) == array).all()
    part = array[5:7, 1]
    del array
    part[:] = 9
    assert part.filename == tmp_path / "large" and part.mode == "w+"
    del part
    gc.collect()
    assert (numpy.fromfile(tmp_path / "large", numpy.float32).reshape(-1, 4)[5:7, 1] == 9).all()


def test_arrays_share_a_cache_or_the_processes(cache, tmp_path):
    ours = [tidegate.memmap(tmp_path / str(at), shape=PAGE, mode="w+", memory=cache) for at in range(3)]
    shared = tidegate.memmap(tmp_path / "shared", shape=(2, 3), mode="w+", order="F", dtype="i4", offset=12)
    assert len(cache._maps) == 3 and shared.flags.f_contiguous and shared.offset == 12
    shared[1, 2] = 8
    shared.flush()
    assert (tmp_path / "shared").read_bytes()[-4:] == (8).to_bytes(4, "little")
    with pytest.raises(OSError, match="map"):
        tidegate.memmap(tmp_path / "0", mode="r", memory=cache)
    del ours
    read = tidegate.memmap(tmp_path / "0", mode="r", memory=cache)
    assert read.shape == (PAGE,) and not read.flags.writeable
    for mode in ("c", "copyonwrite", "none"):
        with pytest.raises(ValueError, match="mode must be one of"):
            tidegate.memmap(tmp_path / "0", mode=mode)
    with pytest.raises(ValueError, match="multiple"):
        tidegate.memmap(tmp_path / "1", "f8", "r", offset=1, memory=cache)
    del read


def test_what_an_array_has_at_the_end_of_the_program_is_written(tmp_path):
    program = f"""
        import ctypes, tidegate
        kept = tidegate.memmap({str(tmp_path / "own")!r}, mode="w+", shape=5, memory="16MiB")
        also = tidegate.memmap({str(tmp_path / "shared")!r}, mode="w+", shape=5)
        kept[:] = 1
        also[:] = 2
        for array in (kept, also):  # never collected
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "own").read_bytes() == b"\1" * 5
    assert (tmp_path / "shared").read_bytes() == b"\2" * 5
