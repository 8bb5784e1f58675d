"""The files of a mount, or of a daemon without one, for fsspec: ``hmcfs://DEVICE/PATH``. Only fsspec imports this module."""

from __future__ import annotations

import datetime
import errno
import os
import posixpath
import stat
from typing import Any

from fsspec.spec import AbstractFileSystem

from . import _errors
from ._fs import FileSystem, connect


class HmcfsFileSystem(AbstractFileSystem):
    """The files of one mount, or daemon, which ``mount`` names as for hmcfs.connect()."""

    protocol = "hmcfs"
    root_marker = ""
    # The mount of connect() may be another one next time.
    cachable = False

    def __init__(self, mount: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._connected, self._pid = connect(mount), os.getpid()

    @property
    def hmcfs(self) -> FileSystem:
        """The client, of this process also after a fork."""
        if self._pid != os.getpid():
            self._connected, self._pid = FileSystem(self._connected.path, self._connected.socket_path), os.getpid()
        return self._connected

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        path = os.fspath(path)
        if path.startswith("hmcfs://"):
            path = path[len("hmcfs://") :]
        path = posixpath.normpath(path.strip("/") or ".")
        if path == ".." or path.startswith("../"):
            raise _errors.Invalid(f"{path} is outside of the mount")
        return "" if path == "." else path

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, **options: Any) -> Any:
        if not autocommit:
            raise _errors.Unsupported(f"{path}: there are no transactions; write the file under another name, and mv it")
        return self.hmcfs._tree.buffered(self._strip_protocol(path), mode)

    @staticmethod
    def _described(name: str, found: os.stat_result) -> dict[str, Any]:
        kind = "directory" if stat.S_ISDIR(found.st_mode) else "file" if stat.S_ISREG(found.st_mode) else "other"
        return {
            "name": name, "size": found.st_size if kind == "file" else 0, "type": kind, "created": found.st_ctime,
            "mtime": found.st_mtime, "mode": found.st_mode, "uid": found.st_uid, "gid": found.st_gid, "ino": found.st_ino,
        }

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Describe a file or a directory."""
        return self._described(self._strip_protocol(path), self.hmcfs.stat(self._strip_protocol(path)))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """Return what is in a directory: names, or descriptions with detail."""
        name = self._strip_protocol(path)
        try:
            inside = self.hmcfs.listdir(name)
        except NotADirectoryError:
            return [self.info(path)] if detail else [name]
        names = [posixpath.join(name, one) for one in inside]
        if not detail:
            return names
        found = []
        for one in names:
            try:
                found.append(self.info(one))
            except FileNotFoundError:
                pass  # it was removed meanwhile, or is the key of a file that was
        return found

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create a directory."""
        self.hmcfs.mkdir(self._strip_protocol(path), parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and those above it."""
        self.hmcfs.mkdir(self._strip_protocol(path), parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.hmcfs._tree.remove(self._strip_protocol(path) or ".", directory=True)

    def rm_file(self, path: str) -> None:
        """Remove a file, or an empty directory."""
        self.hmcfs.remove(self._strip_protocol(path))

    _rm = rm_file

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy a file, between devices without passing the bytes through this process."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        else:
            self.hmcfs.copy(self._strip_protocol(path1), self._strip_protocol(path2))

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Move a file or directory, also to another device."""
        from_, to = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(to):
            to = posixpath.join(to, posixpath.basename(from_))
        try:
            self.hmcfs.rename(from_, to)
        except OSError as e:
            if e.errno != errno.EXDEV:
                raise
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def created(self, path: str) -> datetime.datetime:
        """Return when a file was created, or its attributes changed."""
        return datetime.datetime.fromtimestamp(self.info(path)["created"], datetime.timezone.utc)

    def modified(self, path: str) -> datetime.datetime:
        """Return when a file was written last."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)
