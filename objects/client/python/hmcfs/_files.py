"""Files whose memory this process maps, and the tensors in them."""

from __future__ import annotations

import ast
import json
import mmap
import os
import weakref
from typing import Any, Iterator

from . import _errors, _session

# The element sizes, in bytes, of the types whose files can be arrays, by their names in user.hmc.dtype.
_NUMPY = {
    "bool": "?", "uint8": "u1", "int8": "i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4",
    "uint64": "<u8", "int64": "<i8", "float16": "<f2", "float32": "<f4", "float64": "<f8",
    "complex64": "<c8", "complex128": "<c16",
}
_SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64",
}


def _attribute(fd: int, name: str) -> str:
    try:
        return os.getxattr(f"/proc/self/fd/{fd}", "user.hmc." + name).decode()
    except OSError:
        return ""


class File:
    """The memory behind a file of a mount: nothing is copied.

    ``memoryview(f)`` and ``f.numpy()`` are the bytes of the file themselves: a change of one is a change
    of the other. They keep the mapping alive after close(). The file cannot be truncated as long as it is
    open, or one of them exists.
    """

    def __init__(self, socket_path: str, path: str) -> None:
        self.path = path
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            self.size = os.fstat(fd).st_size
            self.device = _attribute(fd, "device")
            self.state = _attribute(fd, "state")
            self.dtype = _attribute(fd, "dtype")
            shape = _attribute(fd, "shape")
            self.shape = tuple(int(n) for n in shape.split(",") if n) if shape else ()
            if self.state == "lost":
                raise _errors.Lost(f"{path}: its content is lost; remove the file and write it again")
            self._header = b""
            if self.size == 0:
                self.map: mmap.mmap | None = None
                return
            question = {"kind": "memfd", "hold": True}
            try:
                reply, files, held = _session.ask_held(socket_path, "/v1/export", question, [fd])
            except _errors.Unsupported as e:
                raise _errors.Unsupported(f"{path}: memory of {self.device} is not host memory; read the file, or copy it to host/: {e}") from e
        finally:
            os.close(fd)
        try:
            piece = reply["memory"]["pieces"][0]
            self._header = _generated(path, self.size - piece["size"])
            self.size = min(self.size, piece["size"])
            before = piece["offset"] % mmap.ALLOCATIONGRANULARITY
            self.map = mmap.mmap(files[0], before + piece["size"], offset=piece["offset"] - before)
            self._before = before
        except BaseException:
            held.close()
            raise
        finally:
            for f in files:
                os.close(f)
        # The export lasts as long as the mapping, which arrays keep alive: the memory of a file that
        # was truncated must not be accessed.
        weakref.finalize(self.map, held.close)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the use of the file. Arrays that were made from it stay valid, and keep the file in use."""
        self.map = None

    def memory(self) -> memoryview:
        """Return the bytes of the file."""
        if not self.size:
            return memoryview(b"")
        if self.map is None:
            raise _errors.Closed(f"{self.path}: the file is closed")
        return memoryview(self.map)[self._before : self._before + self.size]

    def numpy(self) -> Any:
        """Return the file as an array: of a .npy file its array, else of the file's dtype and shape."""
        view = self.memory()
        dtype = _NUMPY.get(self.dtype, self.dtype or "u1")
        if self._header:
            _, shape, fortran, _ = _npy(memoryview(self._header))
            return _array(view, dtype, shape, fortran)
        if bytes(view[:6]) == b"\x93NUMPY":
            dtype, shape, fortran, start = _npy(view)
            return _array(view[start:], dtype, shape, fortran)
        return _array(view, dtype, self.shape or None, False)

    def torch(self) -> Any:
        """Return the file as a tensor that shares its memory."""
        import torch

        return torch.from_numpy(self.numpy())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=bool(copy))

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Return the tensors of a safetensors file by name, as arrays that share its memory."""
        view = self.memory()
        if self.size < 8 or int.from_bytes(view[:8], "little") > self.size - 8:
            raise _errors.Invalid(f"{self.path}: not a safetensors file")
        start = 8 + int.from_bytes(view[:8], "little")
        try:
            header = json.loads(bytes(view[8:start]))
        except ValueError as e:
            raise _errors.Invalid(f"{self.path}: not a safetensors file: {e}") from e
        for name, one in header.items():
            if name == "__metadata__":
                continue
            begin, end = one["data_offsets"]
            dtype = _SAFETENSORS.get(one["dtype"])
            if dtype is None:
                raise _errors.Unsupported(f"{self.path}: NumPy has no type for {one['dtype']}, the type of {name}")
            yield name, _array(view[start + begin : start + end], _NUMPY[dtype], tuple(one["shape"]), False)


def _generated(path: str, size: int) -> bytes:
    """Return the header that precedes the bytes of one tensor of a file; empty for any other file."""
    if size < 10:
        return b""
    with open(path, "rb") as f:
        header = f.read(size)
    try:
        return header if header[:6] == b"\x93NUMPY" and _npy(memoryview(header))[3] == size else b""
    except (ValueError, SyntaxError, KeyError):
        return b""


def _npy(view: memoryview) -> tuple[str, tuple[int, ...], bool, int]:
    wide = view[6] > 1
    size = int.from_bytes(view[8 : 12 if wide else 10], "little")
    start = (12 if wide else 10) + size
    header = ast.literal_eval(bytes(view[start - size : start]).decode("latin-1"))
    return header["descr"], tuple(header["shape"]), bool(header["fortran_order"]), start


def _array(view: memoryview, dtype: str, shape: tuple[int, ...] | None, fortran: bool) -> Any:
    import numpy

    try:
        kind = numpy.dtype(dtype)
    except TypeError as e:
        raise _errors.Unsupported(f"NumPy has no type {dtype}; use memory()") from e
    array = numpy.frombuffer(view, kind, len(view) // kind.itemsize if shape is None else _count(shape))
    return array if shape is None else array.reshape(shape, order="F" if fortran else "C")


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for one in shape:
        n *= one
    return n
