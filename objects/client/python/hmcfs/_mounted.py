"""The files of a daemon, by their paths on a mount.

What a session does is not seen at a mount until the kernel asks for names again, so programs that have a mount use it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Any, Iterator

from . import _errors


@contextlib.contextmanager
def _named(name: str, other: "str | None" = None) -> Iterator[None]:
    """Make errors of system calls those of this package."""
    try:
        yield
    except OSError as e:
        if isinstance(e, _errors.HmcfsError):
            raise
        raise _errors.of_errno(e.errno or errno.EIO, name, other) from e


class Tree:
    """The files of a mount, with the methods of _remote.Tree."""

    def __init__(self, root: str) -> None:
        self._root = root

    def _at(self, name: str) -> str:
        return os.path.join(self._root, name)

    def memory(self, name: str) -> "Path":
        """Return a file whose memory is opened."""
        return Path(self._at(name))

    def buffered(self, name: str, mode: str) -> Any:
        """Open a file as open() does."""
        with _named(name):
            return open(self._at(name), mode)

    def create(self, name: str) -> Any:
        """Create a file that does not exist yet, and open it to write, without a buffer."""
        with _named(name):
            return open(self._at(name), "xb", buffering=0)

    def number(self, file: Any) -> int:
        """Return the inode number of an open file."""
        return os.fstat(file.fileno()).st_ino

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with _named(name), open(self._at(name), "rb", buffering=0) as f:
            return f.read()

    def write(self, name: str, view: memoryview) -> None:
        """Make bytes the content of a file."""
        with _named(name), open(self._at(name), "wb", buffering=0) as f:
            while view:
                view = view[f.write(view) :]

    def names(self, name: str) -> list[str]:
        """Return the sorted names in a directory."""
        with _named(name):
            return sorted(os.listdir(self._at(name)))

    def stat(self, name: str, follow: bool = True) -> os.stat_result:
        """Describe a file."""
        with _named(name):
            return os.stat(self._at(name), follow_symlinks=follow)

    def mkdir(self, name: str) -> None:
        """Create a directory."""
        with _named(name):
            os.mkdir(self._at(name))

    def remove(self, name: str, directory: bool = False) -> None:
        """Remove a file, or an empty directory; with directory only that."""
        path = self._at(name)
        with _named(name):
            if directory or stat.S_ISDIR(os.lstat(path).st_mode):
                os.rmdir(path)
            else:
                os.remove(path)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name."""
        with _named(source, target):
            os.rename(self._at(source), self._at(target))

    def attribute(self, name: str, attribute: str) -> bytes:
        """Return one extended attribute."""
        with _named(name):
            return os.getxattr(self._at(name), attribute)

    def attribute_names(self, name: str) -> list[str]:
        """Return the names of the extended attributes of a file."""
        with _named(name):
            return os.listxattr(self._at(name))

    def set_attribute(self, name: str, attribute: str, value: "bytes | None") -> None:
        """Set an extended attribute, or remove it."""
        with _named(name):
            if value is None:
                os.removexattr(self._at(name), attribute)
            else:
                os.setxattr(self._at(name), attribute, value)

    def copy(self, source: str, target: str) -> None:
        """Copy a file inside the daemon."""
        with _named(source, target), open(self._at(source), "rb") as from_, open(self._at(target), "wb") as to:
            left = os.fstat(from_.fileno()).st_size
            while left > 0:
                n = os.copy_file_range(from_.fileno(), to.fileno(), left)
                if n == 0:
                    raise _errors.HmcfsError(f"{source} became shorter while it was copied")
                left -= n


class Path:
    """A file whose memory is opened by its path; see _files.open_file."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _named(path):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            os.close(fd)
            raise _errors.of_errno(errno.EISDIR, path)
        self.size = found.st_size
        # question and files name the file for the daemon.
        self.question: dict[str, Any] = {}
        self.files = [fd]

    def attribute(self, name: str) -> str:
        """Return an attribute of the file; "" if it has none."""
        try:
            return os.getxattr(f"/proc/self/fd/{self.files[0]}", "user.hmc." + name).decode()
        except OSError:
            return ""

    def read(self, start: int, size: int) -> bytes:
        """Return bytes of the file."""
        with open(self.path, "rb", buffering=0) as f:
            return os.pread(f.fileno(), size, start)

    def close(self) -> None:
        """End the use of the file's descriptor."""
        os.close(self.files[0])
