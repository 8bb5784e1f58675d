"""Memory of this process that the daemon can reach: shared, and registered with a session."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from typing import Any

from . import _errors
from ._frames import Blobs

# SLOT is the size of a slot for small values, in bytes, and SLOTS their number.
SLOT, SLOTS = 64 << 10, 32


def flat(x: Any, writable: bool, what: str) -> memoryview:
    """Return the bytes of a contiguous buffer."""
    try:
        view = memoryview(x)
    except (TypeError, ValueError):
        view = _tensor(x, what)
    if not view.c_contiguous:
        raise _errors.Invalid(f"{what}: the array is not contiguous; give x.copy()")
    if writable and view.readonly:
        raise _errors.Invalid(f"{what}: the array is read-only, and bytes are to be written to it")
    if view.nbytes == 0:
        raise _errors.Invalid(f"{what}: it has no bytes")
    if view.format == "B" and view.ndim == 1:
        return view
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # a byte order or a type that memoryview does not know
        import numpy

        return memoryview(numpy.asarray(x).reshape(-1).view("u1"))


def _tensor(x: Any, what: str) -> memoryview:
    """Return the elements of a tensor on the processor, or of an array that has no buffer."""
    try:
        if hasattr(x, "__array_interface__"):
            return memoryview(x.reshape(-1).view("u1"))
        if hasattr(x, "numpy"):
            return memoryview(x.numpy())
    except Exception as e:
        raise _errors.Invalid(f"{what}: {e}") from e
    raise _errors.Invalid(f"{what}: {type(x).__name__} has no buffer; give bytes, an array or a tensor in host memory")


def address(view: memoryview) -> int:
    """Return the address of writable bytes."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


class Region:
    """A piece of shared memory, registered with a session until close()."""

    def __init__(self, session: Any, size: int) -> None:
        fd = os.memfd_create("hmcfs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            # The daemon maps memory that cannot shrink, and copies without a system call.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self.map = mmap.mmap(fd, size)
            memory = {
                "family": "host", "pid": os.getpid(), "size": size,
                "pieces": [{"kind": "memfd", "fd": 0, "offset": 0, "size": size}],
            }
            self.number = session.register("host", memory, [fd])
        finally:
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
