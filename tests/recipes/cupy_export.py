#!/usr/bin/env python3
"""A file in a card's memory as a CuPy array, without a copy.

    cupy_export.py FILE

FILE, which is made, lies in cudaN/ of a mount, and hmcfs is in the PATH. What
is stored in the array is in the file, and the other way round.

Ends with 0, or with 77 and a reason where a package or the card is missing.
"""
import contextlib
import json
import os
import subprocess
import sys

try:
    import cupy
    import numpy as np

    cupy.cuda.runtime.getDeviceCount()
except Exception as missing:  # no package, no driver, no card
    print(f"skipped: {missing}")
    sys.exit(77)


def card_of(uuid):
    """The number that CUDA gives a card in this process."""
    wanted = uuid.removeprefix("GPU-").replace("-", "")
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        raw = cupy.cuda.runtime.getDeviceProperties(number).get("uuid", b"")
        # CuPy's text may end at a byte that is zero.
        if raw and wanted.startswith(bytes(raw).hex()):
            return number
    return 0


@contextlib.contextmanager
def open_array(path):
    """The file's memory as an array of bytes, or of its dtype and shape."""
    # The export ends with this process.
    text = subprocess.run(["hmcfs", "export", "--json", "--kind", "ipc", "--pid", str(os.getpid()), path],
                          check=True, capture_output=True, text=True).stdout
    memory = json.loads(text)
    (piece,) = memory["pieces"]  # an export is of one allocation
    dtype = np.dtype(memory.get("dtype", "uint8"))
    shape = [int(n) for n in memory["shape"].split(",")] if memory.get("shape") else [piece["size"] // dtype.itemsize]
    card = card_of(memory.get("device", ""))
    with cupy.cuda.Device(card):
        start = cupy.cuda.runtime.ipcOpenMemHandle(bytes.fromhex(piece["handle"]))
        try:
            whole = cupy.cuda.UnownedMemory(start, piece["offset"] + piece["size"], None, card)
            yield cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(whole, piece["offset"]))
        finally:
            cupy.cuda.Device(card).synchronize()
            cupy.cuda.runtime.ipcCloseMemHandle(start)


def main(path):
    rng = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
    first = rng.standard_normal((1024, 4096), dtype="float32")
    first.tofile(path)
    os.setxattr(path, "user.hmc.dtype", b"float32")
    os.setxattr(path, "user.hmc.shape", b"1024,4096")
    with open_array(path) as array:
        assert np.array_equal(cupy.asnumpy(array), first), "the array is not what was written"
        # From the array to the file: a kernel's stores are there once it ends.
        array *= 2
        array[17, 3] = -1
        cupy.cuda.Device().synchronize()
        first *= 2
        first[17, 3] = -1
        assert np.array_equal(np.fromfile(path, dtype="float32").reshape(first.shape), first), "the file lacks what was stored"
        # From the file to the array.
        second = rng.standard_normal(first.shape, dtype="float32")
        with open(path, "r+b") as file:
            file.write(second.tobytes())
        assert np.array_equal(cupy.asnumpy(array), second), "the array lacks what was written"
        print(f"cupy_export: ok, {array.nbytes} bytes both ways")


if __name__ == "__main__":
    main(sys.argv[1])
