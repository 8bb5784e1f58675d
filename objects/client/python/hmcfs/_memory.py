"""Memory of this process that the daemon can reach: shared, and registered with a session."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import sys
import threading
import weakref
from typing import Any

from . import _errors
from ._dtypes import TYPES, package
from ._files import Tensor
from ._frames import Blobs

# SLOT is the size of a slot for small values, in bytes, and SLOTS their number.
SLOT, SLOTS = 64 << 10, 32


def flat(x: Any, writable: bool, what: str, copy: bool = False, empty: bool = False) -> memoryview:
    """Return the bytes of a contiguous array, tensor or buffer in host memory, which the caller keeps alive.

    With copy, other arrays are copied. With empty, there may be no bytes.
    """
    view = _view(x, what, copy)
    if not view.c_contiguous:
        if writable:
            raise _errors.Invalid(f"{what}: the array is not contiguous; give a contiguous one, as numpy.empty_like(x) is")
        if not copy:
            raise _errors.Invalid(f"{what}: the array is not contiguous; give copy=True, or x.copy()")
        view = memoryview(view.tobytes())
    if writable and view.readonly:
        raise _errors.Invalid(f"{what}: the array is read-only, and bytes are to be written to it; give x.copy()")
    if view.nbytes == 0:
        if empty:
            return memoryview(b"")
        raise _errors.Invalid(f"{what}: it has no bytes")
    if view.format == "B" and view.ndim == 1:
        return view
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # a byte order or a type that memoryview does not know
        return at(address(view), view.nbytes) if not view.readonly else memoryview(view.tobytes())


def _view(x: Any, what: str, copy: bool) -> memoryview:
    if isinstance(x, Tensor):
        return x._bytes()
    if is_torch(x):
        return _of_torch(x, what, copy)
    if hasattr(x, "__cuda_array_interface__"):
        raise _errors.Invalid(f"{what}: the array is on a CUDA device; give a copy in host memory, or make it a file: fs.bind")
    if getattr(getattr(x, "dtype", None), "hasobject", False):
        raise _errors.Invalid(f"{what}: the elements are Python objects, which have no bytes to share; give x.astype(...)")
    try:
        view = memoryview(x)
    except (TypeError, ValueError) as e:
        if not hasattr(x, "__array_interface__"):
            raise _errors.Invalid(f"{what}: {type(x).__name__} has no buffer; give bytes, an array or a tensor in host memory") from e
        return _interface(x)
    if view.format.strip("<>=@") == "O":
        raise _errors.Invalid(f"{what}: the elements are Python objects, which have no bytes to share; give numbers")
    return view


def _interface(x: Any) -> memoryview:
    """Return the elements of an array whose type, as NumPy's times, has no format in a buffer."""
    array: Any = package("numpy", type(x).__name__).asarray(x)
    return memoryview(array.view(f"V{array.itemsize}"))


def type_and_shape(x: Any) -> tuple[str, tuple[int, ...]]:
    """Return the name of the type of an array's elements, or NumPy's type string, and its shape; "" if x is no array."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or not hasattr(x, "shape"):
        return "", ()
    shape = tuple(int(n) for n in x.shape)
    if is_torch(x):
        return str(dtype).rpartition(".")[2], shape
    if isinstance(x, Tensor):
        return x.dtype, shape
    name, text = str(getattr(dtype, "name", dtype)), str(getattr(dtype, "str", dtype))
    return (name if name in TYPES and not text.startswith(">") else text), shape


def cuda_address(x: Any, what: str) -> int | None:
    """Return the address of an array on a CUDA device; None for any other."""
    if is_torch(x):
        address_there, contiguous = (x.data_ptr(), x.is_contiguous()) if x.is_cuda else (None, True)
    else:
        interface = getattr(x, "__cuda_array_interface__", None)
        if interface is None:
            return None
        address_there, contiguous = interface["data"][0], interface.get("strides") is None
    if not contiguous:
        raise _errors.Invalid(f"{what}: the array is not contiguous; give a contiguous copy of it")
    return address_there


def is_torch(x: Any) -> bool:
    """Report whether x is a tensor of PyTorch, without importing it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _of_torch(x: Any, what: str, copy: bool) -> memoryview:
    """Return the elements of a tensor, of any type, in the order of C."""
    if x.device.type != "cpu":
        raise _errors.Invalid(f"{what}: the tensor is on {x.device}; give x.cpu(), or make it a file: fs.bind")
    if str(x.layout) != "torch.strided" or x.is_quantized:
        raise _errors.Invalid(f"{what}: a tensor of layout {x.layout}, or a quantized one, is no plain memory; give x.to_dense() or x.dequantize()")
    if x.is_conj() or x.is_neg():
        raise _errors.Invalid(f"{what}: the tensor's memory has other values than the tensor; give x.resolve_conj().resolve_neg()")
    if not x.is_contiguous():
        if not copy:
            raise _errors.Invalid(f"{what}: the tensor is not contiguous; give copy=True, or x.contiguous()")
        x = x.detach().contiguous()
        return memoryview(bytes(at(x.data_ptr(), x.numel() * x.element_size())))
    if not x.numel():
        return memoryview(b"")
    return at(x.data_ptr(), x.numel() * x.element_size())


_from_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


def at(start: int, size: int) -> memoryview:
    """Return the bytes at an address, which the caller keeps alive."""
    view: memoryview = _from_memory(start, size, 0x200)  # writable
    return view


def address(view: memoryview) -> int:
    """Return the address of writable bytes."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _map(fd: int, size: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    return mmap.mmap(fd, size)


class Region:
    """A piece of shared memory, registered with a session until close().

    Its descriptor is kept as long as the mapping where it is to be passed on.
    """

    def __init__(self, session: Any, size: int, passed: bool = False) -> None:
        self.fd = -1
        fd = os.memfd_create("hmcfs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            # The daemon maps memory that cannot shrink, and copies without a system call.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self.map = _map(fd, size)
            memory = {
                "family": "host", "pid": os.getpid(), "size": size,
                "pieces": [{"kind": "memfd", "fd": 0, "offset": 0, "size": size}],
            }
            self.number = session.register("host", memory, [fd])
            if passed:
                weakref.finalize(self.map, os.close, fd)
                self.fd, fd = fd, -1
        finally:
            if fd >= 0:
                os.close(fd)
        self.session = session
        self.view = memoryview(self.map)
        self.size = size
        self.start = address(self.view)

    def blobs(self, offset: int, size: int) -> Blobs:
        return Blobs("host", ((self.number, offset, size),))

    def close(self) -> None:
        """Give the memory back. Arrays of it stay usable; keys set from it are lost."""
        try:
            self.session.call("unregister", memory=self.number)
        except _errors.HmcfsError:
            pass  # the session has ended, and its memory with it
        finally:
            self.session.forget(self.number)
        try:
            self.view.release()
            self.map.close()
        except BufferError:
            pass  # an array still uses it; it is unmapped with the array


class Slots:
    """Slots of registered memory for small values."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._free = list(range(SLOTS))

    def take(self, size: int) -> "Slot":
        """Return memory of a size; the caller gives it back."""
        if size <= SLOT:
            with self._lock:
                if self._region is None:
                    self._region = Region(self._session, SLOT * SLOTS)
                if self._free:
                    return Slot(self, self._region, self._free.pop(), size)
        return Slot(None, Region(self._session, size), 0, size)

    def give(self, index: int) -> None:
        with self._lock:
            self._free.append(index)


class Slot:
    """Registered memory in use by one call."""

    def __init__(self, slots: Slots | None, region: Region, index: int, size: int) -> None:
        self._slots, self._region, self._index = slots, region, index
        at = index * SLOT if slots else 0
        self.view = region.view[at : at + size]
        self.blobs = region.blobs(at, size)

    def __enter__(self) -> "Slot":
        return self

    def __exit__(self, *_: object) -> None:
        self.view.release()
        if self._slots is not None:
            self._slots.give(self._index)
        else:
            self._region.close()
