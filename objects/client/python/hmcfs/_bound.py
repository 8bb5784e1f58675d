"""Memory of this process as a file."""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple

from . import _cuda, _dtypes, _errors, _session


class Place(NamedTuple):
    """Where a new file is: its daemon, a function that returns the tree of files, its name there, and its path."""

    socket_path: str
    tree: Callable[[], Any]
    name: str
    path: str


class Bound:
    """A file that is memory of this process, until close() or the end of ``with``, which returns the array."""

    def __init__(self, place: Place, x: Any, memory: dict[str, Any], files: list[int]) -> None:
        """Make memory the content of a new file."""
        self.path, self.array, self._place = place.path, x, place
        self._pid = os.getpid()
        tree = place.tree()
        try:
            with tree.create(place.name) as file:
                self._number = tree.number(file)
        except _errors.Exists as e:
            raise _errors.Exists(f"{self.path}: the file exists; remove it, or bind to another name") from e
        self.closed = False
        try:
            self._bind(tree, memory, files)
        except BaseException:
            self.close()
            raise

    def _bind(self, tree: Any, memory: dict[str, Any], files: list[int]) -> None:
        source = tree.memory(self._place.name)  # the file itself must not be open
        try:
            device = source.attribute("device")
            if not device:
                raise _errors.Unsupported(f"{self.path}: not on a device of hmcfs; give a name such as host/NAME")
            # Host memory can be a file of a simulated device, too.
            if memory["family"] == "host":
                memory["family"] = device.rstrip("0123456789")
            question = {"memory": memory, **source.question}
            # A daemon that has died may have done it before, and is followed by another.
            _session.ask(
                self._place.socket_path, "bind", question, [*source.files, *files], done=lambda: bool(source.attribute("state") == "bound")
            )
        except _errors.HmcfsError as e:
            if isinstance(e, OSError) and e.errno or self.path in str(e):
                raise
            raise type(e)(f"{self.path}: the memory can't become this file: {e}") from e
        finally:
            source.close()

    def __enter__(self) -> Any:
        return self.array

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file: the memory stays this process's."""
        if self.closed or os.getpid() != self._pid:
            return  # the child of a fork leaves it to its parent
        self.closed = True
        tree = self._place.tree()
        try:
            # A restart of the daemon keeps the numbers of files, and may change that of the mount.
            if tree.stat(self._place.name, follow=False).st_ino == self._number:
                tree.remove(self._place.name)
        except _errors.NotFound:
            pass  # it was removed, or moved


def describe(dtype: str, shape: tuple[int, ...], pieces: list[dict[str, Any]], family: str, uuid: str) -> dict[str, Any]:
    """Return what the daemon is told about memory of this process."""
    size = sum(piece["size"] for piece in pieces)
    memory = {"family": family, "device": uuid, "pid": os.getpid(), "size": size, "pieces": pieces}
    if dtype:
        memory.update(dtype=dtype, shape=",".join(map(str, shape)))
    return memory


def cuda(place: Place, x: Any, address: int, dtype: str, shape: tuple[int, ...]) -> Bound:
    """Make memory of a CUDA device the content of a new file; work on it must have ended."""
    size = _dtypes.TYPES[dtype].size if dtype in _dtypes.TYPES else x.dtype.itemsize
    for n in shape:
        size *= n
    if not size:
        raise _errors.Invalid(f"{place.path}: it has no bytes")
    uuid, handle, offset, whole = _cuda.handle_of(x.__dlpack_device__()[1], address)
    piece = {"kind": "ipc", "handle": handle, "offset": offset, "size": size, "allocation": whole}
    return Bound(place, x, describe(dtype, shape, [piece], "cuda", uuid), [])
