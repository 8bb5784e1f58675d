"""Tests with tensors of PyTorch, on the mount that $HMCFS_MOUNT names."""

import os

import pytest

import hmcfs
from test_arrays import header_of, nothing_left  # noqa: F401 - nothing_left is a fixture
from test_hmcfs import fs, path  # noqa: F401 - fs is a fixture

torch = pytest.importorskip("torch")


def tensor(shape, dtype=torch.float32):
    return (torch.rand(shape) * 200 - 100).to(dtype)


@pytest.mark.parametrize("dtype", [getattr(torch, n) for n in (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn float8_e5m2"
).split() if hasattr(torch, n)], ids=str)
def test_types(fs, dtype):
    x = tensor((5, 7), dtype)
    hmcfs.save_file({"x": x}, path("host/x.npy"))
    hmcfs.save_file({"x": x}, path("sim0/x.safetensors"))
    t = fs.open("host/x.npy")
    assert t.dtype == str(dtype).rpartition(".")[2] and t.shape == (5, 7)
    shared = [t.torch(), hmcfs.load_file(path("host/x.npy"), framework="torch")["x"]]
    if dtype is not torch.bool:  # PyTorch 1.13 takes no bool by DLPack
        shared.append(torch.from_dlpack(t))
    for y in shared:
        assert y.dtype == dtype and torch.equal(y, x)
    shared[0][2, 3] = 1
    assert all(y[2, 3] == 1 for y in shared)
    assert torch.equal(hmcfs.load_file(path("sim0/x.safetensors"))["x"], x)
    assert torch.equal(hmcfs.load_file(path("sim0/x.safetensors"), device="cpu")["x"], x)
    fs.set("k", x)
    y = torch.zeros_like(x)
    fs.mget(["k"], out=[y])
    assert torch.equal(x, y)
    fs.delete("k")


def test_save_and_load():
    tensors = {"a": tensor((3, 4)), "b": tensor((5,), torch.bfloat16), "s": torch.tensor(2.5), "e": torch.zeros(0, 3), "g": tensor((2, 2)).requires_grad_()}
    hmcfs.save_file(tensors, path("sim0/m.safetensors"), {"format": "pt"})
    header, start = header_of(path("sim0/m.safetensors"))
    assert header["b"]["dtype"] == "BF16" and start % 64 == 0
    for device in (None, "sim:1", "cpu"):
        got = hmcfs.load_file(path("sim0/m.safetensors"), device=device)
        assert set(got) == set(tensors) and all(torch.equal(got[n], x) and got[n].dtype == x.dtype for n, x in tensors.items())
    fortran = tensor((3, 4)).t()
    hmcfs.save_file({"f": fortran}, path("host/f.npy"), copy=True)
    assert torch.equal(hmcfs.load_file(path("host/f.npy"))["f"], fortran)


def test_fortran_order(fs):
    np = pytest.importorskip("numpy")
    x = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    np.save(path("host/f.npy"), x)
    t = fs.open("host/f.npy")
    for y in (t.torch(), torch.from_dlpack(t)):
        assert torch.equal(y, torch.from_numpy(x)) and y.stride() == (1, 2, 6)


def test_bind_and_hand_over(fs):
    x = torch.from_numpy(fs.empty((8, 8), "f4"))
    x[:] = tensor((8, 8))
    with fs.bind("host/live", x) as bound:
        assert bound is x and os.getxattr(path("host/live"), "user.hmc.shape") == b"8,8"
        x += 1
        assert open(path("host/live"), "rb").read() == x.numpy().tobytes()
    with fs.bind("host/live", tensor((8, 8), torch.bfloat16), copy=True) as bound:
        assert bound.dtype == torch.bfloat16 and os.getxattr(path("host/live"), "user.hmc.dtype") == b"bfloat16"
    with hmcfs.connect() as other:
        coming = other.subscribe("t", out=torch.zeros(8, 8))
        fs.publish("t", x).wait(20)
        assert torch.equal(coming.wait(20), x)


def test_wrong_tensors(fs):
    x = tensor((4, 4))
    for call, text in [
        (lambda: fs.set("k", x.t()), "copy=True"),
        (lambda: fs.mget(["k"], out=[x.t()]), "contiguous"),
        (lambda: fs.set("k", torch.empty(4, device="meta")), "meta"),
        (lambda: fs.set("k", x.to_sparse()), "sparse"),
        (lambda: fs.set("k", x.to(torch.complex64).conj()), "resolve_conj"),
        (lambda: fs.set("k", torch.quantize_per_tensor(x, 1.0, 0, torch.quint8)), "quantized"),
        (lambda: fs.set("k", torch.zeros(0)), "no bytes"),
        (lambda: fs.bind("host/live", x), "fs.empty"),
        (lambda: hmcfs.save_file({"x": x.to_sparse()}, path("host/m.safetensors")), "sparse"),
        (lambda: hmcfs.save_file({"x": torch.empty(4, device="meta")}, path("host/m.npy")), "meta"),
    ]:
        with pytest.raises(hmcfs.Invalid, match=text):
            call()
    fs.set("k", x.t(), copy=True)
    assert fs.get("k") == x.t().contiguous().numpy().tobytes()
    fs.delete("k")
