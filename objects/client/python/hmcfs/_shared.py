"""Host memory behind a file that is mapped into this process."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import time
import weakref
from typing import Any

from . import _errors

# _PATIENCE is the time, in seconds, for which another process may be truncating a file.
_PATIENCE = 2.0


class Host:
    """Mapped memory. Whatever uses it refers to ``map``, which is never closed: the last reference unmaps it."""

    kind = "host"

    def __init__(self, path: str, fd: int, offset: int, size: int, held: Any) -> None:
        """Map memory of a descriptor, and keep an export of it until it is unmapped."""
        _protect(path, fd, offset, size)
        self._before = offset % mmap.ALLOCATIONGRANULARITY
        self.size = size
        self.map = mmap.mmap(fd, self._before + size, offset=offset - self._before)
        weakref.finalize(self.map, held.end)

    def view(self) -> memoryview:
        """Return the bytes, which keep the mapping alive."""
        return memoryview(self.map)[self._before : self._before + self.size]

    def keep(self) -> Any:
        """Return what keeps the memory alive."""
        return self.map

    def offset(self, start: int) -> int:
        """Return where a byte of the memory is in the mapping."""
        return self._before + start

    @property
    def address(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + self._before


def _protect(path: str, fd: int, offset: int, size: int) -> None:
    """Make sure that every byte stays there: an access to one that is gone would end this process.

    Memory of devices is sealed. A file of the host tier is locked, which lasts as long as its mapping, also
    beyond the death of the daemon: whichever daemon has the file then does not shrink it.
    """
    try:
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return
    except OSError:
        pass  # a file that can't be sealed
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except OSError as e:
            if e.errno != errno.EWOULDBLOCK or time.monotonic() > deadline:
                raise _errors.Busy(f"{path}: another process is truncating it: {e.strerror}; open it again") from e
        time.sleep(0.005)
    state = os.fstat(fd)
    if state.st_size < offset + size:
        raise _errors.Busy(f"{path}: it became shorter while it was opened; open it again")
    if state.st_blocks * 512 == -(-state.st_size // mmap.PAGESIZE) * mmap.PAGESIZE:
        return
    # A hole gets its memory when it is accessed: there must be room for it.
    try:
        os.posix_fallocate(fd, offset, size)
    except OSError as e:
        if e.errno == errno.ENOSPC:
            raise _errors.NoMemory(f"{path}: the file has holes, and its device has no room for their memory; free some, or read the file") from e
        raise _errors.HmcfsError(f"{path}: {e.strerror}") from e
