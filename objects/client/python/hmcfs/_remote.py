"""The files of a daemon, over its session."""

from __future__ import annotations

import errno
import io
import os
import stat
import warnings
from typing import Any, Callable, Iterator

from . import _errors, _frames

# _PIECE is the most bytes that are moved by one call, of what has no registered memory.
_PIECE = _frames.MAX_FILE_DATA
# _AT_ONCE is the most bytes of a file that are read by one call to registered memory.
_AT_ONCE = 8 << 20
_MODES = {
    "r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}


class Tree:
    """The tree of files of a daemon. Names are relative to its root, and the root's is "."."""

    def __init__(self, session: Any, slots: Any, registered: Callable[[Any, memoryview], "_frames.Blobs | None"]) -> None:
        """Use a session, and its memory, which registered finds for bytes."""
        self.session, self._slots, self._registered = session, slots, registered

    def ask(self, verb: str, name: str, other: str = "", data: "bytes | memoryview" = b"", **fields: Any) -> _frames.FileAnswer:
        """Make a call about a name, or a handle that was opened by it, and raise its error."""
        names = os.fsencode(name) if "handle" not in fields else b"", os.fsencode(other)
        for one in names:
            if len(one) > 4096:
                raise _errors.of_errno(errno.ENAMETOOLONG, name)
        answer: _frames.FileAnswer = self.session.file(verb, *names, data, **fields)
        if answer.errno:
            said = bytes(answer.data).decode(errors="replace") if verb == "set-attribute" else ""
            raise _errors.of_errno(answer.errno, name, other if verb in ("rename", "copy") else None, said)
        return answer

    def open(self, name: str, mode: str = "rb") -> "Open":
        """Open a file as open() does; only its bytes, without a buffer."""
        kind, more = mode.replace("b", "", 1)[:1], mode.replace("b", "", 1)[1:]
        if kind not in _MODES or more not in ("", "+"):
            raise _errors.Invalid(f"{name}: {mode!r} is no mode of bytes; give rb, wb, ab, xb, or one with +")
        flags = _MODES[kind]
        if more:
            flags = flags & ~os.O_ACCMODE | os.O_RDWR
        answer = self.ask("open", name, flags=flags, mode=0o666 & ~_umask())
        return Open(self, name, answer.handle, flags)

    def memory(self, name: str) -> "Name":
        """Return a file whose memory is opened."""
        return Name(self, name)

    def buffered(self, name: str, mode: str) -> Any:
        """Open a file as open() does. What is in its buffer is written when it is closed."""
        raw = self.open(name, mode)
        if not raw.writable():
            return _Reader(raw)
        return _Both(raw) if raw.readable() else _Writer(raw)

    def create(self, name: str) -> "Open":
        """Create a file that does not exist yet, and open it to write, without a buffer."""
        return self.open(name, "xb")

    def number(self, file: "Open") -> int:
        """Return the inode number of an open file."""
        return file.stat().st_ino

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with self.open(name) as f:
            size = f.stat().st_size
            if size <= _PIECE:
                return f.readall()
            with self._slots.take(min(size, _AT_ONCE)) as slot:
                return b"".join(f.through(slot))

    def write(self, name: str, view: memoryview) -> None:
        """Make bytes the content of a file."""
        blobs = self._registered(self.session, view)
        with self.open(name, "wb") as f:
            if blobs is not None:
                f.write_memory(*blobs.blobs[0])
                return
            while view:
                view = view[f.write(view) :]

    def names(self, name: str) -> list[str]:
        """Return the sorted names in a directory."""
        handle = self.ask("open", name, flags=os.O_RDONLY | os.O_DIRECTORY).handle
        try:
            return sorted(self._entries(name, handle))
        finally:
            self.close(name, handle)

    def _entries(self, name: str, handle: int) -> Iterator[str]:
        cookie, more = 0, True
        while more:
            more = False
            for cookie, entry in _frames.entries(self.ask("list", name, handle=handle, offset=cookie).data):
                more = True
                yield entry

    def close(self, name: str, handle: int) -> None:
        """Close a handle."""
        self.ask("close", name, handle=handle)

    def stat(self, name: str, follow: bool = True) -> os.stat_result:
        """Describe a file."""
        return _frames.stat(self.ask("stat", name, flags=int(not follow)).data)

    def attribute_names(self, name: str) -> list[str]:
        """Return the names of the extended attributes of a file."""
        return [os.fsdecode(one) for one in self.ask("list-attributes", name).data.split(b"\0") if one]

    def set_attribute(self, name: str, attribute: str, value: "bytes | None") -> None:
        """Set an extended attribute, or remove it."""
        if value is None:
            self.ask("remove-attribute", name, attribute)
        else:
            self.ask("set-attribute", name, attribute, value)

    def remove(self, name: str, directory: bool = False) -> None:
        """Remove a file, or an empty directory; with directory only that."""
        self.ask("remove", name, flags=int(directory))

    def rename(self, source: str, target: str) -> None:
        """Give a file another name."""
        self.ask("rename", source, target)

    def attribute(self, name: str, attribute: str) -> bytes:
        """Return one extended attribute."""
        return self.ask("get-attribute", name, attribute).data

    def mkdir(self, name: str) -> None:
        """Create a directory."""
        self.ask("mkdir", name, mode=0o777 & ~_umask())

    def copy(self, source: str, target: str) -> None:
        """Copy a file inside the daemon."""
        self.ask("copy", source, target, mode=_umask())


class Name:
    """A file whose memory is opened by its name; see _files.open_file."""

    def __init__(self, files: Tree, name: str) -> None:
        self.path, self._tree = name, files
        found = files.stat(name)
        if stat.S_ISDIR(found.st_mode):
            raise _errors.of_errno(errno.EISDIR, name)
        self.size = found.st_size
        self.question, self.files = {"path": name}, []  # type: tuple[dict[str, Any], list[int]]

    def attribute(self, name: str) -> str:
        """Return an attribute of the file; "" if it has none."""
        try:
            return self._tree.attribute(self.path, "user.hmc." + name).decode()
        except OSError:
            return ""

    def read(self, start: int, size: int) -> bytes:
        """Return bytes of the file."""
        parts = []
        with self._tree.open(self.path) as f:
            while size > 0:
                data = f.pread(size, start)
                if not data:
                    break
                parts.append(data)
                start, size = start + len(data), size - len(data)
        return b"".join(parts)

    def close(self) -> None:
        """End the use of the name."""


class Open(io.RawIOBase):
    """An open file. Its methods may be called from any thread, except those that use the position."""

    def __init__(self, files: Tree, name: str, handle: int, flags: int) -> None:
        self._files, self.name, self._handle, self._flags, self._at = files, name, handle, flags, 0

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._files.close(self.name, self._handle)

    def __del__(self) -> None:
        # It may come in the middle of another call of this thread, so that an answer can't be waited for.
        if not self.closed:
            warnings.warn(f"{self.name}: the file was not closed, and what was not written yet is lost", ResourceWarning, stacklevel=2)
            self._files.session.close_later(self._handle)

    def readable(self) -> bool:
        return self._flags & os.O_ACCMODE != os.O_WRONLY

    def writable(self) -> bool:
        return self._flags & os.O_ACCMODE != os.O_RDONLY

    def seekable(self) -> bool:
        return True

    def _ask(self, verb: str, data: "bytes | memoryview" = b"", **fields: Any) -> _frames.FileAnswer:
        if self.closed:
            raise _errors.Closed(f"{self.name}: the file is closed; open it again")
        return self._files.ask(verb, self.name, "", data, handle=self._handle, **fields)

    def stat(self) -> os.stat_result:
        """Describe the file."""
        return _frames.stat(self._ask("stat").data)

    def pread(self, size: int, offset: int) -> bytes:
        """Return bytes at an offset: fewer only at the end, or if there are more than one call moves."""
        return self._ask("read", offset=offset, size=min(size, _PIECE)).data

    def through(self, slot: Any) -> Iterator[bytes]:
        """Return the bytes from the start to the end, in pieces, through registered memory."""
        (memory, start, size), = slot.blobs.blobs
        offset = 0
        while True:
            n = self._ask("read", offset=offset, size=size, memory=(memory, start)).n
            if n == 0:
                return
            yield bytes(slot.view[:n])
            offset += n

    def write_memory(self, memory: int, start: int, size: int) -> None:
        """Write registered memory at the start of the file."""
        n = self._ask("write", size=size, memory=(memory, start)).n
        if n < size:
            raise _errors.of_errno(errno.ENOSPC, self.name)

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            data = self.pread(len(view), self._at)
            view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        """Return the bytes up to the end."""
        parts: list[bytes] = []
        while True:
            data = self.pread(_PIECE, self._at)
            if not data:
                return b"".join(parts)
            self._at += len(data)
            parts.append(data)

    def write(self, data: Any) -> int:
        """Write bytes at the position, and return how many: one call has a limit."""
        with memoryview(data).cast("B") as view:
            n = self._ask("write", view[:_PIECE], offset=self._at).n
            if view and not n:
                raise _errors.of_errno(errno.ENOSPC, self.name)
        self._at = self.stat().st_size if self._flags & os.O_APPEND else self._at + n
        return n

    def seek(self, offset: int, whence: int = 0) -> int:
        start = 0 if whence == 0 else self._at if whence == 1 else self.stat().st_size
        if whence not in (0, 1, 2) or not 0 <= start + offset < 1 << 63:
            raise _errors.of_errno(errno.EINVAL, self.name)
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at


def _leave(_: Any) -> None:
    """Leave a file that was not closed to Open, which makes no call that waits."""


class _Reader(io.BufferedReader):
    __del__ = _leave


class _Writer(io.BufferedWriter):
    __del__ = _leave


class _Both(io.BufferedRandom):
    __del__ = _leave


def _umask() -> int:
    """Return the umask of this process, which can't be read otherwise without changing it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("Umask:"):
                return int(line[6:], 8)
    return 0o022
