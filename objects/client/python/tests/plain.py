"""A program that uses the package by the standard library alone, with any Python; $HMCFS_MOUNT names a mount with host, sim0 and sim1."""

import random
import sys

for name in ("cupy", "fsspec", "ml_dtypes", "numpy", "torch"):
    sys.modules[name] = None  # which can't be imported

import hmcfs


def content(seed, size):
    return random.Random(seed).randbytes(size)


def refused(error, text, call):
    try:
        call()
    except error as e:
        assert text in str(e), (text, str(e))
    else:
        raise AssertionError(f"{text}: it was not refused")


def memory(fs):
    """Memory of a type and a shape is a memoryview, which keys, files and other processes use as it is."""
    x = fs.empty((10, 20), "f4")
    assert (x.shape, x.format, x.nbytes) == ((10, 20), "f", 800)
    x.cast("B")[:] = content(1, 800)
    fs.mset({"plain": x}, ttl=60)
    assert fs.get("plain") == x.tobytes() == content(1, 800)
    x[3, 4] = 7.5
    out = bytearray(800)
    fs.mget(["plain"], out=[out])
    assert memoryview(out).cast("f", (10, 20))[3, 4] == 7.5
    fs.delete("plain")
    part = x.cast("B")[160:240]
    del x  # its parts keep the memory
    with fs.bind("host/plain", part), fs.bind("sim0/plain", content(2, 300), copy=True) as copy:
        assert fs.read("host/plain") == part.tobytes() and fs.read("sim0/plain") == copy.tobytes() == content(2, 300)
        copy[7] ^= 1
        assert fs.read("sim0/plain") == copy.tobytes()
    for dtype, form in (("u1", "B"), ("<i8", "l"), ("float64", "d"), ("bool", "?"), ("uint16", "H")):
        assert fs.empty(3, dtype).format == form
    refused(hmcfs.Unsupported, "numpy", lambda: fs.empty(5, "float16"))
    refused(hmcfs.Unsupported, "nonsense", lambda: fs.empty(5, "nonsense"))
    refused(hmcfs.Invalid, "no bytes", lambda: fs.empty((5, 0)))
    refused(hmcfs.Invalid, "fs.empty", lambda: fs.bind("host/plain", bytearray(5)))
    before = len(fs._regions)
    for _ in range(300):
        fs.empty(100)
    assert len(fs._regions) <= before + 1  # what is gone is given back


def values(fs):
    for size in (1, 65_536, 3_000_001):
        fs.set("plain", content(size, size))
        assert fs.get("plain") == content(size, size)
    fs.d2h({"plain": content(3, 100), "plain-2": content(4, 70_000)})
    out = bytearray(100), bytearray(70_000)
    fs.h2d(dict(zip(("plain", "plain-2"), out)))
    assert out == (content(3, 100), content(4, 70_000))
    fs.delete("plain", "plain-2")
    offer = fs.publish("plain", content(5, 100_000))
    with hmcfs.connect() as other:
        assert other.subscribe("plain", out=bytearray(100_000)).wait(20) == content(5, 100_000)
    offer.result(20)


def files(fs):
    fs.write("sim0/plain", content(6, 12_000))
    fs.set_attribute("sim0/plain", "user.hmc.dtype", "float32")
    fs.set_attribute("sim0/plain", "user.hmc.shape", "30,100")
    with fs.open("sim0/plain") as f:
        assert (f.dtype, f.shape) == ("float32", (30, 100)) and f.memory() == content(6, 12_000)
        assert bytes(memoryview(f)) == content(6, 12_000) and memoryview(f).shape == (30, 100)
        view = f.memory()
        for call, package in ((f.numpy, "numpy"), (f.torch, "torch"), (f.__dlpack__, "numpy"), (lambda: f.__array__(), "numpy")):
            refused(hmcfs.Unsupported, f"the package {package}", call)
    refused(hmcfs.Closed, "open it again", f.memory)
    view[5:8] = b"abc"
    assert fs.read("sim0/plain")[:10] == content(6, 12_000)[:5] + b"abc" + content(6, 12_000)[8:10]
    fs.write("host/plain.npy", b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<i4', 'fortran_order': False, 'shape': (5, 7)}".ljust(117) + b"\n" + content(7, 140))
    with fs.open("host/plain.npy") as f:
        assert (f.dtype, f.shape) == ("int32", (5, 7)) and memoryview(f).tobytes() == content(7, 140)
    refused(hmcfs.Unsupported, "the package numpy", lambda: hmcfs.load_file(fs.path + "/host/plain.npy"))
    refused(hmcfs.Invalid, "no array", lambda: hmcfs.save_file({"x": b"abc"}, fs.path + "/host/plain.safetensors"))
    x = fs.empty((3, 5), "f4")
    x.cast("B")[:] = content(8, 60)
    hmcfs.save_file({"x": x, "y": memoryview(content(9, 7))}, fs.path + "/host/plain.safetensors")
    for name, want in (("x", ("float32", (3, 5), content(8, 60))), ("y", ("uint8", (7,), content(9, 7)))):
        with fs.open(f"host/plain.safetensors.tensors/{name}.npy") as f:
            assert (f.dtype, f.shape, memoryview(f).tobytes()) == want
    for name in ("sim0/plain", "host/plain.npy", "host/plain.safetensors"):
        fs.remove(name)


with hmcfs.connect() as mount:
    for one in (mount, hmcfs.connect(mount.socket_path)):  # with the mount, and without it
        with one:
            memory(one)
            values(one)
            if one is mount:
                files(one)
print("done with Python", sys.version.split()[0])
