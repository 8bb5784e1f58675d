"""Files whose memory this process uses, and the tensors in them."""

from __future__ import annotations

import ast
import functools
import json
import os
import sys
from typing import Any, Callable, Iterator

from . import _cuda, _dlpack, _dtypes, _errors, _session
from ._shared import Host

# _MAX_NPY and _MAX_SAFETENSORS are the most bytes of a header.
_MAX_NPY, _MAX_SAFETENSORS = 10_000, 100_000_000
# _MAGIC is what .npy files begin with.
_MAGIC = b"\x93NUMPY"


class Tensor:
    """Elements in the memory of a file: of one type, one behind the other.

    NumPy, PyTorch and CuPy take it as it is: ``numpy.asarray(t)``, ``torch.from_dlpack(t)``, ``cupy.asarray(t)``.
    """

    __hash__ = object.__hash__
    path: str
    device: str
    #: The name of the type of the elements, as in NumPy and PyTorch.
    dtype: str
    shape: tuple[int, ...]

    def _set(self, path: str, device: str, memory: Any, start: int, kind: "_Kind") -> None:
        self.path, self.device = path, device
        self.dtype, self.shape = kind.dtype, kind.shape
        self._memory, self._start, self._kind = memory, start, kind

    def __repr__(self) -> str:
        return f"<hmcfs.{type(self).__name__} {self.path} {self.dtype} {self.shape} on {self.device}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{self.path}: memory can't be pickled; pass the path, and open the file there")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __bool__(self) -> bool:
        return True

    def _no_sequence(self, *_: Any) -> Any:
        raise TypeError(f"{self.path}: a file has no items; use numpy(), torch() or memory()")

    # A class of the standard library behind a file (see _class) would have them.
    __len__ = __iter__ = __getitem__ = __setitem__ = _no_sequence

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return _count(self.shape) * self._kind.size

    def _open(self) -> Any:
        """Return the memory; the file must be open."""
        if self._memory is None:
            raise _errors.Closed(f"{self.path}: the file is closed; open it again")
        return self._memory

    def _used(self, kind: str, how: str) -> Any:
        """Return the memory, which must be of a kind."""
        if self._open().kind != kind:
            raise _errors.Unsupported(f"{self.path}: its memory is on {self.device}, {how}")
        return self._memory

    def _bytes(self) -> memoryview:
        """Return the bytes of the elements."""
        memory = self._used("host", "not the host's; read the file, or copy it to host/")
        view: memoryview = memory.view()
        return view[self._start : self._start + self.nbytes]

    def _strides(self) -> "tuple[int, ...] | None":
        """Return the strides, in bytes, of an array in Fortran's order; None for C's."""
        if not self._kind.fortran:
            return None
        strides, step = [], self._kind.size
        for n in self.shape:
            strides.append(step)
            step *= n
        return tuple(strides)

    def numpy(self) -> Any:
        """Return an array of this memory."""
        self._used("host", "not the host's; use torch() or cupy(), or copy the file to host/")
        kind = _dtypes.in_numpy(self._kind.descr, self.path)
        import numpy

        if not self.nbytes:
            return numpy.empty(self.shape, kind)
        return numpy.frombuffer(self._bytes(), kind).reshape(self.shape, order="F" if self._kind.fortran else "C")

    def torch(self) -> Any:
        """Return a tensor of this memory."""
        memory = self._open()
        torch = _dtypes.package("torch", self.path, ", or use numpy() or memory()")
        if memory.kind == "cuda":
            return torch.from_dlpack(self)
        kind = _dtypes.in_torch(self.dtype, self.path)
        if not self.nbytes:
            return torch.empty(self.shape, dtype=kind)
        flat = torch.frombuffer(self._bytes(), dtype=kind)
        if self._kind.fortran:
            return flat.reshape(self.shape[::-1]).permute(*range(len(self.shape))[::-1])
        return flat.reshape(self.shape)

    def cupy(self) -> Any:
        """Return an array of this memory, which must be a CUDA device's."""
        self._used("cuda", "not a CUDA device's; copy the file to cudaN/, or use cupy.asarray(t.numpy())")
        try:
            import cupy
        except ImportError as e:
            raise _errors.Unsupported(f"{self.path}: CuPy is not installed; use torch()") from e
        return cupy.asarray(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        return array if dtype is None and not copy else array.astype(dtype, copy=bool(copy))

    def __buffer__(self, flags: int) -> memoryview:  # from Python 3.12 on
        if self._kind.ctype is not None and not self._kind.fortran:
            if not self.nbytes:
                return memoryview(_array_of(self._kind.ctype, self.shape)())
            view = self._bytes()
            return view if self.dtype == "uint8" and len(self.shape) == 1 else view.cast(self._kind.ctype._type_, self.shape)
        return memoryview(self.numpy())

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._memory is None or self._memory.kind != "host":
            raise AttributeError("__array_interface__ is for host memory")
        kind = _dtypes.in_numpy(self._kind.descr, self.path)
        return {
            "version": 3, "shape": self.shape, "typestr": kind.str, "descr": kind.descr, "strides": self._strides(),
            "data": self._memory.keep(), "offset": self._memory.offset(self._start),
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._memory is None or self._memory.kind != "cuda":
            raise AttributeError("__cuda_array_interface__ is for memory of CUDA devices")
        self._lent = True  # arrays of it keep this object, which keeps the memory from now on
        return {
            "version": 3, "shape": self.shape, "typestr": _dtypes.TYPES[self.dtype].descr if self.dtype in _dtypes.TYPES else self.dtype,
            "strides": self._strides(), "data": (self._memory.address + self._start if self.nbytes else 0, False),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        memory = self._open()
        return (_dlpack.CUDA, memory.ordinal) if memory.kind == "cuda" else (_dlpack.CPU, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        device = self.__dlpack_device__()
        if copy or dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"{self.path}: its memory is on {self.device}, and is not copied; copy the file, or the tensor")
        one = _dtypes.TYPES.get(self.dtype)
        if one is None:
            raise BufferError(f"{self.path}: DLPack has no type {self.dtype}; use numpy() or memory()")
        memory = self._memory
        return _dlpack.capsule(memory.keep(), memory.address + self._start, one.dlpack, one.size, self.shape, self._strides(), device, max_version)


class _Kind:
    """What a header says of elements."""

    def __init__(self, descr: Any, shape: tuple[int, ...], path: str, fortran: bool = False) -> None:
        one = _dtypes.TYPES.get(descr) if isinstance(descr, str) else None
        self.descr, self.shape = descr, shape
        self.dtype = one.name if one else _dtypes.of_descr(descr)
        self.ctype = one.ctype if one else None
        self.size: int = one.size if one else _dtypes.in_numpy(descr, path).itemsize
        self.fortran = fortran and len(shape) > 1
        if any(not isinstance(n, int) or n < 0 for n in shape):
            raise _errors.Invalid(f"{path}: a shape {shape}")


class File(Tensor):
    """The memory behind a file: nothing is copied.

    ``memoryview(f)``, ``f.numpy()``, ``f.torch()`` and ``f.memory()`` are the bytes of the file themselves: a
    change of one is a change of the other. They keep the memory alive after close(). The file cannot be
    truncated as long as it is open, or one of them exists.
    """

    size: int
    state: str
    _is_npy: bool
    # _read_part returns bytes of the file, by where they start and their number.
    _read_part: Callable[[int, int], bytes]

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the use of the file. Arrays that were made from it stay valid, and keep the file in use."""
        if getattr(self, "_lent", False):
            self._kept = self._memory
        self._memory = None

    def memory(self) -> memoryview:
        """Return all bytes of the file, with its header; of a tensor of a file those of its elements."""
        view: memoryview = self._used("host", "not the host's; read the file, or copy it to host/").view()
        return view

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Return the tensors of a safetensors file by name, as arrays that share its memory."""
        for name, one in self._parts():
            yield name, one.numpy()

    def _parts(self) -> Iterator[tuple[str, Tensor]]:
        """Return the tensors of a safetensors file by name."""
        memory = self._open()
        for name, kind, start in self._named:
            one = Tensor()
            one._set(f"{self.path}, {name}", self.device, memory, start, kind)
            yield name, one

    @property
    def _named(self) -> list[tuple[str, _Kind, int]]:
        """Return what the header says of each tensor, and where the tensor begins."""
        header, start = self._header
        found = []
        for name, one in header.items():
            if name == "__metadata__":
                continue
            try:
                dtype, shape, (begin, end) = one["dtype"], tuple(one["shape"]), one["data_offsets"]
                known = _dtypes.SAFETENSORS.get(dtype)
                good = all(type(n) is int and n >= 0 for n in (*shape, begin, end)) and begin <= end <= self.size - start
            except (TypeError, KeyError, ValueError) as e:
                raise _errors.Invalid(f"{self.path}: not a safetensors file: {name}: {e}") from e
            if known is None:
                raise _errors.Unsupported(f"{self.path}: there are no arrays of {dtype}, the type of {name}; use memory()")
            if not good or end - begin != _count(shape) * known.size:
                raise _errors.Invalid(f"{self.path}: {name} is at {begin} to {end}, which does not fit its shape {shape}, or the file")
            found.append((name, _Kind(known.name, shape, self.path), start + begin))
        return found

    @functools.cached_property
    def _header(self) -> tuple[dict[str, Any], int]:
        """Return the header of a safetensors file, and where its data begin."""
        size = int.from_bytes(self._read(0, 8), "little") if self.size >= 8 else _MAX_SAFETENSORS
        if size > min(self.size - 8, _MAX_SAFETENSORS):
            raise _errors.Invalid(f"{self.path}: not a safetensors file")
        try:
            header = json.loads(self._read(8, size))
        except (ValueError, RecursionError) as e:
            raise _errors.Invalid(f"{self.path}: not a safetensors file: {e}") from e
        if not isinstance(header, dict):
            raise _errors.Invalid(f"{self.path}: not a safetensors file: its header is no object")
        return header, 8 + size

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of a safetensors file."""
        return dict(self._header[0].get("__metadata__") or {})

    def _read(self, start: int, size: int) -> bytes:
        if self._memory is not None and self._memory.kind == "host":
            view: memoryview = self._memory.view()
            return view[start : start + size].tobytes()
        return self._read_part(start, size)


def open_file(socket_path: str, source: Any) -> File:
    """Open the memory of a file, which is closed: a Path of a mount, or a Name of a daemon."""
    path, size = source.path, source.size
    try:
        device = source.attribute("device")
        memory, dtype, shape = _memory_of(socket_path, source, device)
        state = "live" if size else source.attribute("state")
    finally:
        source.close()
    before = size - memory.size if size else 0
    first = _first(memory, source.read, before) if size else b""
    kind, start = _kind_of(first, path, memory.size, dtype, shape)
    if before > 0 and start:
        start = 0  # a tensor of a file has a header that is not in the memory
    if start + _count(kind.shape) * kind.size > memory.size:
        raise _errors.Invalid(f"{path}: {kind.dtype} {kind.shape} is longer than the file")
    file = _make(memory, kind, start)
    file._set(path, device, memory, start, kind)
    file._read_part = source.read
    file.size, file.state, file._is_npy = memory.size, state, first[:6] == _MAGIC
    return file


def _memory_of(socket_path: str, source: Any, device: str) -> tuple[Any, str, str]:
    """Return the memory of a file, and its dtype and shape if it has them."""
    path = source.path
    if source.size == 0:
        return _Nothing(), "", ""
    cuda = device.startswith("cuda")
    question = {"kind": "vmm-fd" if cuda else "memfd", **source.question}
    try:
        said, files, held = _session.export(socket_path, question, source.files)
    except _errors.Unsupported as e:
        raise _errors.Unsupported(f"{path}: memory of {device} can't be opened here; read the file, or copy it to host/: {e}") from e
    except _errors.Lost as e:
        raise _errors.Lost(f"{path}: its content is lost; remove the file and write it again: {e}") from e
    except _errors.HmcfsError as e:
        raise type(e)(f"{path}: its memory can't be opened: {e}") from e
    try:
        (piece,) = said["pieces"]
        if cuda:
            memory: Any = _cuda.Memory(path, files[0], said.get("device", ""), piece, held)
        else:
            memory = Host(path, files[0], piece["offset"], piece["size"], held)
        return memory, said.get("dtype", ""), said.get("shape", "")
    except BaseException:
        held.end()
        raise
    finally:
        for f in files:
            os.close(f)


def _kind_of(first: bytes, path: str, size: int, dtype: str, shape: str) -> tuple[_Kind, int]:
    """Return what is in a file, by its first bytes and its attributes, and where it begins."""
    if first[:6] == _MAGIC:
        return _npy(first, path, dtype)
    try:
        one = _Kind(dtype or "uint8", (), path)
    except _errors.Unsupported:  # a type that only the device's programs have
        one = _Kind("uint8", (), path)
        shape = ""
    return _Kind(one.descr, tuple(int(n) for n in shape.split(",")) if shape else (size // one.size,), path), 0


class _Nothing:
    """The memory of an empty file."""

    kind, size, address, map = "host", 0, 0, b""

    @staticmethod
    def view() -> memoryview:
        return memoryview(bytearray())

    @staticmethod
    def keep() -> Any:
        return bytearray()

    @staticmethod
    def offset(start: int) -> int:
        return start


def _first(memory: Any, read: Callable[[int, int], bytes], before: int) -> bytes:
    """Return the first bytes of a file, with the header of an array, of which before are not in the memory."""
    if memory.kind == "host" and before <= 0:
        view: memoryview = memory.view()
        return view[: _MAX_NPY + 12].tobytes()
    return read(0, _MAX_NPY + 12)


def _npy(first: bytes, path: str, named: str) -> tuple[_Kind, int]:
    """Return what the header of an array says, and where the array begins."""
    try:
        wide = first[6] > 1
        size = int.from_bytes(first[8 : 12 if wide else 10], "little")
        start = (12 if wide else 10) + size
        if size > _MAX_NPY or start > len(first):
            raise ValueError(f"a header of {size} bytes")
        header = ast.literal_eval(first[start - size : start].decode("utf-8" if first[6] > 2 else "latin-1"))
        descr, shape, fortran = header["descr"], tuple(header["shape"]), bool(header["fortran_order"])
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, RecursionError, MemoryError) as e:
        raise _errors.Invalid(f"{path}: not a .npy file: {e}") from e
    one = _dtypes.TYPES.get(named)
    if one is not None and one.descr.lstrip("<|") == str(descr).lstrip("<|"):  # NumPy has no name for it
        descr = named
    elif isinstance(descr, str):
        descr = _dtypes.of_descr(descr)
    return _Kind(descr, shape, path, fortran), start


def _make(memory: Any, kind: _Kind, start: int) -> File:
    """Return a file that memoryview() takes."""
    if sys.version_info >= (3, 12) or memory.kind != "host" or kind.ctype is None or kind.fortran:
        return File()
    one = _class(kind.ctype, kind.shape)
    return one.from_buffer(memory.map, memory.offset(start)) if memory.map else one()  # type: ignore[attr-defined, no-any-return]


@functools.lru_cache(maxsize=256)
def _class(ctype: Any, shape: tuple[int, ...]) -> type[File]:
    """Return a class of files that have the buffer of an array: before 3.12 Python's own classes have none."""
    ctype = _array_of(ctype, shape)
    return type(ctype)("File", (File, ctype), {"__module__": "hmcfs", "__doc__": File.__doc__})  # type: ignore[no-any-return]


def _array_of(ctype: Any, shape: tuple[int, ...]) -> Any:
    for n in reversed(shape):
        ctype = ctype * n
    return ctype


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for one in shape:
        n *= one
    return n
