#!/usr/bin/env python3
"""A file in a card's memory as a PyTorch tensor, without a copy.

    torch_export.py FILE

FILE, which is made, lies in cudaN/ of a mount, and hmcfs is in the PATH. CuPy
opens the memory, and hands it to PyTorch by DLPack; see cupy_export.py, which
lies beside this.

Ends with 0, or with 77 and a reason where a package or the card is missing.
"""
import os
import sys

try:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch.cuda is not available")
except Exception as missing:  # no package, no driver, no card
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cupy_export import open_array  # noqa: E402 - ends with 77 without CuPy


def main(path):
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    first = torch.randn(1024, 4096)
    first.numpy().tofile(path)
    os.setxattr(path, "user.hmc.dtype", b"float32")
    os.setxattr(path, "user.hmc.shape", b"1024,4096")
    with open_array(path) as array:
        tensor = torch.from_dlpack(array)
        assert tensor.data_ptr() == array.data.ptr, "PyTorch has copied"
        assert torch.equal(tensor.cpu(), first), "the tensor is not what was written"
        # From the tensor to the file: a kernel's stores are there once it ends.
        tensor.mul_(2).add_(1)
        torch.cuda.synchronize()
        with open(path, "rb") as file:
            now = torch.frombuffer(bytearray(file.read()), dtype=torch.float32).reshape(first.shape)
        assert torch.equal(now, tensor.cpu()), "the file lacks what was stored"
        assert not torch.equal(now, first)
        # From the file to the tensor.
        second = torch.randn(1024, 4096)
        with open(path, "r+b") as file:
            file.write(second.numpy().tobytes())
        assert torch.equal(tensor.cpu(), second), "the tensor lacks what was written"
        print(f"torch_export: ok, {tensor.nbytes} bytes both ways")
        # Nothing of the tensor may be used once the memory is closed.
        del tensor


if __name__ == "__main__":
    main(sys.argv[1])
