"""Tensors of PyTorch between two ranks, of which the second one has NumPy only. Run by hmcfs run."""

import numpy as np

import hmcfs

comm = hmcfs.init()


def fails(error, call, word):
    try:
        call()
    except error as e:
        assert word in str(e), str(e)
        return
    raise AssertionError(f"no {error.__name__}")


def tensors():
    import torch

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
