"""Memory of CUDA devices, by the driver's library."""

from __future__ import annotations

import ctypes
import os
import threading
import uuid
import weakref
from typing import Any, Callable

from . import _errors

_LIBRARY = "libcuda.so.1"
_POSIX_FD, _ON_DEVICE, _READ_WRITE = 1, 1, 3


class _Access(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
        ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8),
    ]


class Driver:
    """The driver, for one process."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as e:
            raise _errors.Unsupported(f"memory of CUDA devices needs the driver of NVIDIA: {e}; copy the file to host/") from e
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.call("cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        # ordinals are the numbers of the cards here, by their UUIDs as text; they differ from those of the daemon.
        self.ordinals: dict[str, int] = {}
        for n in range(count.value):
            device = ctypes.c_int()
            self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(n))
            self.ordinals[self._uuid(device)] = n

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            reason = (text.value or b"").decode() or "unknown error"
            kind = _errors.NoMemory if code == 2 else _errors.HmcfsError
            raise kind(f"{name}: {reason} ({code})")

    def _uuid(self, device: ctypes.c_int) -> str:
        """Return the UUID of a card, or of a part of one (MIG), which only the newer function knows."""
        whole, part = (ctypes.c_ubyte * 16)(), (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", ctypes.byref(whole), device)
        self.call("cuDeviceGetUuid_v2", ctypes.byref(part), device)
        return ("GPU-" if bytes(whole) == bytes(part) else "MIG-") + str(uuid.UUID(bytes=bytes(part)))

    def _context(self, ordinal: int) -> ctypes.c_void_p:
        """Return the primary context of a card, which this process keeps from then on, as PyTorch does."""
        with self._lock:
            if ordinal not in self._contexts:
                context, device = ctypes.c_void_p(), ctypes.c_int()
                self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._contexts[ordinal] = context
            return self._contexts[ordinal]

    def on(self, ordinal: int, work: Callable[[], Any]) -> Any:
        """Do work in the primary context of a card, that of PyTorch and CuPy, and leave the caller's as it is."""
        if os.getpid() != self.pid:
            raise _errors.Closed("CUDA can't be used after a fork; start a new process, with multiprocessing's spawn")
        outcome: list[Any] = []

        def run() -> None:
            try:
                self.call("cuCtxSetCurrent", self._context(ordinal))
                outcome.append(work())
            except BaseException as e:
                outcome.append(e)

        thread = threading.Thread(target=run, name="hmcfs-cuda")
        thread.start()
        thread.join()
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]


_lock = threading.Lock()
_driver: "Driver | None" = None


def driver() -> Driver:
    """Return the driver of this process."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = Driver()
        return _driver


class Memory:
    """Memory of a card that is mapped into this process. It stays as long as this object, whatever becomes of the daemon."""

    kind = "cuda"

    def __init__(self, path: str, fd: int, card: str, piece: dict[str, Any], held: Any) -> None:
        one = driver()
        found = one.ordinals.get(card)
        if found is None:
            raise _errors.Unsupported(f"{path}: this process does not see the card {card}; check CUDA_VISIBLE_DEVICES, or copy the file to host/")
        self.ordinal: int = found
        self.size = int(piece["size"])
        whole = int(piece.get("allocation") or piece["offset"] + piece["size"])
        base, length, handle = one.on(self.ordinal, lambda: _map(one, self.ordinal, fd, whole))
        self.address = base + int(piece["offset"])
        release = weakref.finalize(self, _release, one, self.ordinal, base, length, handle, held)
        # At the exit of Python other libraries may still use the memory; the driver releases it.
        release.atexit = False

    def keep(self) -> Any:
        """Return what keeps the memory alive."""
        return self


def _map(one: Driver, ordinal: int, fd: int, size: int) -> tuple[int, int, int]:
    handle, base, unit = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    one.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), ctypes.c_int(_POSIX_FD))
    try:
        properties = _Properties()
        one.call("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(properties), handle)
        one.call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(properties), ctypes.c_int(0))
        length = ctypes.c_size_t(-(-size // unit.value) * unit.value)
        one.call("cuMemAddressReserve", ctypes.byref(base), length, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        try:
            one.call("cuMemMap", base, length, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
            try:
                access = _Access(_ON_DEVICE, ordinal, _READ_WRITE)
                one.call("cuMemSetAccess", base, length, ctypes.byref(access), ctypes.c_size_t(1))
            except BaseException:
                one.call("cuMemUnmap", base, length)
                raise
        except BaseException:
            one.call("cuMemAddressFree", base, length)
            raise
    except BaseException:
        one.call("cuMemRelease", handle)
        raise
    return base.value, length.value, handle.value


def _release(one: Driver, ordinal: int, base: int, size: int, handle: int, held: Any) -> None:
    held.end()
    if os.getpid() != one.pid:
        return  # the child of a fork has none of it

    def work() -> None:
        one.call("cuMemUnmap", ctypes.c_uint64(base), ctypes.c_size_t(size))
        one.call("cuMemAddressFree", ctypes.c_uint64(base), ctypes.c_size_t(size))
        one.call("cuMemRelease", ctypes.c_uint64(handle))

    one.on(ordinal, work)


def handle_of(ordinal: int, address: int) -> tuple[str, str, int, int]:
    """Return the card's UUID, the IPC handle of the allocation at an address, the offset in it, and its size."""
    one = driver()
    base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), (ctypes.c_ubyte * 64)()

    def work() -> None:
        one.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        one.call("cuIpcGetMemHandle", ctypes.byref(handle), base)

    try:
        one.on(ordinal, work)
    except _errors.HmcfsError as e:
        raise _errors.Unsupported(
            f"the memory has no IPC handle: {e}; with PyTorch, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
        ) from e
    card = next(text for text, n in one.ordinals.items() if n == ordinal)
    return card, bytes(handle).hex(), address - base.value, size.value
