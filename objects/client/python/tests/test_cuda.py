"""Tests of memory of CUDA devices, on a mount of two cards of the stand-in, which $HMCFS_CARDS names.

The stand-in has a driver, and no kernels: what PyTorch and CuPy do with the memory is not shown. They need a card.
"""

import ctypes
import gc
import os
import sys
import types

import pytest

import hmcfs
from hmcfs import _cuda, _tensors

if "HMCFS_CARDS" not in os.environ:
    pytest.skip("there are no cards", allow_module_level=True)
np = pytest.importorskip("numpy")
MOUNT = os.environ["HMCFS_CARDS"]


@pytest.fixture
def fs():
    with hmcfs.connect(MOUNT) as one:
        yield one


def path(name):
    return os.path.join(MOUNT, name)


def bytes_at(ordinal, address, size):
    """Return what a card has at an address, by its own copy."""
    driver, out = _cuda.driver(), ctypes.create_string_buffer(size)

    def work():
        stream = ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
        driver.call("cuMemcpyDtoHAsync_v2", out, ctypes.c_uint64(address), ctypes.c_size_t(size), stream)
        driver.call("cuStreamSynchronize", stream)
        driver.call("cuStreamDestroy_v2", stream)
        return out.raw

    return driver.on(ordinal, work)


def bytes_of(x):
    interface = x.__cuda_array_interface__
    return bytes_at(x.__dlpack_device__()[1], interface["data"][0], x.nbytes)


class Array:
    """An array on a card, as CuPy has."""

    def __init__(self, ordinal, address, shape):
        self.ordinal, self.address, self.shape, self.dtype = ordinal, address, shape, np.dtype("f4")

    def __dlpack_device__(self):
        return (2, self.ordinal)

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.address, False), "typestr": "<f4", "shape": self.shape, "version": 3, "strides": None}


def test_a_file_of_a_card(fs):
    x = np.random.default_rng(1).random((100, 33))
    np.save(path("cuda1/x.npy"), x)
    t = fs.open("cuda1/x.npy")
    assert (t.device, t.state, t.dtype, t.shape) == ("cuda1", "live", "float64", (100, 33))
    assert t.__dlpack_device__() == (2, 1) and not hasattr(t, "__array_interface__")
    assert bytes_of(t) == x.tobytes()
    with open(path("cuda1/x.npy"), "r+b") as f:
        f.seek(t.size - x.nbytes)
        f.write((x * 2).tobytes())
    assert bytes_of(t) == (x * 2).tobytes()
    for call, text in ((t.numpy, "torch"), (t.memory, "host/"), (lambda: fs.set("k", t), "host/"), (lambda: np.asarray(t), "host/")):
        with pytest.raises(hmcfs.Unsupported, match=text):
            call()
    with pytest.raises((TypeError, hmcfs.Unsupported)):
        memoryview(t)
    with pytest.raises(RuntimeError, match="device"):  # NumPy's
        np.from_dlpack(t)
    address = t.__cuda_array_interface__["data"][0]
    t.close()
    assert bytes_at(1, address, x.nbytes) == (x * 2).tobytes()  # arrays of the interface keep t, and t the memory
    with pytest.raises(OSError, match="busy"):
        os.truncate(path("cuda1/x.npy"), 5)
    del t, call
    gc.collect()
    os.truncate(path("cuda1/x.npy"), 5)


def test_cupy_gets_the_memory_itself(fs, monkeypatch):
    """A stand-in for CuPy, which takes an array by the interface of arrays on cards, as CuPy's asarray does."""
    def asarray(t):
        interface = t.__cuda_array_interface__
        assert interface["typestr"] == "<f4" and not interface["data"][1] and interface.get("strides") is None
        made = Array(t.__dlpack_device__()[1], interface["data"][0], interface["shape"])
        made.base = t  # which keeps the memory, as CuPy keeps the owner
        return made

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(asarray=asarray))
    x = np.random.default_rng(4).random((20, 31)).astype("f4")
    np.save(path("cuda1/c.npy"), x)
    a = fs.open("cuda1/c.npy").cupy()
    assert (a.ordinal, a.shape) == (1, x.shape)
    gc.collect()
    with open(path("cuda1/c.npy"), "r+b") as f:
        f.seek(-x.nbytes, os.SEEK_END)
        f.write((x + 1).tobytes())
    assert bytes_at(1, a.address, x.nbytes) == (x + 1).tobytes()
    np.save(path("host/c.npy"), x)
    with pytest.raises(hmcfs.Unsupported, match="CUDA"):
        fs.open("host/c.npy").cupy()
    del a
    gc.collect()
    for device in ("cuda1", "host"):
        os.remove(path(f"{device}/c.npy"))


def test_tensors_of_a_card(fs):
    tensors = {"a": np.random.default_rng(2).random((33, 7)), "b": np.arange(10)}
    hmcfs.save_file(tensors, path("cuda0/m.safetensors"))
    with _tensors._on(fs, path("cuda0/m.safetensors"), "cuda:1") as file:
        assert os.listdir(path("cuda1")) == ["x.npy"]  # the copy has no name any more
        for name, one in file._parts():
            assert one.device == "cuda1" and one.__dlpack_device__() == (2, 1) and bytes_of(one) == tensors[name].tobytes()
    got = hmcfs.load_file(path("cuda0/m.safetensors"), device="cpu", framework="numpy")
    assert all(got[name].tobytes() == x.tobytes() for name, x in tensors.items())
    with pytest.raises(hmcfs.Unsupported, match="torch"):
        hmcfs.load_file(path("cuda0/m.safetensors"), framework="numpy")


def test_bind_memory_of_a_card(fs):
    driver, address = _cuda.driver(), ctypes.c_uint64()
    driver.on(0, lambda: driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096)))
    x = Array(0, address.value + 256, (8, 8))
    with fs.bind("cuda0/live", x) as bound:
        assert bound is x and [os.getxattr(path("cuda0/live"), f"user.hmc.{n}") for n in ("state", "shape")] == [b"bound", b"8,8"]
        data = np.random.default_rng(3).random((8, 8)).astype("f4")
        with open(path("cuda0/live"), "r+b") as f:
            f.write(data.tobytes())
        assert bytes_at(0, x.address, 256) == data.tobytes()
    assert not os.path.exists(path("cuda0/live"))
    with pytest.raises(hmcfs.Invalid, match="belongs to device"):
        fs.bind("cuda1/live", x)
    with pytest.raises(hmcfs.Invalid, match="on a CUDA device"):
        fs.publish("k", x)
    assert not os.path.exists(path("cuda1/live"))
    driver.on(0, lambda: driver.call("cuMemFree_v2", address))


def test_nothing_leaks_and_forks(fs):
    np.save(path("cuda0/x.npy"), np.arange(1000))
    kept = fs.open("cuda0/x.npy")
    before = None
    for i in range(60):
        with fs.open("cuda0/x.npy") as t:
            t.__dlpack__()
        del t
        if i == 10:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) == before
    pid = os.fork()
    if pid == 0:
        try:
            fs.open("cuda0/x.npy")
        except hmcfs.Closed:
            del kept
            gc.collect()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bytes_of(kept) == np.arange(1000).tobytes()
