"""HMC's Python interface: one-sided transfers between registered buffers of two processes.

``import hmcfs.compat.hmc as hmc`` takes the place of ``import hmc``. No mount and no daemon is needed.
On one host each process maps the other's buffer, and a transfer is one copy of memory. Between hosts the
bytes go through TCP and through both Python processes; the hosts share the secret of $HMCFS_SECRET_FILE,
and the bytes are not encrypted.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import Any, Callable

from . import _endpoint, _handshake
from ._buffer import IOBuffer
from ._links import Remote, Shared, Worker
from ._status import ConnType, CtrlTransport, HMCError, HMCStatusError, MemoryType, status_t

__all__ = [
    "ConnType", "CtrlTransport", "HMCError", "HMCStatusError", "IOBuffer", "MemoryType", "Session", "create_session", "status_t",
]

_TIMEOUT = 60.0
# _RANKS is the number of ranks that fit into a handshake.
_RANKS = 1 << 32


def _port(port: int) -> int:
    if not 0 < int(port) < 65536:
        raise ValueError(f"a port is between 1 and 65535, not {port}")
    return int(port)


def _rank(rank: int) -> int:
    if not 0 <= int(rank) < _RANKS:
        raise ValueError(f"a rank is between 0 and {_RANKS - 1}, not {rank}")
    return int(rank)


def _failed(error: BaseException, what: str) -> HMCStatusError:
    """Return the error of a failed operation on a connection."""
    late = isinstance(error, (TimeoutError, BlockingIOError))
    reason = "no answer in time" if late else getattr(error, "strerror", None) or str(error)
    return HMCStatusError(status_t.TIMEOUT if late else status_t.ERROR, f"{what}: {reason}")


_BROKEN = (OSError, EOFError, _handshake.Refused)


class _Transfer:
    """A transfer in progress."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.error: BaseException | None = None


class _Peer:
    """The buffer of a server, and the transfers in progress with it."""

    def __init__(self, link: Shared | Remote) -> None:
        self.link, self.worker = link, Worker()

    def close(self) -> None:
        self.worker.stop()
        self.link.close()


class Session:
    """One process: its buffer, its server, and the servers that it is connected to."""

    def __init__(self, buf: IOBuffer, num_chs: int = 1, *, local_ip: str = "", ctrl_uds_dir: str | None = None) -> None:
        self.buf = buf
        self.num_chs = int(num_chs)
        self.local_ip = local_ip.strip()
        self.ctrl_uds_dir = os.environ.get("CTRL_UDS_DIR", "/tmp") if ctrl_uds_dir is None else ctrl_uds_dir
        self.id: int | None = None
        self._endpoint = _endpoint.Endpoint(buf.memory, _TIMEOUT)
        self._lock = threading.Lock()
        self._peers: dict[tuple[str, int, ConnType], _Peer] = {}
        self._transfers: dict[int, _Transfer] = {}
        self._number = 0
        self._finalizer = weakref.finalize(self, _close, self._endpoint, self._peers)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and all connections."""
        self._finalizer()

    def set_local_ip(self, ip: str) -> None:
        """Set the address of this host."""
        self.local_ip = ip.strip()

    def set_ctrl_uds_dir(self, folder: str) -> None:
        """Set the folder of the Unix sockets."""
        self.ctrl_uds_dir = folder

    def _mine(self) -> _endpoint.Endpoint:
        if self._endpoint.pid != os.getpid():
            raise HMCError("this session belongs to the process that forked: create another")
        if not self._finalizer.alive:
            raise HMCError("the session is closed")
        return self._endpoint

    # Connections

    def init_server(
        self, *, bind_ip: str, ucx_port: int, rdma_port: int, ctrl_tcp_port: int, self_id: int, ctrl_uds_dir: str | None = None
    ) -> None:
        """Let others connect: they read and write the buffer, and exchange tags."""
        endpoint, folder = self._mine(), self.ctrl_uds_dir if ctrl_uds_dir is None else ctrl_uds_dir
        ports = [_port(p) for p in (ucx_port, rdma_port, ctrl_tcp_port)]
        if len(set(ports)) != 3:
            raise ValueError(f"the three ports must differ: {ports}")
        if endpoint.serving:
            raise HMCStatusError(status_t.INVALID_CONFIG, "the server runs already; close_server() ends it")
        path = _endpoint.socket_path(folder, _rank(self_id))
        try:
            endpoint.listen(bind_ip.strip(), ports, path)
        except OSError as e:
            raise _failed(e, f"a server at {bind_ip} and {path}") from e
        self.id, self.local_ip, self.ctrl_uds_dir = self_id, bind_ip.strip(), folder

    def close_server(self) -> None:
        """End the server, and the connections of its clients."""
        self._mine().close_server()

    def connect(
        self, *, peer_id: int, self_id: int, peer_ip: str, data_port: int, ctrl_tcp_port: int, uds_dir: str | None = None,
        conn: ConnType = ConnType.RDMA,
    ) -> None:
        """Connect to a server, unless this is done already."""
        endpoint, ip, port, conn = self._mine(), peer_ip.strip(), _port(data_port), ConnType(conn)
        if self.check_conn(ip, port, conn):
            return
        path = _endpoint.socket_path(self.ctrl_uds_dir if uds_dir is None else uds_dir, _rank(peer_id))
        here = _handshake.is_local(ip) and os.path.exists(path)
        data = functools.partial(_endpoint.dial_unix, path) if here else functools.partial(_endpoint.dial_tcp, ip, port)
        ctrl = data if _by_socket(here, path) else functools.partial(_endpoint.dial_tcp, ip, _port(ctrl_tcp_port))
        try:
            link = endpoint.open_data(data, _rank(self_id))
        except _BROKEN as e:
            raise _failed(e, f"connect to rank {peer_id} at {path if here else f'{ip}:{port}'}") from e
        try:
            endpoint.open_ctrl(ctrl, _rank(self_id), peer_id)
        except _BROKEN as e:
            link.close()
            raise _failed(e, f"connect to rank {peer_id} for tags") from e
        self.id = self_id if self.id is None else self.id
        with self._lock:
            old = self._peers.get((ip, port, conn))
            self._peers[ip, port, conn] = _Peer(link)
        if old is not None:
            old.close()

    def disconnect(self, ip: str, port: int, conn: ConnType = ConnType.RDMA) -> None:
        """End the connection to a server's buffer; tags still pass."""
        with self._lock:
            peer = self._peers.pop((ip.strip(), _port(port), ConnType(conn)), None)
        if peer is not None:
            peer.close()

    def check_conn(self, ip: str, port: int, conn: ConnType = ConnType.RDMA) -> bool:
        """Report whether the connection to a server exists."""
        with self._lock:
            peer = self._peers.get((ip.strip(), _port(port), ConnType(conn)))
        return peer is not None and peer.link.alive()

    # Transfers

    def _peer(self, ip: str, port: int, conn: ConnType, ranges: tuple[int, int, int]) -> _Peer:
        self._mine()
        local, remote, size = ranges
        with self._lock:
            peer = self._peers.get((ip.strip(), _port(port), ConnType(conn)))
        if peer is None:
            raise HMCStatusError(status_t.NOT_FOUND, f"no connection to {ip}:{port} by {ConnType(conn).name}: connect() takes the same port and conn")
        if not self.buf.memory.has(local, size):
            raise HMCStatusError(status_t.ERROR, f"Buffer overflow: {size} bytes at {local}, of the local buffer of {self.buf.size} bytes")
        if not (0 <= remote and remote + size <= peer.link.size):
            raise HMCStatusError(status_t.ERROR, f"Buffer overflow: {size} bytes at {remote}, of the remote buffer of {peer.link.size} bytes")
        return peer

    def put_remote(self, ip: str, port: int, local_off: int, remote_off: int, nbytes: int, conn: ConnType = ConnType.RDMA) -> None:
        """Copy bytes of this buffer into the server's. They are there when this returns."""
        peer = self._peer(ip, port, conn, (local_off, remote_off, nbytes))
        self._now(peer.link.put, local_off, remote_off, nbytes, f"put to {ip}:{port}")

    def get_remote(self, ip: str, port: int, local_off: int, remote_off: int, nbytes: int, conn: ConnType = ConnType.RDMA) -> None:
        """Copy bytes of the server's buffer into this one."""
        peer = self._peer(ip, port, conn, (local_off, remote_off, nbytes))
        self._now(peer.link.get, local_off, remote_off, nbytes, f"get from {ip}:{port}")

    def _now(self, move: Callable[..., None], local: int, remote: int, size: int, what: str) -> None:
        if size == 0:
            return
        try:
            move(self.buf.memory, local, remote, size)
        except _BROKEN as e:
            raise _failed(e, what) from e

    def put_nb(self, ip: str, port: int, local_off: int, remote_off: int, nbytes: int, conn: ConnType = ConnType.RDMA) -> int:
        """Begin a put, and return the number that wait() takes."""
        peer = self._peer(ip, port, conn, (local_off, remote_off, nbytes))
        return self._begin(peer, functools.partial(self._now, peer.link.put, local_off, remote_off, nbytes, f"put to {ip}:{port}"))

    def get_nb(self, ip: str, port: int, local_off: int, remote_off: int, nbytes: int, conn: ConnType = ConnType.RDMA) -> int:
        """Begin a get, and return the number that wait() takes."""
        peer = self._peer(ip, port, conn, (local_off, remote_off, nbytes))
        return self._begin(peer, functools.partial(self._now, peer.link.get, local_off, remote_off, nbytes, f"get from {ip}:{port}"))

    def _begin(self, peer: _Peer, move: Callable[[], None]) -> int:
        transfer = _Transfer()
        with self._lock:
            self._number += 1
            number = self._number
            self._transfers[number] = transfer

        def run() -> None:
            try:
                move()
            except BaseException as e:
                transfer.error = e
            finally:
                transfer.over.set()

        peer.worker.start(run)
        return number

    def wait(self, wr_id: int | list[int]) -> None:
        """Wait for one transfer or several, in any order. 0 is a transfer that is over."""
        if not isinstance(wr_id, (list, tuple)):
            self._wait(int(wr_id))
            return
        errors = []
        for one in wr_id:
            try:
                self._wait(int(one))
            except HMCError as e:
                errors.append(e)
        if errors:
            raise errors[0]

    def _wait(self, number: int) -> None:
        if number == 0:
            return
        with self._lock:
            transfer = self._transfers.pop(number, None)
        if transfer is None:
            raise HMCStatusError(status_t.NOT_FOUND, f"there is no transfer {number}, or it was waited for")
        transfer.over.wait()
        if transfer.error is not None:
            raise transfer.error

    # Tags

    def ctrl_send(self, peer: int, tag: int) -> None:
        """Send a tag, a number of 64 bits. What was put before is there when the peer receives it."""
        if not 0 <= int(tag) < 1 << 64:
            raise ValueError(f"a tag has 64 bits, without a sign: {tag}")
        inbox = self._mine().inbox(_rank(peer))
        try:
            if inbox.send(int(tag)):
                return
        except OSError as e:
            raise _failed(e, f"a tag to rank {peer}") from e
        raise HMCStatusError(status_t.NOT_FOUND, f"rank {peer} is not connected")

    def ctrl_recv(self, peer: int, timeout: float | None = None) -> int:
        """Return the next tag of a peer; a server waits for it to connect. A timeout is in seconds."""
        endpoint = self._mine()
        inbox = endpoint.inbox(_rank(peer))
        if not (inbox.links or inbox.tags or inbox.ended or endpoint.serving):
            raise HMCStatusError(status_t.NOT_FOUND, f"rank {peer} is not connected")
        tag = inbox.receive(timeout)
        if tag is not None:
            return tag
        if inbox.ended:
            raise HMCStatusError(status_t.ERROR, f"rank {peer} has ended, or this session")
        raise HMCStatusError(status_t.TIMEOUT, f"no tag of rank {peer} in {timeout} s")

    # Both steps

    def buffer_put_then_put(
        self, ip: str, port: int, data: Any, *, local_off: int = 0, remote_off: int = 0, conn: ConnType = ConnType.RDMA,
        nbytes: int | None = None, device: str | None = None,
    ) -> int:
        """Copy data into this buffer, and from it into the server's."""
        n = self.buf.put(data, nbytes=nbytes, offset=local_off, device=device)
        self.put_remote(ip, port, local_off, remote_off, n, conn)
        return n

    def get_then_buffer_get_into(
        self, ip: str, port: int, dst: Any, *, local_off: int = 0, remote_off: int = 0, nbytes: int | None = None,
        conn: ConnType = ConnType.RDMA, device: str | None = None,
    ) -> int:
        """Copy bytes of the server's buffer into this one, and from it into dst."""
        if nbytes is None:
            nbytes = dst.numel() * dst.element_size() if hasattr(dst, "element_size") else memoryview(dst).nbytes
        self.get_remote(ip, port, local_off, remote_off, nbytes, conn)
        self.buf.get_into(dst, nbytes=nbytes, offset=local_off, device=device)
        return nbytes


def _by_socket(here: bool, path: str) -> bool:
    """Report whether tags go over the Unix socket; $CTRL_TRANSPORT overrides the choice, as with HMC."""
    wanted = os.environ.get("CTRL_TRANSPORT", "").strip().lower()
    if wanted == "uds" and not here:
        raise HMCStatusError(status_t.NOT_FOUND, f"CTRL_TRANSPORT=uds: there is no {path}, or the peer is on another host")
    return here if not wanted else wanted == "uds"


def _close(endpoint: _endpoint.Endpoint, peers: dict[Any, _Peer]) -> None:
    for peer in list(peers.values()):
        peer.close()
    peers.clear()
    endpoint.close()


def create_session(
    *, device_id: int = 0, buffer_size: int = 128 * 1024 * 1024, mem_type: MemoryType = MemoryType.CPU, num_chs: int = 1,
    local_ip: str = "",
) -> Session:
    """Return a session with a buffer of its own."""
    return Session(IOBuffer.create(device_id, buffer_size, mem_type), num_chs, local_ip=local_ip)
