"""The connections of one session of hmcfs.compat.hmc: those it accepts, and those it makes."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import threading
from typing import Callable

from . import _handshake
from ._links import Inbox, Memory, Remote, Shared, serve

# _UNPROVED is how many connections may be in their handshake; more are closed.
_UNPROVED = 64


def socket_path(folder: str, rank: int) -> str:
    """Return the path of the Unix socket of a rank, which is that of HMC."""
    return f"{folder.rstrip('/')}/hmc_ctrl_rank_{rank}.sock"


class Endpoint:
    """Accepts the clients of a session, and connects to servers. It has no reference to the session."""

    def __init__(self, memory: Memory, timeout: float) -> None:
        self.memory, self.timeout = memory, timeout
        self.token = secrets.token_bytes(16)
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._inboxes: dict[int, Inbox] = {}
        self._listening: list[socket.socket] = []
        self._path = ""
        self._accepted: set[socket.socket] = set()
        self._unproved = threading.BoundedSemaphore(_UNPROVED)

    def inbox(self, rank: int) -> Inbox:
        with self._lock:
            return self._inboxes.setdefault(rank, Inbox())

    @property
    def serving(self) -> bool:
        return bool(self._listening)

    # The server

    def listen(self, ip: str, ports: list[int], path: str) -> None:
        """Accept clients at TCP ports and a Unix socket."""
        opened: list[socket.socket] = []
        try:
            for port in ports:
                family = socket.getaddrinfo(ip, port, type=socket.SOCK_STREAM)[0][0]
                opened.append(socket.create_server((ip, port), family=family))
            opened.append(_listen_at(path))
        except BaseException:
            for s in opened:
                s.close()
            raise
        with self._lock:
            self._listening, self._path = opened, path
        threading.Thread(target=self._accept, args=(opened,), name="hmcfs-hmc", daemon=True).start()

    def _accept(self, listening: list[socket.socket]) -> None:
        with selectors.DefaultSelector() as ready:
            for s in listening:
                s.setblocking(False)
                ready.register(s, selectors.EVENT_READ)
            while self._listening is listening:
                for key, _ in ready.select(1):
                    try:
                        s, _ = key.fileobj.accept()  # type: ignore[union-attr]
                    except OSError:
                        continue  # the client is gone, or the server is closed
                    if not self._unproved.acquire(blocking=False):
                        s.close()
                        continue
                    threading.Thread(target=self._attend, args=(s, listening), name="hmcfs-hmc", daemon=True).start()
        for s in listening:
            s.close()

    def _attend(self, s: socket.socket, listening: list[socket.socket]) -> None:
        """Serve one client."""
        proved = False
        try:
            hello = _handshake.challenge(s)
            with self._lock:
                if self._listening is not listening:
                    return
                self._accepted.add(s)
            self._unproved.release()
            proved = True
            if hello.kind == _handshake.DATA:
                _handshake.accept(s, self.token)
                serve(s, self.memory)
                return
            inbox = self.inbox(hello.rank)
            if inbox.add(s, hello.token, self.timeout, lambda: _handshake.accept(s, self.token)):
                inbox.read(s)
            else:
                _handshake.refuse(s, f"rank {hello.rank} is connected already, by another process")
        except (OSError, EOFError, _handshake.Refused, ValueError):
            pass  # the client learns it from its end of the connection
        finally:
            if not proved:
                self._unproved.release()
            with self._lock:
                self._accepted.discard(s)
            s.close()

    def close_server(self) -> None:
        """End the server, and the connections that it accepted."""
        with self._lock:
            listening, self._listening = self._listening, []
            accepted, self._accepted = list(self._accepted), set()
        if not listening:
            return
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass  # somebody cleaned up
        for s in [*listening, *accepted]:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended

    # The client

    def open_data(self, dial: Callable[[], socket.socket], rank: int) -> Shared | Remote:
        """Connect to the buffer of a server."""
        s = dial()
        try:
            _handshake.connect(s, _handshake.Hello(_handshake.DATA, rank, self.token))
            if s.family == socket.AF_UNIX:
                return Shared(s)
            return Remote(s, self.timeout)
        except BaseException:
            s.close()
            raise

    def open_ctrl(self, dial: Callable[[], socket.socket], rank: int, peer: int) -> None:
        """Connect to a server for tags, unless it has connected to this one."""
        inbox = self.inbox(peer)
        if inbox.links:
            return
        s = dial()
        try:
            token = _handshake.connect(s, _handshake.Hello(_handshake.CTRL, rank, self.token))
            if not inbox.add(s, token, self.timeout, lambda: None):
                raise _handshake.Refused(f"rank {peer} is connected already, and is another process")
        except BaseException:
            s.close()
            raise
        threading.Thread(target=inbox.read, args=(s,), name="hmcfs-hmc", daemon=True).start()

    def close(self) -> None:
        """End everything."""
        if os.getpid() != self.pid:
            return  # the child of a fork leaves it to its parent
        self.close_server()
        for inbox in list(self._inboxes.values()):
            inbox.close()
        self.memory.close()


def _listen_at(path: str) -> socket.socket:
    """Listen at a path, in place of a server that has ended."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(path)
            except FileNotFoundError:
                pass
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise FileExistsError(f"{path}: another process serves this rank; give it another rank or ctrl_uds_dir")
        s.bind(path)
        os.chmod(path, 0o600)
        s.listen(128)
        return s
    except BaseException:
        s.close()
        raise


def dial_unix(path: str) -> socket.socket:
    """Connect to a Unix socket."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(_handshake.LIMIT)
        s.connect(path)
        return s
    except BaseException:
        s.close()
        raise


def dial_tcp(ip: str, port: int) -> socket.socket:
    """Connect to a TCP port."""
    return socket.create_connection((ip, port), timeout=_handshake.LIMIT)
