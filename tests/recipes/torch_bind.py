#!/usr/bin/env python3
"""A live PyTorch tensor on a card as a file, without a copy.

    torch_bind.py FILE

FILE, which is made, lies in cudaN/ of a mount. It is the tensor's memory until
it is removed or this process ends; then reading it gives EIO.

Ends with 0, or with 77 and a reason where a package or the card is missing.
"""
import ctypes
import json
import os
import sys

# Memory of expandable segments has no IPC handles.
for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
    os.environ.setdefault(name, "expandable_segments:False")
try:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch.cuda is not available")
except Exception as missing:  # no package, no driver, no card
    print(f"skipped: {missing}")
    sys.exit(77)


def ipc_of(tensor):
    """The IPC handle of the allocation that a tensor lies in, and where."""
    driver = ctypes.CDLL("libcuda.so.1")
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    handle = (ctypes.c_ubyte * 64)()
    with torch.cuda.device(tensor.device):
        torch.cuda.synchronize()  # PyTorch's context is this thread's, and its kernels have ended
        check(driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(tensor.data_ptr())))
        check(driver.cuIpcGetMemHandle(ctypes.byref(handle), base))
    return bytes(handle).hex(), tensor.data_ptr() - base.value, size.value


def check(result):
    if result != 0:
        raise RuntimeError(f"CUDA error {result}; does PyTorch's allocator use cudaMalloc?")


def bind(path, tensor):
    """Makes a tensor the content of a new file."""
    if not tensor.is_contiguous():
        raise ValueError("the tensor's elements do not lie in order; bind tensor.contiguous()")
    handle, offset, allocation = ipc_of(tensor)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.setxattr(path, "user.hmc.bind", json.dumps({
        "family": "cuda",
        "pid": os.getpid(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": ",".join(map(str, tensor.shape)),
        "pieces": [{"kind": "ipc", "handle": handle, "offset": offset, "size": tensor.nbytes, "allocation": allocation}],
    }).encode())


def read(path, like):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=like.dtype).reshape(like.shape)


def main(path):
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    # A small tensor lies somewhere inside a larger allocation of PyTorch's.
    before = torch.randn(1000, device="cuda")
    for shape in ((100, 250), (1024, 4096)):
        tensor = torch.randn(*shape, device="cuda")
        behind = torch.randn(1000, device="cuda")
        guards = before.cpu(), behind.cpu()
        bind(path, tensor)
        assert torch.equal(read(path, tensor), tensor.cpu()), "the file is not the tensor"
        # From the tensor to the file: a kernel's stores are there once it ends.
        tensor.mul_(2).add_(1)
        torch.cuda.synchronize()
        assert torch.equal(read(path, tensor), tensor.cpu()), "the file lacks what was stored"
        # From the file to the tensor.
        other = torch.randn(*shape)
        with open(path, "r+b") as file:
            file.write(other.numpy().tobytes())
        assert torch.equal(tensor.cpu(), other), "the tensor lacks what was written"
        # Removing the file only unbinds.
        os.remove(path)
        assert torch.equal(tensor.cpu(), other), "the tensor went with the file"
        assert torch.equal(before.cpu(), guards[0]) and torch.equal(behind.cpu(), guards[1]), "memory beside it has changed"
        print(f"torch_bind: ok, {tensor.nbytes} bytes both ways")


if __name__ == "__main__":
    main(sys.argv[1])
