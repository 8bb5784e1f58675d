"""Tests of the package against a real mount, which $HMCFS_MOUNT names: host, sim0 and sim1."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

import hmcfs

np = pytest.importorskip("numpy")
MOUNT = os.environ["HMCFS_MOUNT"]
# ROUNDS is the number of times that what must not leak is done.
ROUNDS = int(os.environ.get("HMCFS_ROUNDS", "160"))


def content(seed: int, size: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype="u1").tobytes()


def array(seed: int, shape, dtype="f4"):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(content(seed, size), "u1").view(dtype).reshape(shape).copy()


@pytest.fixture
def fs():
    with hmcfs.connect() as one:
        yield one


def path(name: str) -> str:
    return os.path.join(MOUNT, name)


def test_connect(fs, monkeypatch):
    assert fs.path == MOUNT
    assert hmcfs.connect(path("sim0")).path == MOUNT
    assert hmcfs.connect(fs.socket_path).exists("none") is False
    monkeypatch.delenv("HMCFS_MOUNT")
    monkeypatch.chdir(path("host"))
    assert hmcfs.connect().path == MOUNT
    os.symlink(MOUNT, "/tmp/hmcfs-link-%d" % os.getpid())
    try:
        assert hmcfs.connect("/tmp/hmcfs-link-%d/host" % os.getpid()).path == MOUNT
    finally:
        os.remove("/tmp/hmcfs-link-%d" % os.getpid())
    with pytest.raises(hmcfs.NotMounted, match="not on an hmcfs mount"):
        hmcfs.connect("/usr")
    with pytest.raises(hmcfs.NotMounted, match="No such file"):
        hmcfs.connect("/nowhere/at/all")


def test_connect_to_the_only_mount(fs, monkeypatch):
    def there(mounts, directories=()):
        monkeypatch.setattr(hmcfs._fs, "_mounts", lambda admitted=None: list(mounts))
        monkeypatch.setattr(hmcfs._fs, "_served", lambda: list(directories))

    monkeypatch.delenv("HMCFS_MOUNT")
    monkeypatch.chdir("/")
    fs.set("only", content(11, 5000))
    for mounts, directories in (([MOUNT], []), ([], [MOUNT]), ([MOUNT], [MOUNT])):
        there(mounts, directories)
        with hmcfs.connect() as one:
            assert one.path == MOUNT and one.get("only") == content(11, 5000)
    fs.delete("only")
    there([])
    with pytest.raises(hmcfs.NotMounted, match="no hmcfs mount; mount one with hmcfs mount, or run hmcfs serve"):
        hmcfs.connect()
    there([MOUNT, "/another"], ["/served"])
    with pytest.raises(hmcfs.NotMounted, match="3 mounts; give one of .*, or set HMCFS_MOUNT") as e:
        hmcfs.connect()
    assert all(one in str(e.value) for one in (MOUNT, "/another", "/served"))


def test_an_error_of_the_daemon_names_a_way_out():
    """Each word that the daemon answers with, of which the Go test passes all, is the name of one class."""
    classes = {}
    for word in os.environ["HMCFS_STATUSES"].split():
        error = hmcfs._errors.of(word, 'key "a": what failed', "a")
        assert error.code == word and error.key == "a" and str(error).startswith('key "a": what failed; ')
        assert "_way_out" in vars(type(error)) and error._way_out and str(error).endswith(error._way_out)
        assert type(error).__name__ == {"io": "HmcfsError"}.get(word, word.title().replace("_", ""))
        assert getattr(hmcfs, type(error).__name__) is type(error)
        classes[type(error)] = word
        named = hmcfs._errors.of(word, "what failed; do this", "a")
        assert str(named) == "key 'a': what failed; do this"  # the daemon's own way out is the only one
    assert len(classes) == len(os.environ["HMCFS_STATUSES"].split()) > 15


def test_errors_of_a_mount_name_a_way_out(fs):
    y = np.zeros(10, "u1")
    fs.set("there", b"x")
    for call, error in (
        (lambda: fs.get("none"), hmcfs.NotFound),
        (lambda: fs.mget(["there"], [y]), hmcfs.Shape),
        (lambda: fs.d2h({"there": y}, existing="fail"), hmcfs.Exists),
        (lambda: fs.wait(["none"], timeout=0), hmcfs.Timeout),
        (lambda: fs.subscribe("none", out=y, timeout=0.05).wait(), hmcfs.Timeout),
    ):
        with pytest.raises(error, match="(none|there)\\W.*; [a-z]") as e:
            call()
        assert e.value.key in ("none", "there")
    fs.delete("there")


@pytest.mark.parametrize("size", [1, 4096, 65536, 65537, 3_000_001])
def test_set_and_get(fs, size):
    data = content(size, size)
    fs.set("kv", data)
    assert fs.get("kv") == data
    assert open(path("keys/kv"), "rb").read() == data
    assert fs.exists("kv") and fs.exists("kv", "none") == [True, False]
    fs.set("kv", data[::-1])
    assert fs.get("kv") == data[::-1]
    fs.delete("kv", "none")
    assert not fs.exists("kv")
    with pytest.raises(hmcfs.NotFound, match="kv") as e:
        fs.get("kv")
    assert e.value.key == "kv" and isinstance(e.value, KeyError)


def test_get_of_a_replaced_value(fs):
    values = {size: content(size, size) for size in (10, 3000, 40_000)}
    fs.set("replaced", values[10])
    stop = threading.Event()

    def replace():
        with hmcfs.connect(MOUNT) as other:
            while not stop.is_set():
                for data in values.values():
                    other.set("replaced", data)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(100):
            try:
                got = fs.get("replaced")
            except hmcfs.Shape:
                continue  # other sizes came again and again
            assert got == values[len(got)]
    finally:
        stop.set()
        writer.join()


def test_many_keys(fs):
    arrays = {f"many-{i}": array(i, (1 + i, 33)) for i in range(50)}
    fs.d2h(arrays)
    out = {key: np.zeros_like(a) for key, a in arrays.items()}
    fs.h2d(out)
    for key, a in arrays.items():
        assert a.tobytes() == out[key].tobytes()
    missing = np.zeros(5, "u1")
    with pytest.raises(hmcfs.NotFound) as e:
        fs.mget(["many-0", "none"], [out["many-0"], missing])
    assert set(e.value.failures) == {"none"}
    with pytest.raises(hmcfs.Shape):
        fs.h2d({"many-1": np.zeros(7, "u1")})
    fs.delete(*arrays)
    small = {f"small-{i}": np.full(100, i % 251, "u1") for i in range(2000)}
    fs.d2h(small)
    out = {key: np.zeros(100, "u1") for key in small}
    fs.h2d(out)
    assert all((out[key] == a).all() for key, a in small.items())
    fs.delete(*small)


def test_keys_name_memory(fs):
    x = fs.empty((100, 1000), "f4")
    x[:] = array(1, x.shape)
    fs.mset({"live": x})
    assert fs.get("live") == x.tobytes()
    x[50, 5] = 7.5  # the key is the memory
    assert np.frombuffer(fs.get("live"), "f4").reshape(x.shape)[50, 5] == 7.5
    y = np.zeros_like(x)
    fs.mget(["live"], out=[y])
    assert x.tobytes() == y.tobytes()
    for other in (y, y.tobytes()):
        with pytest.raises(hmcfs.Invalid, match="empty"):
            fs.mset({"other": other})
    fs.delete("live")


def test_refusals_name_the_cause(fs):
    with pytest.raises(TypeError, match=r"a key is text, not \['a'\]"):
        fs.get(["a"])
    with pytest.raises(hmcfs.NoMemory, match="1125899906842624 elements"):
        fs.empty(1 << 50)


def test_mounts_that_admit_a_user(fs):
    if fs.path not in hmcfs._fs._mounts():
        pytest.skip("nothing is mounted")
    assert fs.path in hmcfs._fs._mounts(os.stat(fs.path).st_uid)
    assert fs.path not in hmcfs._fs._mounts(1234567)


def test_publish(fs):
    x = array(2, (1024, 256))
    offered = fs.publish("step1", x)
    assert not offered.done()
    with hmcfs.connect() as other:
        y = other.subscribe("step1", out=np.zeros_like(x)).wait()
    offered.result(timeout=20)
    assert offered.done() and x.tobytes() == y.tobytes()
    with pytest.raises(hmcfs.Timeout):
        fs.subscribe("never", out=y, timeout=0.05).result()
    gone = hmcfs.connect()
    left = gone.publish("step2", x)
    gone.close()
    with pytest.raises(hmcfs.HmcfsError):
        left.result(timeout=5)


def test_many_offers_are_awaited(fs):
    x = np.arange(1000, dtype="u1")

    async def hand_over():
        offers = [fs.publish(f"offer-{i}", x) for i in range(40)]
        waiting = [asyncio.ensure_future(one_of(o)) for o in offers]
        with hmcfs.connect() as other:
            for i in range(40):
                await asyncio.get_running_loop().run_in_executor(None, lambda: other.subscribe(f"offer-{i}", np.zeros_like(x)).wait())
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
        never = fs.publish("offer-never", x)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(one_of(never), 0.05)

    async def one_of(offer):
        await offer

    asyncio.run(hand_over())


def test_outcomes_are_read_in_the_background(fs):
    x = fs.empty(100)
    x[:] = 5
    offers = [fs.publish(f"unread-{i}", x) for i in range(400)]
    with hmcfs.connect() as other:
        for i in range(400):
            other.subscribe(f"unread-{i}", out=np.zeros(100, "u1")).wait()
    for one in offers:
        one.result(timeout=20)
    assert not fs.publish("unread", x).done()  # which leaves the socket as it was
    assert fs.exists(*[f"{i:0250}" for i in range(9000)]) == [False] * 9000


def test_await(fs):
    x = array(3, 70_000)

    async def hand_over():
        offered = fs.publish("async", x)
        received = await asyncio.get_running_loop().run_in_executor(None, lambda: hmcfs.connect().subscribe("async", np.zeros_like(x)).wait())
        await offered
        return received

    assert asyncio.run(hand_over()).tobytes() == x.tobytes()


def test_threads_share_a_session(fs):
    def work(n):
        for i in range(20):
            key, data = f"thread-{n}", content(100 * n + i, 5000 + i)
            fs.set(key, data)
            assert fs.get(key) == data
        fs.delete(key)
        done.append(n)

    done = []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    late = threading.Thread(target=lambda: fs.wait(["late"], timeout=60) or done.append("late"))
    for t in [late, *threads]:
        t.start()
    for t in threads:
        t.join()
    fs.set("late", b"x")
    late.join()
    assert sorted(map(str, done)) == sorted([*map(str, range(8)), "late"])
    fs.delete("late")


@pytest.mark.parametrize("device", ["host", "sim0"])
def test_open(fs, device):
    x = array(4, (37, 1009), "f8")
    np.save(path(f"{device}/x.npy"), x)
    with fs.open(f"{device}/x.npy") as f:
        assert f.device == device and f.state == "live" and f.size == os.stat(path(f"{device}/x.npy")).st_size
        y = f.numpy()
        assert y.dtype == x.dtype and y.shape == x.shape and y.tobytes() == x.tobytes()
        assert bytes(f.memory()) == open(path(f"{device}/x.npy"), "rb").read()
        y[3, 3] = 33.25  # the array is the file
        assert np.load(path(f"{device}/x.npy"))[3, 3] == 33.25
        with pytest.raises(OSError):
            os.truncate(path(f"{device}/x.npy"), 10)
    os.remove(path(f"{device}/x.npy"))
    with pytest.raises((hmcfs.HmcfsError, ValueError)):
        f.numpy()
    assert y[3, 3] == 33.25  # it outlives the file


def test_raw_files(fs):
    data = content(5, 24_000)
    with open(path("host/raw"), "wb") as f:
        f.write(data)
    os.setxattr(path("host/raw"), "user.hmc.dtype", b"float32")
    os.setxattr(path("host/raw"), "user.hmc.shape", b"20,300")
    with fs.open("host/raw") as f:
        assert f.dtype == "float32" and f.shape == (20, 300)
        assert f.numpy().shape == (20, 300) and f.numpy().tobytes() == data
    open(path("host/none"), "wb").close()
    assert fs.open("host/none").memory().nbytes == 0
    fs.copy("host/raw", "sim0/raw")
    assert open(path("sim0/raw"), "rb").read() == data
    for name in ("host/raw", "host/none", "sim0/raw"):
        os.remove(path(name))


def test_safetensors(fs):
    import json

    a, b = array(6, (8, 16)), array(7, (100,), "i2")
    header = json.dumps({
        "a": {"dtype": "F32", "shape": [8, 16], "data_offsets": [0, a.nbytes]},
        "b": {"dtype": "I16", "shape": [100], "data_offsets": [a.nbytes, a.nbytes + b.nbytes]},
    }).encode()
    with open(path("sim0/m.safetensors"), "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header + a.tobytes() + b.tobytes())
    with fs.open("sim0/m.safetensors") as f:
        got = dict(f.tensors())
    assert got["a"].tobytes() == a.tobytes() and got["a"].shape == (8, 16)
    assert got["b"].tobytes() == b.tobytes() and got["b"].dtype == np.int16
    with fs.open("sim0/m.safetensors.tensors/b.npy") as one:  # one tensor, at any offset
        assert (one.dtype, one.shape, one.size, one.device) == ("int16", b.shape, b.nbytes, "sim0")
        assert np.array_equal(one.numpy(), b) and one.memory() == b.tobytes()
        one.numpy()[0] = 77
    b.flat[0] = got["b"].flat[0]
    assert np.array_equal(np.load(path("sim0/m.safetensors.tensors/b.npy")), got["b"])
    os.setxattr(path("sim0/m.safetensors.tensors/b.npy"), "user.hmc.key", b"one-b")
    back = np.empty_like(b)
    fs.mget(["one-b"], out=[back])
    assert np.array_equal(back, got["b"])
    os.remove(path("sim0/m.safetensors"))


def test_watch(fs):
    events = fs.watch("seen-")
    fs.set("unseen", b"1")
    fs.set("seen-1", b"22")
    event = next(events)
    assert event.event == "created" and event.key == "seen-1" and event.size == 2
    events.close()
    fs.delete("unseen", "seen-1")


def test_wrong_arguments(fs):
    readonly = np.zeros(10, "u1")
    readonly.flags.writeable = False
    with open(path("sim0/same"), "wb") as f:
        f.write(b"same")
    for call, error, text in [
        (lambda: fs.mget(["k"], [readonly]), hmcfs.Invalid, "read-only"),
        (lambda: fs.set("k", np.zeros((4, 4))[:, ::2]), hmcfs.Invalid, "contiguous"),
        (lambda: fs.set("k", 5), hmcfs.Invalid, "no buffer"),
        (lambda: fs.set("k", b""), hmcfs.Invalid, "no bytes"),
        (lambda: fs.set("k" * 256, b"x"), hmcfs.Invalid, "255"),
        (lambda: fs.set("a/b", b"x"), hmcfs.Invalid, 'write : instead of /, as in "a:b"'),
        (lambda: fs.d2h({"k": b"x"}, existing="perhaps"), hmcfs.Invalid, "perhaps"),
        (lambda: fs.mget(["k"], []), hmcfs.Invalid, "0 arrays"),
        (lambda: fs.expire(0.5, "k"), hmcfs.Invalid, "whole seconds"),
        (lambda: fs.wait(["k"], timeout=float("inf")), hmcfs.Invalid, "seconds"),
        (lambda: fs.wait(["k"], timeout=None), hmcfs.Invalid, "seconds"),
        (lambda: fs.copy("sim0/same", "sim0/same"), hmcfs.Invalid, "same file"),
        (lambda: fs.open("host/nothing"), FileNotFoundError, "nothing"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert fs.exists("k") is False  # the session goes on
    assert open(path("sim0/same"), "rb").read() == b"same"
    os.remove(path("sim0/same"))


@pytest.mark.parametrize("dtype", ["f2", ">f4", "?", "i8", "c16", "m8[s]", [("a", "i2"), ("b", "f4")]])
def test_types(fs, dtype):
    x = np.frombuffer(content(9, 480), "u1").view(dtype).copy()
    fs.d2h({"typed": x}, existing="replace")
    y = np.zeros_like(x)
    fs.mget(["typed"], [y])
    assert x.tobytes() == y.tobytes() == fs.get("typed")
    fs.delete("typed")


def test_memory_is_given_back(fs):
    # A session has room for 1024 registrations, of which a hand-over takes two. Most of it is taken.
    held = [fs.empty(1) for _ in range(990)]
    for i in range(100):
        a = fs.empty(5000)
        a[:] = i % 251
    y = np.zeros(70_000, "u1")
    for i in range(50):
        x = np.full(70_000, i % 251, "u1")
        offered = fs.publish("again", x)
        fs.subscribe("again", out=y).wait()
        offered.result(timeout=20)
        assert y[69_999] == i % 251
    kept = fs.empty(5000)
    kept[:] = 7
    fs.mset({"kept": kept})
    del kept, a, held
    fs.empty(1)  # gives back what is unused
    assert fs.get("kept") == b"\x07" * 5000
    fs.delete("kept")


@contextlib.contextmanager
def signalled(number):
    """Send the main thread a signal once it waits: an interrupt while it sends or receives ends the session."""
    main, over = threading.main_thread().ident, threading.Event()

    def send():
        seen = 0
        while seen < 5 and not over.wait(0.02):
            seen = seen + 1 if sys._current_frames()[main].f_code.co_name in ("_fill", "wait") else 0
        if seen == 5:
            signal.pthread_kill(main, number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def test_cancelled_call(fs):
    y = np.zeros(5000, "u1")

    def interrupted(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupted)
    try:
        for call in (
            lambda: fs.subscribe("late", out=y, timeout=60).wait(),
            lambda: fs.mget(["late"], [y], timeout=60),
            lambda: fs.wait(["late"], timeout=60),
        ):
            with pytest.raises(KeyboardInterrupt), signalled(signal.SIGALRM):
                call()
    finally:
        signal.signal(signal.SIGALRM, old)
    fs.set("late", content(10, 5000))  # the session, and its slots, are as before
    assert fs.get("late") == content(10, 5000) and not y.any()
    fs.delete("late")


def test_fork_is_refused(fs):
    fs.set("forked", b"x")
    pid = os.fork()
    if pid == 0:
        try:
            fs.get("forked")
        except hmcfs.Closed:
            with hmcfs.connect() as own:
                os._exit(0 if own.get("forked") == b"x" else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert fs.get("forked") == b"x"
    fs.delete("forked")


def test_closed(fs):
    fs.set("closed", b"x")
    fs.delete("closed")
    session = fs._open()[0]
    a = fs.empty(16)
    a[:] = 7
    fs.close()
    with pytest.raises(hmcfs.Closed):
        session.call("exist", ["x"])
    assert fs.exists("x") is False  # a new session
    b = fs.empty(16)
    b[:] = 9
    fs.set("closed", a)
    assert fs.get("closed") == b"\x07" * 16
    fs.delete("closed")


def test_no_descriptor_leaks(fs):
    with open(path("host/leak"), "wb") as f:
        f.write(b"x" * 5000)
    before = None
    for i in range(ROUNDS // 4):
        fs.open("host/leak").close()
        with hmcfs.connect() as other:
            other.set("leak", b"y" * 70_000)
            assert other.get("leak") == b"y" * 70_000
        if i == 10:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    os.remove(path("host/leak"))
    fs.delete("leak")


def test_another_process(fs):
    fs.set("theirs", content(8, 10_000))
    code = "import hmcfs, sys; sys.stdout.buffer.write(hmcfs.connect().get('theirs'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ})
    assert out.stdout == content(8, 10_000)
    fs.delete("theirs")
