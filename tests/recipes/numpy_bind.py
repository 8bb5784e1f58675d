#!/usr/bin/env python3
"""A NumPy array as a file, for as long as this process lives.

    numpy_bind.py FILE

FILE, which is made, lies in host/ or simN/ of a mount. The array is in a
memfd; no byte is copied when it becomes the file.

Ends with 0, or with 77 and a reason where a package is missing.
"""
import json
import mmap
import os
import re
import sys

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def shared_array(shape, dtype):
    """An array that other processes can have too, and its descriptor."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    fd = os.memfd_create("array")
    os.ftruncate(fd, size)
    return np.frombuffer(mmap.mmap(fd, size), dtype=dtype).reshape(shape), fd


def bind(path, array, fd):
    """Makes the array the content of a new file."""
    device = os.path.relpath(path, mount_of(path)).split(os.sep)[0]
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.setxattr(path, "user.hmc.bind", json.dumps({
        "family": re.sub(r"\d+$", "", device),
        "pid": os.getpid(),
        "dtype": str(array.dtype),
        "shape": ",".join(map(str, array.shape)),
        "pieces": [{"kind": "memfd", "fd": fd, "offset": 0, "size": array.nbytes}],
    }).encode())


def mount_of(path):
    """The mount point above a path."""
    path = os.path.dirname(os.path.realpath(path))
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def main(path):
    rng = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
    array, fd = shared_array((300, 1000), "float32")
    array[:] = rng.standard_normal(array.shape, dtype="float32")
    bind(path, array, fd)
    assert os.getxattr(path, "user.hmc.state") == b"bound"
    assert os.getxattr(path, "user.hmc.shape") == b"300,1000"

    # From the array to the file ...
    for _ in range(3):
        array[:] = rng.standard_normal(array.shape, dtype="float32")
        assert np.array_equal(np.fromfile(path, dtype="float32").reshape(array.shape), array), "the file is not the array"
    # ... and from the file to the array.
    other = rng.standard_normal(array.shape, dtype="float32")
    with open(path, "r+b") as file:
        file.write(other.tobytes())
    assert np.array_equal(array, other), "the array lacks what was written"

    # Removing the file only unbinds.
    os.remove(path)
    assert np.array_equal(array, other), "the array went with the file"
    print(f"numpy_bind: ok, {array.nbytes} bytes both ways")


if __name__ == "__main__":
    main(sys.argv[1])
