"""Memory of this process as a file."""

from __future__ import annotations

import os
from typing import Any

from . import _cuda, _dtypes, _errors, _session


class Bound:
    """A file that is memory of this process, until close() or the end of ``with``, which returns the array."""

    def __init__(self, socket_path: str, path: str, x: Any, memory: dict[str, Any], files: list[int]) -> None:
        """Make memory the content of a new file."""
        self.path, self.array = path, x
        self._pid = os.getpid()
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except FileExistsError as e:
            raise _errors.Exists(f"{path}: the file exists; remove it, or bind to another name") from e
        self._file = os.fstat(fd)
        os.close(fd)
        self.closed = False
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)  # the file itself must not be open
            try:
                device = os.getxattr(f"/proc/self/fd/{fd}", "user.hmc.device").decode()
                # Host memory can be a file of a simulated device, too.
                if memory["family"] == "host":
                    memory["family"] = device.rstrip("0123456789")
                _session.ask(socket_path, "/v1/bind", {"memory": memory, "descriptors": len(files)}, [fd, *files])
            except OSError as e:
                if isinstance(e, _errors.HmcfsError):
                    raise
                raise _errors.Unsupported(f"{path}: not on a device of an hmcfs mount: {e.strerror}") from e
            finally:
                os.close(fd)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Any:
        return self.array

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file: the memory stays this process's."""
        if self.closed or os.getpid() != self._pid:
            return  # the child of a fork leaves it to its parent
        self.closed = True
        try:
            # A restart of the daemon keeps the numbers of files, and may change that of the mount.
            if os.lstat(self.path).st_ino == self._file.st_ino:
                os.unlink(self.path)
        except FileNotFoundError:
            pass  # it was removed, or moved
        except OSError as e:
            raise _errors.of_os(e, self.path) from e


def describe(dtype: str, shape: tuple[int, ...], pieces: list[dict[str, Any]], family: str, uuid: str) -> dict[str, Any]:
    """Return what the daemon is told about memory of this process."""
    size = sum(piece["size"] for piece in pieces)
    memory = {"family": family, "device": uuid, "pid": os.getpid(), "size": size, "pieces": pieces}
    if dtype:
        memory.update(dtype=dtype, shape=",".join(map(str, shape)))
    return memory


def cuda(socket_path: str, path: str, x: Any, address: int, dtype: str, shape: tuple[int, ...]) -> Bound:
    """Make memory of a CUDA device the content of a new file; work on it must have ended."""
    size = _dtypes.TYPES[dtype].size if dtype in _dtypes.TYPES else x.dtype.itemsize
    for n in shape:
        size *= n
    if not size:
        raise _errors.Invalid(f"{path}: it has no bytes")
    uuid, handle, offset, whole = _cuda.handle_of(x.__dlpack_device__()[1], address)
    piece = {"kind": "ipc", "handle": handle, "offset": offset, "size": size, "allocation": whole}
    return Bound(socket_path, path, x, describe(dtype, shape, [piece], "cuda", uuid), [])
