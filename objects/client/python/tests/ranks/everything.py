"""All operations of a rank, compared with NumPy. Run by hmcfs run with two ranks or more."""

import asyncio
import gc
import os
import subprocess
import sys
import threading

import numpy as np

import hmcfs

comm = hmcfs.init()
me, n = comm.rank, comm.size
assert hmcfs.init() is comm
right, left = (me + 1) % n, (me - 1) % n


def data(rank, count, dtype, seed=0):
    """Return random data, different at each position, that every rank can compute."""
    return np.random.default_rng((seed, rank)).integers(-40, 40, count).astype(dtype)


def places(shape, dtype):
    """Return memory of each kind: shared by all ranks, of this rank, and of this process alone."""
    return comm.empty(shape, dtype), comm.empty(shape, dtype, shared=False), np.empty(shape, dtype)


def raises(error, call, *words):
    try:
        call()
    except error as e:
        for word in words:
            assert word in str(e), (word, str(e))
        return e
    raise AssertionError(f"no {error.__name__}")


def test_messages():
    for count in (1, 1000, 300_001):
        for x, y in zip(places(count, "f4"), places(count, "f4")):
            x[:] = data(me, count, "f4")
            going = comm.isend(x, right, tag=7)
            assert comm.recv(y, left, tag=7) is y
            assert going.result() is x
            assert (y == data(left, count, "f4")).all()
    many = [comm.irecv(np.empty(100, "i8"), left, tag=t) for t in range(50)]
    for t in reversed(range(50)):
        comm.send(data(me, 100, "i8", t), right, tag=t)
    for t, request in enumerate(many):
        assert (request.result() == data(left, 100, "i8", t)).all()


def test_await():
    async def both():
        out = np.empty(1 << 16, "f8")
        coming = comm.irecv(out, left, tag=1)
        await comm.isend(data(me, 1 << 16, "f8"), right, tag=1)
        assert await coming is out
        assert (out == data(left, 1 << 16, "f8")).all()

    asyncio.run(both())


def test_collectives():
    for dtype in ("f4", "f8", "f2", "i4", "i8", "i1", "u1"):
        for count in (1, n, 1001, 40_000):
            all_data = np.stack([data(r, count, dtype, 1) for r in range(n)])
            if dtype == "f2":
                all_data //= 8
            for op, want in (("sum", all_data.sum(0, dtype=dtype)), ("min", all_data.min(0)), ("max", all_data.max(0))):
                for x in places(count, dtype):
                    x[:] = all_data[me]
                    assert comm.all_reduce(x, op) is x
                    assert (x == want).all(), (dtype, count, op)
            out = np.empty(count, dtype)
            assert comm.all_reduce(all_data[me], out=out) is out
            assert (out == all_data.sum(0, dtype=dtype)).all()
            x = all_data[me].copy()
            got = comm.reduce(x, root=n - 1)
            assert (got is None) == (me != n - 1)
            assert (x == (all_data.sum(0, dtype=dtype) if me == n - 1 else all_data[me])).all()
            for x in places(count, dtype):
                x[:] = all_data[me]
                assert comm.broadcast(x, root=1) is x
                assert (x == all_data[1]).all()
            assert (comm.all_gather(all_data[me]) == all_data).all()
            whole = comm.empty((n, count), dtype)
            assert (comm.all_gather(all_data[me], whole) == all_data).all()


def test_parts():
    rows = 5
    all_data = np.stack([data(r, n * rows * 3, "f4", 2).reshape(n * rows, 3) for r in range(n)])
    part = all_data.sum(0)[me * rows : (me + 1) * rows]
    assert (comm.reduce_scatter(all_data[me]) == part).all()
    out = comm.empty((rows, 3), "f4")
    x = comm.empty((n * rows, 3), "f4")
    x[:] = all_data[me]
    assert (comm.reduce_scatter(x, out=out) == part).all()
    mixed = comm.all_to_all(x)
    for r in range(n):
        assert (mixed[r * rows : (r + 1) * rows] == all_data[r][me * rows : (me + 1) * rows]).all()
    assert (comm.all_to_all(all_data[me], comm.empty((n * rows, 3))) == mixed).all()
    uneven = data(me, n + 1, "i4")
    own = np.empty(2 if me == 0 else 1, "i4")
    comm.reduce_scatter(uneven, out=own)
    total = sum(data(r, n + 1, "i4") for r in range(n))
    assert (own == (total[:2] if me == 0 else total[me + 1 : me + 2])).all()


def test_windows():
    own = comm.window(1 << 20)
    assert len(own) == 1 << 20 and not own.any()
    comm.barrier()
    x = data(me, 1000, "f8", 3)
    comm.put(x, right, 8000 * me)
    comm.tag(right, 100 + me)
    assert comm.recv_tag(left) == 100 + left
    assert (own[8000 * left : 8000 * left + 8000].view("f8") == data(left, 1000, "f8", 3)).all()
    comm.barrier()
    back = np.empty(1000, "f8")
    assert comm.get(back, right, 8000 * me) is back
    assert (back == x).all()
    own[-8:].view("f8")[:] = me
    comm.barrier()
    assert comm.get(np.empty(1), left, (1 << 20) - 8)[0] == left
    raises(hmcfs.Invalid, lambda: comm.put(x, right, 1 << 20), "outside the window")
    comm.barrier()
    comm.close_window()
    own[0] = 1
    raises(hmcfs.Invalid, lambda: comm.put(x, right), "no window")


def test_bad_arguments():
    x = np.arange(10.0)
    raises(hmcfs.Invalid, lambda: comm.send(x, n), f"not one of the {n} ranks")
    raises(hmcfs.Invalid, lambda: comm.send(x, -1))
    raises(hmcfs.Invalid, lambda: comm.send(x[::2], right), "not contiguous")
    raises(hmcfs.Invalid, lambda: comm.send(x, right, tag=-1))
    raises(hmcfs.Invalid, lambda: comm.send(x.astype(">f8"), right), "byte order")
    raises(hmcfs.Unsupported, lambda: comm.send(x.astype("c16"), right), "complex128")
    raises(hmcfs.Invalid, lambda: comm.all_reduce(x, "mean"), "avg")
    locked = x.copy()
    locked.flags.writeable = False
    raises(hmcfs.Invalid, lambda: comm.all_reduce(locked), "read-only")
    raises(hmcfs.Invalid, lambda: comm.recv(locked, left), "read-only")
    raises(hmcfs.Invalid, lambda: comm.all_reduce(x, out=np.empty(10, "f4")), "different types")
    raises(hmcfs.Invalid, lambda: comm.all_to_all(np.empty(n + 1)), "multiple")
    raises(hmcfs.Invalid, lambda: comm.empty(0))
    raises(hmcfs.Invalid, lambda: comm.recv_tag(me), "itself")
    comm.send(locked, right)
    assert (comm.recv(np.empty(10), left) == locked).all()
    raises(hmcfs.Timeout, lambda: comm.recv(x, left, tag=99, timeout=0.05))
    assert (x == np.arange(10.0)).all()
    raises(hmcfs.Timeout, lambda: comm.recv_tag(left, timeout=0.05))
    if me == 0:
        raises(hmcfs.Timeout, lambda: comm.barrier(timeout=0.05), "not all ranks")
    comm.recv_tag(left) if me else comm.tag(right, 1)
    comm.tag(right, 1) if me else comm.recv_tag(left)
    comm.barrier()
    # Both sides of a mismatch learn of it, and go on.
    going = comm.isend(np.zeros(20_000), right, tag=5)
    raises(hmcfs.Inconsistent, lambda: comm.recv(np.zeros(10_000), left, tag=5), "count")
    raises(hmcfs.Inconsistent, going.result, "count")
    raises(hmcfs.Inconsistent, lambda: comm.all_reduce(np.zeros(50 + me)), "disagrees")
    raises(hmcfs.Inconsistent, lambda: comm.broadcast(np.zeros(50), root=me % 2), "root")
    assert comm.all_reduce(np.ones(3))[0] == n


def test_memory():
    def held():
        return sum("hmcfs-region" in line for line in open("/proc/self/maps"))

    gc.collect()
    comm.empty(10)
    before = held()
    for _ in range(30):
        x = comm.empty(1 << 16)
        y = comm.empty(1 << 16, shared=False)
        x[:], y[:] = me, me
        view = x[5:]
        del x
        comm.all_reduce(view)
        assert (view == n * (n - 1) // 2).all()
    del view, y
    gc.collect()
    comm.empty(10)
    assert held() <= before + 2, (before, held())
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        comm.empty(100)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_threads():
    faults = []

    def pair(tag):
        try:
            for i in range(20):
                going = comm.isend(data(me, 5000, "f4", i), right, tag)
                assert (comm.recv(np.empty(5000, "f4"), left, tag) == data(left, 5000, "f4", i)).all()
                going.result()
        except BaseException as e:
            faults.append(e)

    threads = [threading.Thread(target=pair, args=(100 + t,)) for t in range(4)]
    for t in threads:
        t.start()
    for _ in range(20):
        assert comm.all_reduce(np.ones(1000))[-1] == n
    for t in threads:
        t.join()
    assert not faults, faults


def test_fork():
    pid = os.fork()
    if pid == 0:
        try:
            raises(hmcfs.Closed, comm.barrier, "hmcfs run")
            raises(hmcfs.Closed, hmcfs.init, "hmcfs run")
            comm.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    again = subprocess.run([sys.executable, "-B", "-c", "import hmcfs; hmcfs.init()"], capture_output=True, text=True)
    assert "Busy: another process is rank" in again.stderr, again.stderr
    comm.barrier()


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        comm.barrier()
        print(name, flush=True) if me == 0 and "-v" in sys.argv else None
# What was sent arrives, although the sender leaves at once.
if me == 0:
    comm.send(np.arange(8), 1)
    comm.close()
    raises(hmcfs.Closed, comm.barrier)
elif me == 1:
    assert (comm.recv(np.empty(8, "i8"), 0) == np.arange(8)).all()
print("done", flush=True)
