#!/usr/bin/env python3
"""A file in the host's memory as a NumPy array, without a copy.

    numpy_export.py FILE

FILE, which is made, lies in host/ or simN/ of a mount. What is stored in the
array is in the file, and what is written to the file is in the array.

Ends with 0, or with 77 and a reason where a package is missing.
"""
import json
import mmap
import os
import sys

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def open_array(path):
    """The file's memory as an array, by what user.hmc.handle says of it."""
    memory = json.loads(os.getxattr(path, "user.hmc.handle"))
    (piece,) = memory["pieces"]  # an export is of one allocation
    # Root and the user who mounted may open the daemon's descriptor; others
    # run this behind `hmcfs export FILE --`, and take descriptor 3.
    fd = os.open(f"/proc/{memory['pid']}/fd/{piece['fd']}", os.O_RDWR)
    try:
        view = mmap.mmap(fd, piece["offset"] + piece["size"])
    finally:
        os.close(fd)
    array = np.frombuffer(view, dtype=memory.get("dtype", "uint8"), offset=piece["offset"])
    shape = memory.get("shape")
    return array.reshape([int(n) for n in shape.split(",")]) if shape else array


def main(path):
    rng = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
    first = rng.standard_normal((300, 1000), dtype="float32")
    first.tofile(path)
    os.setxattr(path, "user.hmc.dtype", b"float32")
    os.setxattr(path, "user.hmc.shape", b"300,1000")

    array = open_array(path)
    try:
        use(path, array, rng)
    finally:
        # The export lasts until it is ended, or the mount is; the array goes on
        # showing the same memory. `hmcfs export FILE -- COMMAND` ends it by itself.
        os.removexattr(path, "user.hmc.handle")


def use(path, array, rng):
    first = np.fromfile(path, dtype="float32").reshape(300, 1000)
    assert array.shape == first.shape and np.array_equal(array, first), "the array is not what was written"

    # From the array to the file ...
    array *= 2
    array[17, 3] = -1
    assert np.array_equal(np.fromfile(path, dtype="float32").reshape(first.shape), array), "the file lacks what was stored"
    # ... and from the file to the array.
    second = rng.standard_normal((300, 1000), dtype="float32")
    with open(path, "r+b") as file:
        file.write(second.tobytes())
    assert np.array_equal(array, second), "the array lacks what was written"

    # What is exported can't be cut, until that is ended.
    try:
        os.truncate(path, 4)
        raise AssertionError("the memory was taken from under the array")
    except OSError as refused:
        print(f"numpy_export: ok, {array.nbytes} bytes both ways; truncating is refused: {refused.strerror}")


if __name__ == "__main__":
    main(sys.argv[1])
