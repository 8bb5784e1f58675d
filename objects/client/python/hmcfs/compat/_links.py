"""Links to other processes for hmcfs.compat.hmc: their buffers, and tags."""

from __future__ import annotations

import collections
import ctypes
import fcntl
import mmap
import os
import queue
import select
import socket
import struct
import threading
import time
from typing import Any, Callable

from ._handshake import receive, receive_into

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SIZE = struct.Struct("<Q")
# _REQUEST is the operation, the offset and the size; _STATUS follows it.
_REQUEST = struct.Struct("<cQQ")
_PUT, _GET = b"P", b"G"
_DONE, _OUTSIDE = b"\0", b"\1"
# A tag is a frame of HMC's control plane: type, flags, length, and 64 bits.
_TAG = struct.Struct("<HHIQ")
_TAG_HEAD = (1, 0, 8)
_TIMEVAL = struct.Struct("@ll")
# _MAX_TAGS is how many tags of a peer may wait: the peer is not read until some are received.
_MAX_TAGS = 1 << 16


class Memory:
    """Shared memory of a fixed size."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self.map = mmap.mmap(fd, size)
        self.view = memoryview(self.map)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    @classmethod
    def new(cls, size: int) -> "Memory":
        fd = os.memfd_create("hmcfs-hmc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    def has(self, offset: int, size: int) -> bool:
        """Report whether a range is inside."""
        return 0 <= offset and 0 <= size and offset + size <= self.size

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def keep_alive(s: socket.socket) -> None:
    """Have a host noticed that no longer answers."""
    if s.family != socket.AF_UNIX:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            s.setsockopt(socket.IPPROTO_TCP, option, value)


def copy(target: Memory, at: int, source: Memory, from_: int, size: int) -> None:
    """Copy bytes, as memmove does, without holding the interpreter's lock."""
    ctypes.memmove(target.start + at, source.start + from_, size)


class Shared:
    """The buffer of a process of this host, mapped."""

    def __init__(self, s: socket.socket) -> None:
        head, fds, _, _ = socket.recv_fds(s, _SIZE.size, 1, socket.MSG_CMSG_CLOEXEC)
        try:
            if len(fds) != 1 or len(head) != _SIZE.size:
                raise EOFError("the server passed no memory")
            (size,) = _SIZE.unpack(head)
            # A buffer that its owner could shrink would end this process at the next access.
            if fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & _SEALS != _SEALS or os.fstat(fds[0]).st_size != size:
                raise EOFError("the memory of the server may change its size")
            self.memory = Memory(fds[0], size)
            self.memory.fd = -1
        finally:
            for fd in fds:
                os.close(fd)
        self.size = size
        self._socket = s

    def alive(self) -> bool:
        """Report whether the process still is there: it sends nothing, so its socket has nothing to read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLRDHUP)
        return not poll.poll(0)

    def put(self, local: Memory, at: int, offset: int, size: int) -> None:
        copy(self.memory, offset, local, at, size)
        self._check()

    def get(self, local: Memory, at: int, offset: int, size: int) -> None:
        copy(local, at, self.memory, offset, size)
        self._check()

    def _check(self) -> None:
        if not self.alive():
            raise EOFError("the other process has ended, or has closed its server")

    def close(self) -> None:
        self._socket.close()


class Remote:
    """The buffer of a process of another host, over TCP."""

    def __init__(self, s: socket.socket, limit: float) -> None:
        (self.size,) = _SIZE.unpack(receive(s, _SIZE.size))
        keep_alive(s)
        s.settimeout(limit)
        self._socket = s
        self._lock = threading.Lock()
        self._broken = False

    def alive(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return not self._broken and not poll.poll(0)

    def put(self, local: Memory, at: int, offset: int, size: int) -> None:
        def move(s: socket.socket) -> None:
            s.sendall(_REQUEST.pack(_PUT, offset, size))
            s.sendall(local.view[at : at + size])
            self._status()

        self._exchange(move)

    def get(self, local: Memory, at: int, offset: int, size: int) -> None:
        def move(s: socket.socket) -> None:
            s.sendall(_REQUEST.pack(_GET, offset, size))
            self._status()
            receive_into(s, local.view[at : at + size])

        self._exchange(move)

    def _exchange(self, move: Callable[[socket.socket], None]) -> None:
        """Make one request. After one that failed the stream is of no more use."""
        with self._lock:
            if self._broken:
                raise EOFError("an earlier transfer failed; connect again")
            done = False
            try:
                move(self._socket)
                done = True
            finally:
                self._broken = not done

    def _status(self) -> None:
        if receive(self._socket, 1) != _DONE:
            raise EOFError("the other process refused the range")

    def close(self) -> None:
        self._broken = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended
        self._socket.close()


def serve(s: socket.socket, memory: Memory) -> None:
    """Give a client access to memory, until it goes away."""
    s.settimeout(None)
    head = _SIZE.pack(memory.size)
    if s.family == socket.AF_UNIX:
        socket.send_fds(s, [head], [memory.fd])
        s.recv(1)  # nothing comes but the end
        return
    keep_alive(s)
    s.sendall(head)
    while True:
        operation, offset, size = _REQUEST.unpack(receive(s, _REQUEST.size))
        if operation not in (_PUT, _GET) or not memory.has(offset, size):
            s.sendall(_OUTSIDE)
            return
        view = memory.view[offset : offset + size]
        if operation == _PUT:
            receive_into(s, view)
            s.sendall(_DONE)
        else:
            s.sendall(_DONE)
            s.sendall(view)


class Worker:
    """One thread that runs operations in order."""

    def __init__(self) -> None:
        self._jobs: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hmcfs-hmc", daemon=True)
                self._thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job()


class Inbox:
    """The tags of one peer, and its control connections."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tags: collections.deque[int] = collections.deque()
        self.token = b""
        self.links: list[socket.socket] = []
        self.ended = False
        self._sending = threading.Lock()

    def add(self, s: socket.socket, token: bytes, limit: float, welcome: Callable[[], None]) -> bool:
        """Add a connection, whose sends take up to limit seconds; return False if another process has this rank.

        welcome is called before any tag is sent.
        """
        with self.changed:
            if self.links and self.token != token:
                return False
            welcome()
            s.settimeout(None)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(limit), 0))
            keep_alive(s)
            self.token, self.ended = token, False
            self.links.append(s)
            self.changed.notify_all()
            return True

    def read(self, s: socket.socket) -> None:
        """Read the tags of a connection until it ends."""
        try:
            while True:
                kind, flags, length, tag = _TAG.unpack(receive(s, _TAG.size))
                if (kind, flags, length) != _TAG_HEAD:
                    return
                with self.changed:
                    self.changed.wait_for(lambda: len(self.tags) < _MAX_TAGS or self.ended)
                    self.tags.append(tag)
                    self.changed.notify_all()
        except (OSError, EOFError):
            pass  # the peer has ended, or this side
        finally:
            s.close()
            with self.changed:
                if s in self.links:
                    self.links.remove(s)
                self.ended = not self.links
                self.changed.notify_all()

    def send(self, tag: int) -> bool:
        """Send a tag; return False without a connection."""
        with self.changed:
            if not self.links:
                return False
            s = self.links[0]
        with self._sending:
            s.sendall(_TAG.pack(*_TAG_HEAD, tag))
        return True

    def receive(self, timeout: float | None) -> int | None:
        """Return the next tag, or None when none comes: see ended."""
        limit = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not self.tags and not self.ended:
                left = None if limit is None else limit - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self.changed.wait(left)
            if not self.tags:
                return None
            tag = self.tags.popleft()
            self.changed.notify_all()
            return tag

    def close(self) -> None:
        with self.changed:
            links, self.ended = list(self.links), True
            self.changed.notify_all()
        for s in links:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended
