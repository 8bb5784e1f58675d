"""Tensors of PyTorch between two ranks, of which the second one has NumPy only. Run by hmcfs run."""

import numpy as np

import hmcfs

comm = hmcfs.init()
ROWS, COLUMNS = 6, 501


def data(rank, seed):
    """Return data that is different at each position, and that both ranks can compute."""
    return np.random.default_rng((rank, seed)).integers(-1000, 1000, (ROWS, COLUMNS)).astype("f4")


def fails(error, call, word):
    try:
        call()
    except error as e:
        assert word in str(e), str(e)
        return
    raise AssertionError(f"no {error.__name__}")


def others(kind):
    """Use the other operations with arrays, of which kind makes this rank's from NumPy's, and compare what arrives."""
    me, other = comm.rank, 1 - comm.rank
    mine, theirs = data(me, 1), data(other, 1)

    def empty(*shape):
        return kind(np.full(shape, -7777, "f4"))

    def same(x, want):
        assert type(x) is type(kind(want)) and np.array_equal(np.asarray(x), want)

    out = empty(ROWS, COLUMNS)
    coming = comm.irecv(out, other, tag=8)
    comm.send(kind(mine), other, tag=8)
    assert coming.result() is out
    same(out, theirs)

    comm.window(4 * mine.size + 12)
    comm.barrier()
    comm.put(kind(mine), other, 12)
    comm.barrier()
    out = empty(ROWS, COLUMNS)
    assert comm.get(out, other, 12) is out  # what this rank has put there
    same(out, mine)
    out = empty(COLUMNS)
    comm.get(out, me, 12 + 4 * 3 * COLUMNS)
    same(out, theirs[3])
    comm.barrier()
    comm.close_window()

    both = np.stack([data(0, 1), data(1, 1)])
    x = kind(mine.copy())
    assert comm.reduce(x, root=1) is (x if me == 1 else None)
    same(x, both.sum(0) if me == 1 else mine)
    out = empty(ROWS, COLUMNS)
    comm.reduce(kind(mine), "min", root=0, out=out)
    same(out, both.min(0) if me == 0 else np.full_like(mine, -7777))
    half = ROWS // 2
    part = both.sum(0)[me * half : (me + 1) * half]
    same(comm.reduce_scatter(kind(mine)), part)
    out = empty(half, COLUMNS)
    assert comm.reduce_scatter(kind(mine), out=out) is out
    same(out, part)
    mixed = both[:, me * half : (me + 1) * half].reshape(ROWS, COLUMNS)
    same(comm.all_to_all(kind(mine)), mixed)
    out = empty(ROWS, COLUMNS)
    assert comm.all_to_all(kind(mine), out) is out
    same(out, mixed)


def tensors():
    import torch

    others(torch.from_numpy)

    shared = torch.from_numpy(comm.empty((2, 500)))
    shared[:] = torch.arange(1000).reshape(2, 500)
    assert comm.all_reduce(shared) is shared
    assert torch.equal(shared, torch.arange(1000.0).reshape(2, 500) * 3)
    x = torch.arange(999)
    assert comm.all_reduce(x, "max") is x
    assert torch.equal(x, torch.arange(999) * 2)
    gathered = comm.all_gather(torch.zeros(3, requires_grad=True))
    assert torch.equal(gathered, torch.tensor([[0.0] * 3, [1.0] * 3]))
    half = torch.arange(256, dtype=torch.bfloat16) + 0.5
    going = comm.isend(half, 0, tag=2)
    assert torch.equal(comm.recv(torch.empty(256, dtype=torch.bfloat16), 0, tag=2), half)
    going.result()
    comm.send(half.view(torch.int16), 1)
    one = torch.tensor(7)
    comm.broadcast(one)
    fails(hmcfs.Invalid, lambda: comm.send(torch.zeros(3, 4).T, 1), "contiguous()")
    fails(hmcfs.Unsupported, lambda: comm.send(torch.empty(3, device="meta"), 1), "x.cpu()")
    fails(hmcfs.Inconsistent, lambda: comm.all_reduce(half), "type")


def arrays():
    others(np.asarray)
    shared = comm.empty((2, 500))
    shared[:] = np.arange(1000).reshape(2, 500) * 2
    comm.all_reduce(shared)
    x = np.arange(999) * 2
    comm.all_reduce(x, "max")
    comm.all_gather(np.ones(3, "f4"))
    bits = comm.recv(np.empty(256, "i2"), 0)
    assert ((bits.astype("u2").astype("u4") << 16).view("f4") == (np.arange(256) + 0.5).astype("f4")).sum() >= 128
    assert comm.broadcast(np.zeros((), "i8")) == 7
    fails(hmcfs.Inconsistent, lambda: comm.all_reduce(np.zeros(256, "f2")), "type")


tensors() if comm.rank == 0 else arrays()
