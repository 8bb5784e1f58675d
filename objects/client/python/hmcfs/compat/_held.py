"""Memory of the calls of hmcfs.compat.datasystem: blobs of this process, and copies that the daemon can reach."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Sequence

from .. import _errors, _frames
from .._memory import Region
from ._buffer import bytes_of

# _ALIGN is the alignment of blobs in a copy, in bytes.
_ALIGN = 64


def view_of(pointer: Any, size: int, into: bool, key: str) -> memoryview:
    """Return the bytes of a blob: size bytes at an address, or of a buffer."""
    if not isinstance(size, int) or size < 1:
        raise _errors.Invalid(f"a blob of {size} bytes", key)
    if isinstance(pointer, int):
        if pointer == 0:
            raise _errors.Invalid("a blob at address 0; hmcfs allocates no memory for a blob", key)
        return memoryview((ctypes.c_char * size).from_address(pointer)).cast("B")
    view = bytes_of(pointer, into)
    if view.nbytes < size:
        raise _errors.Invalid(f"a blob of {size} bytes in memory of {view.nbytes}", key)
    return view[:size]


class _Held:
    """The copies of one call, in one piece of registered memory that is given back when nothing uses it."""

    def __init__(self, session: Any, size: int, users: int) -> None:
        self.region = Region(session, size)
        self._users = users
        self._lock = threading.Lock()

    def retain(self) -> bool:
        """Add a user; return False if the memory was given back."""
        with self._lock:
            if self._users == 0:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        """End the use by one user."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.region.close()


class Piece:
    """The memory of one key in a call: its blobs, and where their copies are if the daemon does not reach them themselves."""

    def __init__(self, views: Sequence[memoryview], blobs: _frames.Blobs, held: _Held | None, where: Sequence[int]) -> None:
        self.views, self.blobs = views, blobs
        self._held, self._where = held, where

    def fill(self) -> None:
        """Copy the blobs to where the daemon reads them."""
        for at, v in zip(self._where, self.views):
            self._held.region.view[at : at + v.nbytes] = v  # type: ignore[union-attr]

    def empty(self) -> None:
        """Copy the blobs back from where the daemon has written them."""
        for at, v in zip(self._where, self.views):
            v[:] = self._held.region.view[at : at + v.nbytes]  # type: ignore[union-attr]

    def retain(self) -> bool:
        """Use the copies once more; return False if they were given back."""
        return self._held is None or self._held.retain()

    def release(self) -> None:
        """End one use of the copies."""
        if self._held is not None:
            self._held.release()


def stage(fs: Any, views: Sequence[Sequence[memoryview]], starts: Sequence[int]) -> list[Piece]:
    """Return the memory of each key, in one piece of registered memory for all that the daemon does not reach."""
    session = fs._open()[0]
    reached = [[fs._registered(session, v) for v in blobs] for blobs in views]
    size, users, places = 0, 0, []
    for found, blobs in zip(reached, views):
        where = []
        for v in () if all(found) else blobs:
            where.append(size)
            size += -(-v.nbytes // _ALIGN) * _ALIGN
        users += bool(where)
        places.append(where)
    held = _Held(session, size, users) if size else None
    pieces = []
    for found, where, blobs, start in zip(reached, places, views, starts):
        if where and held is not None:
            named = [(held.region.number, at, v.nbytes) for at, v in zip(where, blobs)]
            pieces.append(Piece(blobs, _frames.Blobs("host", named, start), held, where))
        else:
            pieces.append(Piece(blobs, _frames.Blobs("host", [b for one in found for b in one.blobs], start), None, ()))
    return pieces
