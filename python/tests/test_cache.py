"""Files under one limit, as a user of Python's own files expects them."""

import copy
import errno
import gc
import io
import os
import pathlib
import pickle
import pydoc
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pandas
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import tidegate

PAGE = 4096


class AsAByteArray(RuleBasedStateMachine):
    """A cached file does what a bytearray does, however it is read, written and cut."""

    def __init__(self):
        super().__init__()
        self.path = f"/tmp/tidegate-hypothesis-{os.getpid()}"
        self.cache = tidegate.Cache(memory="16MiB")
        self.file = self.cache.open(self.path, "w+")
        self.bytes = bytearray()

    @rule(offset=st.integers(0, 5 * PAGE), data=st.binary(max_size=3 * PAGE))
    def pwrite(self, offset, data):
        assert self.file.pwrite(data, offset) == len(data)
        if data:
            self.bytes.extend(bytes(max(0, offset - len(self.bytes))))
            self.bytes[offset : offset + len(data)] = data

    @rule(offset=st.integers(0, 9 * PAGE), n=st.integers(0, 3 * PAGE))
    def pread(self, offset, n):
        assert self.file.pread(n, offset) == self.bytes[offset : offset + n]
        into = bytearray(n)
        read = self.file.preadinto(into, offset)
        assert into[:read] == self.bytes[offset : offset + n]

    @rule(page=st.integers(0, 8))
    def pin(self, page):
        wanted = bytes(self.bytes[page * PAGE : (page + 1) * PAGE])
        if not wanted:
            with pytest.raises(OSError):
                self.file.pin(page)
            return
        with self.file.pin(page) as pin:
            self.file.pwrite(b"?" * PAGE, page * PAGE)
            assert bytes(pin) == wanted, "a pin stays as it was"
        self.file.pwrite(wanted, page * PAGE)
        self.file.truncate(len(self.bytes))

    @rule(size=st.integers(0, 6 * PAGE))
    def truncate(self, size):
        self.file.truncate(size)
        del self.bytes[size:]
        self.bytes.extend(bytes(size - len(self.bytes)))

    @rule()
    def reopen(self):
        self.file.close()
        with open(self.path, "rb") as plain:
            assert plain.read() == self.bytes
        self.file = self.cache.open(self.path, "r+")

    @invariant()
    def length(self):
        assert self.file.seek(0, io.SEEK_END) == len(self.bytes)

    def teardown(self):
        self.file.close()
        self.cache.close()
        os.unlink(self.path)


AsAByteArray.TestCase.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAsAByteArray = AsAByteArray.TestCase


def test_readers_of_files_take_it(cache, tmp_path):
    frame = pandas.DataFrame({"a": range(1000), "b": numpy.arange(1000) / 7})
    frame.to_csv(tmp_path / "table.csv", index=False)
    with cache.open(tmp_path / "table.csv") as file:
        read = pandas.read_csv(io.BufferedReader(file))
    assert read.equals(frame)
    array = numpy.arange(100_000)
    with cache.open(tmp_path / "array.npy", "w+") as file:
        buffered = io.BufferedRandom(file)
        numpy.save(buffered, array)
        buffered.flush()
        buffered.seek(0)
        assert (numpy.load(buffered) == array).all()
        buffered.detach()
        into = numpy.empty(10, dtype=numpy.int64)
        assert file.preadinto(into, file.seek(-80, io.SEEK_END)) == 80
        assert (into == array[-10:]).all()


def test_modes_and_errors_are_those_of_open(cache, tmp_path):
    path = tmp_path / "data"
    with pytest.raises(FileNotFoundError) as caught:
        cache.open(path)
    assert caught.value.filename == str(path)
    cache.open(path, "x").close()
    with pytest.raises(FileExistsError):
        cache.open(path, "x")
    with pytest.raises(ValueError, match="invalid mode"):
        cache.open(path, "a")
    with cache.open(path, "rb") as file:
        assert not file.writable() and file.readable()
        for refused in (lambda: file.write(b"x"), lambda: file.pwrite(b"x", 0), file.truncate):
            with pytest.raises(io.UnsupportedOperation):
                refused()
        with pytest.raises(TypeError):
            file.preadinto(b"read-only", 0)
    with pytest.raises(ValueError, match="closed file"):
        file.read()
    with pytest.raises(ValueError, match="closed file"):
        file.pread(1, 0)
    for memory in ("64", "1KiB", "64MiBB"):
        with pytest.raises(ValueError):
            tidegate.Cache(memory=memory)


def test_a_disk_that_fails_is_an_os_error(tmp_path):
    cache = tidegate.Cache(memory="16MiB", layers="faulty:eio_write_at=1")
    file = cache.open(tmp_path / "data", "w+")
    file.write(b"taken in")
    with pytest.raises(OSError, match=str(tmp_path)):
        file.sync()
    file.close()
    cache.close()
    assert (tmp_path / "data").read_bytes() == b"taken in"


def test_a_pin_outlives_its_file_and_its_cache_and_never_its_buffers(tmp_path):
    cache = tidegate.Cache(memory="16MiB")
    file = cache.open(tmp_path / "data", "w+")
    file.write(b"p" * 5000)
    pin = file.pin(1)
    view = memoryview(pin)
    assert view.readonly and len(view) == 5000 - PAGE == len(pin)
    array = numpy.frombuffer(pin, dtype=numpy.uint8)
    with pytest.raises(ValueError):
        array[0] = 1
    with pytest.raises(BufferError):
        pin.close()
    file.close()
    cache.close()
    del file, cache
    gc.collect()
    assert bytes(view) == b"p" * (5000 - PAGE) == array.tobytes()
    view.release()
    del array
    pin.close()
    assert pin.closed
    with pytest.raises(ValueError, match="closed"):
        memoryview(pin)


def test_a_forgotten_close_is_told_and_loses_nothing(tmp_path):
    cache = tidegate.Cache(memory="16MiB")
    file = cache.open(tmp_path / "data", "w+")
    file.write(b"kept")
    with pytest.warns(ResourceWarning, match="unclosed file"):
        del file
        gc.collect()
    with pytest.warns(ResourceWarning, match="unclosed cache"):
        del cache
        gc.collect()
    assert (tmp_path / "data").read_bytes() == b"kept"


def test_what_is_forgotten_at_the_end_of_the_program_is_written(tmp_path):
    script = f"""
        import tidegate
        cache = tidegate.Cache(memory="16MiB")
        file = cache.open({str(tmp_path / "data")!r}, "w+")
        file.write(b"kept")
        def uses():
            return cache, file, uses
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "data").read_bytes() == b"kept"


def test_a_cache_that_is_closed_closes_its_files(tmp_path):
    with tidegate.Cache(memory="16MiB") as cache:
        file = cache.open(tmp_path / "data", "w+")
        file.write(b"x")
    assert file.closed and cache.closed
    with pytest.raises(ValueError):
        cache.open(tmp_path / "data")
    cache.close()


def test_a_child_of_a_fork_is_told_so_and_ends_well(tmp_path):
    script = f"""
        import os, tidegate
        cache = tidegate.Cache(memory="16MiB")
        file = cache.open({str(tmp_path / "data")!r}, "w+")
        file.write(b"parent")
        pin = file.pin(0)
        child = os.fork()
        if child == 0:
            for use in (lambda: file.pread(1, 0), cache.stats, lambda: memoryview(pin)):
                try:
                    use()
                    os._exit(1)
                except RuntimeError as error:
                    assert "fork" in str(error)
            with tidegate.Cache(memory="16MiB") as own, own.open({str(tmp_path / "other")!r}, "w+") as mine:
                mine.write(b"child")
            raise SystemExit(0)  # objects of the parent are collected here
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.pread(6, 0) == b"parent" == bytes(pin)
        pin.close()
        file.close()
        cache.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)
    assert (tmp_path / "other").read_bytes() == b"child"
    assert (tmp_path / "data").read_bytes() == b"parent"


def test_threads_share_a_file(cache, tmp_path):
    with cache.open(tmp_path / "data", "w+") as file:

        def fill(number):
            for block in range(number, 400, 4):
                file.pwrite(bytes([block % 251]) * PAGE, block * PAGE)
                assert file.pread(PAGE, block * PAGE) == bytes([block % 251]) * PAGE

        threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        file.seek(0)
        assert file.read() == b"".join(bytes([block % 251]) * PAGE for block in range(400))
        stats = file.stats()
        assert stats.cached == 400 * PAGE and cache.stats().cached >= stats.cached


def test_the_limit_holds_and_regions_spill(tmp_path):
    with tidegate.Cache(memory="24MiB", swap_file=(tmp_path / "swap", "64MiB")) as cache:
        assert not (tmp_path / "swap").exists()
        region = cache.region("48MiB")
        for page in range(0, 48 << 20, PAGE):
            region.pwrite(page.to_bytes(8, "little"), page)
        for page in range(0, 48 << 20, 97 * PAGE):
            assert region.pread(8, page) == page.to_bytes(8, "little")
        stats = cache.stats()
        assert stats.swap_free < stats.swap_total and stats.anonymous < stats.limit == 24 << 20
        region.discard(0, 48 << 20)
        assert region.pread(8, 0) == bytes(8)
        assert stats.vmstat["pswpout"] > 0 and len(stats.waits) > 0


def test_what_there_is_one_of_is_not_copied_and_a_copy_ends_nothing(cache, tmp_path):
    file = cache.open(tmp_path / "one", "w+")
    file.write(b"x" * PAGE)
    things = [cache, file, file.pin(0), cache.region("1MiB"), cache.stats(), file.stats()]
    copied = set()
    for thing in things:
        for make in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
            try:
                made = make(thing)
            except TypeError:
                continue
            copied.add(type(thing).__name__)
            del made
            gc.collect()
        file.pwrite(b"y", 0)
        assert file.pread(2, 0) == b"yx", f"{thing!r} was copied, and the copy dropped"
        assert not cache.closed
    file.close()
    assert not copied & {"Cache", "File", "Pin", "Region"}, "there is one of them"


#: Calls that wait for a disk that is slow, or that hangs for longer than any test: the lines before,
#: and the call.
WAITING = {
    "sync_range": ("file.write(bytes(1_000_000))", "file.sync_range(0, 1_000_000)"),
    "file.sync": ("file.write(bytes(1_000_000))", "file.sync()"),
    "cache.sync": ("file.write(bytes(1_000_000))", "cache.sync()"),
    "file.close": ("file.write(bytes(1_000_000))", "file.close()"),
    "cache.close": ("file.write(bytes(1_000_000))", "cache.close()"),
    "one write": ("", "file.write(bytes(40_000_000))"),
    "writes": ("", "[file.write(bytes(100)) for _ in range(4_000_000)]"),
    "pwrite": ("", "file.pwrite(bytearray(40_000_000), 0)"),
    "pread": ("", "old.pread(400_000, 0)"),
    "preadinto": ("", "old.preadinto(bytearray(400_000), 0)"),
    "pin": ("", "old.pin(3)"),
    "pin_run": ("", "old.pin_run(0, 90)"),
    "show_at": ("", "old.show_at(0, 400_000, bytes)"),
    "readall": ("", "old.readall()"),
}


#: A page is there at once on a disk that is slow: of the one that hangs alone.
DISKS = [
    (call, layers)
    for call in WAITING
    for layers in ("slow:rate=16KB", "slow:latency=100s")
    if call != "pin" or layers == "slow:latency=100s"
]


@pytest.mark.parametrize(("call", "layers"), DISKS)
def test_ctrl_c_is_heard_by_every_call_that_waits(tmp_path, call, layers):
    before, wait = WAITING[call]
    (tmp_path / "old").write_bytes(bytes(400_000))
    program = f"""
    import os, signal, threading, time, tidegate
    cache = tidegate.Cache("16MiB", layers={layers!r})
    file, old = cache.open({str(tmp_path / "new")!r}, "w+"), cache.open({str(tmp_path / "old")!r})
    {before}
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        {wait}
        print("ended")
    except KeyboardInterrupt:
        print("heard" if time.monotonic() - began < 5 else "late")
    # A cache that is dropped waits for its disk.
    os._exit(0)
    """
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    try:
        said = process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert said == "heard", call


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path])
def test_paths_are_what_open_takes(cache, tmp_path, kind):
    path = tmp_path / "p\xfc"
    with cache.open(kind(path), "w+") as file:
        file.write(b"here")
    assert path.read_bytes() == b"here"
    with pytest.raises(ValueError, match="null byte"):
        cache.open(kind("a\0b"))
    for wrong in (5, None, 1.5):
        with pytest.raises(TypeError):
            cache.open(wrong)


def test_numbers_out_of_range_are_named(cache, tmp_path):
    with cache.open(tmp_path / "numbers", "w+") as file:
        file.write(b"x" * 3 * PAGE)
        for call in (
            lambda wrong: file.pread(wrong, 0),
            lambda wrong: file.pread(1, wrong),
            lambda wrong: file.preadinto(bytearray(1), wrong),
            lambda wrong: file.pwrite(b"x", wrong),
            file.pin,
            lambda wrong: file.pin_run(0, wrong),
            file.truncate,
            lambda wrong: file.advise("will-need", wrong),
            lambda wrong: file.sync_range(0, wrong),
            cache.region,
            cache.set_limit,
        ):
            for wrong in (-1, 2**64):
                with pytest.raises(ValueError, match=str(wrong)):
                    call(wrong)
            with pytest.raises(TypeError):
                call(1.5)


def test_arrays_are_taken_whole_or_refused_in_words(cache, tmp_path):
    square = numpy.arange(64.0).reshape(8, 8)
    with cache.open(tmp_path / "arrays", "w+") as file:
        for refused in (square[:, ::2], square.T, numpy.frombuffer(bytes(64), numpy.uint8)[::2]):
            with pytest.raises(BufferError, match="numpy.ascontiguousarray"):
                file.pwrite(refused, 0)
        with pytest.raises(BufferError, match="numpy.ascontiguousarray"):
            file.preadinto(square.T, 0)
        # What is of any shape, also none.
        pieces = (square, square[2:4], square[0, 0:1].reshape(()), numpy.empty((0, 3), numpy.float32))
        for piece in pieces:
            assert file.pwrite(piece, 8) == piece.nbytes
            into = numpy.ones_like(piece)
            assert file.preadinto(into, 8) == piece.nbytes
            assert (into == piece).all()
        for wrong in ("text", 5, None):
            with pytest.raises(TypeError):
                file.pwrite(wrong, 0)


def test_what_is_no_file_is_refused_with_the_systems_number(cache, tmp_path):
    for mode in ("r", "r+", "w+"):
        with pytest.raises(IsADirectoryError) as caught:
            cache.open(tmp_path, mode)
        assert caught.value.filename == str(tmp_path)
        with pytest.raises(OSError, match="neither a regular file") as caught:
            cache.open("/dev/null", mode)
        assert caught.value.errno == errno.EINVAL


def test_a_cache_that_was_never_made_ends_without_a_word():
    for wrong in ({"no_such": 1}, {"memory": "1KiB"}, {"page_rule": "none"}):
        with pytest.raises((TypeError, ValueError)):
            tidegate.Cache(**wrong)
        gc.collect()  # an error of `__del__` fails the test


def test_help_has_every_call():
    for name in ("pread", "preadinto", "pwrite", "pin", "pin_run", "show_at", "advise", "sync_range"):
        call = getattr(tidegate.File, name)
        assert call.__doc__ and f" {name}(self" in pydoc.plain(pydoc.render_doc(tidegate.File))


def test_a_page_rule_is_chosen_by_its_name(tmp_path):
    """Of a loop over more than there is room for, the usual rule has nothing left when it begins anew."""
    hits = {}
    for rule in (None, "mru"):
        with tidegate.Cache("16MiB", page_rule=rule, readahead=0) as cache:
            with cache.open(tmp_path / "loop", "w+") as file:
                file.truncate(5000 * PAGE)
                for _ in range(3):
                    before = file.stats().hits_total
                    for page in range(5000):
                        file.pin(page).close()
                    hits[rule] = file.stats().hits_total - before
    assert hits[None] < 500 and hits["mru"] > 2000, hits
    with pytest.raises(ValueError, match="no page rule 'lru'; there are .*reuse"):
        tidegate.Cache("16MiB", page_rule="lru")


def test_a_run_of_pages_is_one_array(cache, tmp_path):
    rows = numpy.arange(3 * PAGE // 4, dtype=numpy.float32)
    with cache.open(tmp_path / "rows", "w+") as file:
        file.write(rows)
        file.write(b"tail")
        with file.pin_run(0, 4) as pin:
            view = numpy.frombuffer(pin, numpy.float32, len(rows))
            file.pwrite(bytes(PAGE), PAGE)
            assert (view == rows).all() and not view.flags.writeable
            assert len(pin) == 3 * PAGE + 4 and bytes(pin)[-4:] == b"tail"
            assert cache.stats().pinned == 4 * PAGE
            with pytest.raises(BufferError):
                pin.close()
            del view
        assert cache.stats().pinned == 0
        for wrong in (0, 513):
            with pytest.raises(ValueError, match=str(wrong)):
                file.pin_run(0, wrong)
        with pytest.raises(OSError):
            file.pin_run(0, 5)


def test_what_is_shown_is_what_is_read(cache, tmp_path):
    data = os.urandom(5 * PAGE + 100)
    with cache.open(tmp_path / "shown", "w+") as file:
        file.write(data)
        for offset, n in ((0, len(data)), (100, PAGE), (PAGE, PAGE), (5 * PAGE, 9999), (10**9, 5), (7, 0)):
            parts = []
            assert file.show_at(offset, n, parts.append) == len(data[offset : offset + n])
            assert b"".join(parts) == data[offset : offset + n]
        # One that is kept stays as it was.
        file.pwrite(bytes(PAGE), 0)
        kept = []
        file.show_at(0, 10, kept.append)
        file.pwrite(b"later", 0)
        assert bytes(kept[0]) == bytes(10)


def test_advice_is_heard(cache, tmp_path):
    with cache.open(tmp_path / "advice", "w+") as file:
        file.write(bytes(256 * PAGE))
        file.sync_range(0, 256 * PAGE)
        assert file.stats().dirty == 0
        file.advise("dont-need", 0, 128 * PAGE)
        assert file.stats().cached == 128 * PAGE
        file.advise("dont-need")
        assert file.stats().cached == 0
        file.advise("random")
        for page in range(64):
            file.pin(page).close()
        assert file.stats().misses_total == 64
        file.advise("sequential")
        for page in range(64, 128):
            file.pin(page).close()
        assert file.stats().misses_total < 80
        with pytest.raises(ValueError, match="no advice 'some'; there are normal, sequential"):
            file.advise("some")


def test_pins_in_order_are_read_ahead(tmp_path):
    with tidegate.Cache("32MiB", layers="slow:latency=1ms") as cache, cache.open(tmp_path / "ahead", "w+") as file:
        file.write(bytes(1024 * PAGE))
        file.sync()
        file.advise("dont-need")
        for page in range(1024):
            file.pin(page).close()
        assert file.stats().misses_total < 100


def test_waits_have_their_cause(tmp_path):
    with tidegate.Cache("16MiB", layers="slow:latency=5ms", readahead=0) as cache:
        with cache.open(tmp_path / "waits", "w+") as file:
            file.write(bytes(8 * PAGE))
            file.sync()
            file.advise("dont-need")
            begin = time.monotonic()
            for page in range(8):
                file.pread(1, page * PAGE)
            elapsed = time.monotonic() - begin
            number, seconds = file.stats().waits["read"]
            # A wait begins after its read was sent: a task that is held up in between waits for less than the latency.
            assert elapsed >= 0.04 and number == 8 and 0.001 <= seconds <= elapsed
            table = pandas.DataFrame(cache.stats().waits).set_index("cause")
            assert table.loc["read", "waits"] == 8 and seconds * 124 <= table.loc["read", "max_ms"] <= elapsed * 1000


def test_a_slow_call_is_told_with_its_waits(tmp_path, monkeypatch):
    told, unraised = [], []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)

    def tell(call):
        told.append(call)
        if call.call == "sync":
            raise RuntimeError("of the function")

    with tidegate.Cache("16MiB", layers="slow:latency=20ms", readahead=0, on_slow=(0.01, tell)) as cache:
        with cache.open(tmp_path / "slow", "w+") as file:
            file.write(bytes(2 * PAGE))
            file.sync()
            file.advise("dont-need")
            for read in (lambda: file.pread(1, 0), lambda: file.pin(1).close()):
                thread = threading.Thread(target=read)
                thread.start()
                thread.join()
    assert [call.call for call in told][:3] == ["sync", "read", "pin"]
    assert [str(one.exc_value) for one in unraised][0] == "of the function"
    read = told[1]
    assert (read.path, read.offset, read.n) == (str(tmp_path / "slow"), 0, 1)
    assert read.waits[0][:2] == ("read", 1) and read.took_s >= 0.01
    assert abs(sum(wait[2] for wait in read.waits) + read.own_s - read.took_s) < 1e-6
    assert str(read).startswith(f"read of 1 bytes at 0 of {tmp_path / 'slow'} took ")
    for wrong in ((-1, print), (float("nan"), print)):
        with pytest.raises(ValueError, match="on_slow"):
            tidegate.Cache("16MiB", on_slow=wrong)


@pytest.mark.parametrize("on_main", [True, False])
def test_a_writer_is_paced_for_itself(tmp_path, on_main):
    """One client writes far more than the disk takes; another, through the same thread, a page now and then."""
    with tidegate.Cache("16MiB", layers="slow:rate=16MB", dirty_limit="1MiB") as cache:
        heavy, light = cache.writer(), cache.writer()
        light_s = []

        def serve():
            for round_ in range(24):
                file.pwrite(bytes(256 << 10), round_ << 18, heavy)
                began = time.monotonic()
                file.pwrite(b"light", 100 << 20, writer=light)
                light_s.append(time.monotonic() - began)

        with cache.open(tmp_path / "clients", "w+") as file:
            if on_main:
                serve()
            else:
                thread = threading.Thread(target=serve)
                thread.start()
                thread.join()
            paused = {name: waits.get("dirty pause", (0, 0))[1] for name, waits in
                      (("heavy", heavy.waits()), ("light", light.waits()), ("file", file.stats().waits))}
            assert paused["heavy"] > 0.1 > paused["light"] and paused["file"] >= paused["heavy"], paused
            assert sorted(light_s)[len(light_s) // 2] < 0.01, light_s
            assert file.pread(5, 100 << 20) == b"light"
        with pytest.raises(TypeError):
            file.pwrite(b"x", 0, cache)


def test_the_laboratory_is_named_where_it_is_missing():
    program = """
    import sys
    sys.modules["tidegate_lab"] = None
    import tidegate
    for use in (lambda: tidegate.run, lambda: exec("from tidegate import Scenario")):
        try:
            use()
        except ModuleNotFoundError as error:
            assert "pip install './python[lab]'" in str(error), error
        else:
            raise SystemExit("it is there")
    assert not hasattr(tidegate, "nothing") and "run" not in dir(tidegate)
    help(tidegate)
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60, stdout=subprocess.DEVNULL
    )


def test_positions_are_whole_numbers_and_a_file_has_an_end(cache, tmp_path):
    with cache.open(tmp_path / "seek", "w+") as file:
        file.write(b"abc")
        for wrong in (1.5, None, "1"):
            with pytest.raises(TypeError):
                file.seek(wrong)
        with pytest.raises(TypeError):
            file.truncate(1.5)
        assert file.seek(numpy.int64(1)) == 1
        for beyond in (2**44, 2**62):
            with pytest.raises(OSError) as error:
                file.pwrite(b"x", beyond)
            assert error.value.errno == 27, "EFBIG"
