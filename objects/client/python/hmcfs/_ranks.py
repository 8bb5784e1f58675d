"""A rank of a job of ``hmcfs run``: messages and collectives, moved by `hmcfs rank-server`.

The server is a process of this rank's own. It joins the job in the place of this process, and both map
the memory of arrays; docs/wire.md describes the frames between them.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Sequence, Tuple

from . import _dtypes, _errors, _frames
from ._fs import Future
from ._memory import address, flat
from ._session import Answer, Session, _open, _open_lock

_PROTOCOL = "hmcfs-rank-1"
_CALL = struct.Struct("<BBHIQqQQQQQQ")
_VERBS = {
    name: number
    for number, name in enumerate(
        (
            "alloc", "alloc-shared", "free", "open-window", "close-window", "send", "recv", "put", "get", "tag", "recv-tag",
            "flush", "all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all", "barrier",
        ),
        1,
    )
}
_OPS = {name: number for number, name in enumerate(("sum", "prod", "min", "max", "avg"), 1)}
_TYPES = {
    name: number
    for number, name in enumerate(
        (
            "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float8_e4m3fn", "float8_e5m2",
            "float16", "bfloat16", "float32", "float64", "complex64",
        ),
        1,
    )
}
# _FORMATS are the types of buffers without a dtype, by the format of their elements.
_FORMATS = {
    "?": "bool", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "e": "float16", "f": "float32", "d": "float64",
}
# _PLAIN is the body of the answer of a call that has no number, and _DONE its line.
_PLAIN, _DONE = bytes(5), _frames.Line(0, "", "", False, False, "", 0, ())
# _EXTRA is the room for descriptors that come with a frame: one is sent with each.
_EXTRA = socket.CMSG_SPACE(8 * struct.calcsize("i"))
# _SPARE bounds the staging memory, in bytes, that is kept for later calls, and _LEAST the size of a piece.
_SPARE, _LEAST = 256 << 20, 64 << 10
# _LEAVE bounds the time, in seconds, that close() waits for others to receive what was sent.
_LEAVE = 30.0


class _Piece:
    """Memory that this process and its server have mapped."""

    def __init__(self, number: int, fd: int, size: int) -> None:
        self.number, self.size = number, size
        try:
            self.map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.view = memoryview(self.map)
        self.start = address(self.view)


class _Memory(Answer):
    """The answer of a call that allocates: with a descriptor."""

    fd = -1

    def _add(self, kind: int, body: bytes) -> None:
        session = self._session
        if kind == _frames.LAST and isinstance(session, _Link) and session.files:
            self.fd = session.files.popleft()
        super()._add(kind, body)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def piece(self, size: int) -> _Piece:
        """Wait for the memory, and map it."""
        number = self.wait()[0].size
        if self.fd < 0:
            raise _errors.Disconnected("memory came without its descriptor")
        fd, self.fd = self.fd, -1
        return _Piece(number, fd, size)


class _Link(Session):
    """The connection with the server of this rank."""

    _peer = "hmcfs rank-server"

    def __init__(self, connection: socket.socket, rank: int, timeout: float | None) -> None:
        self._prepare(f"rank {rank}")
        self._socket = connection
        # files are the descriptors that have arrived, in the order of the answers they belong to.
        self.files: collections.deque[int] = collections.deque()
        self._deadline = None if timeout is None else time.monotonic() + timeout
        try:
            kind, _, body = self._next_frame()
        except TimeoutError:
            raise _errors.Timeout("the other ranks did not call hmcfs.init() in time") from None
        except (OSError, EOFError, ValueError) as e:
            raise _errors.Disconnected(f"{self.path}: {self._peer} has ended: {e}; its messages are in the output of this rank") from e
        if kind == _frames.FAILURE:
            code, text, _ = _frames.failure(body)
            raise _errors.of(code, text)
        if kind != _frames.HELLO or body[4:].decode(errors="replace") != _PROTOCOL:
            raise _errors.Unsupported("hmcfs has another version than this package; install both from the same source")
        self._deadline = None
        with _open_lock:
            _open.add(self)

    def _forked(self) -> None:
        super()._forked()
        self._ended = _errors.Closed(
            "this process was forked from a rank, and is none itself; start more ranks with hmcfs run, and pass arrays to the parent"
        )

    def awaited(self, change: int) -> None:
        super().awaited(change)
        self.read_in_background()

    def _send(self, frame: bytes) -> None:
        try:
            super()._send(frame)
        except _errors.Disconnected:
            self._ended = _errors.Disconnected(f"{self.path}: {self._peer} has ended; end this rank, and start the job again")
            raise self._ended from None

    def _receive(self, size: int) -> bytes:
        data, extra, _, _ = self._socket.recvmsg(size, _EXTRA, socket.MSG_CMSG_CLOEXEC)
        for level, kind, files in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.files.extend(struct.unpack(f"{len(files) // 4}i", files[: len(files) // 4 * 4]))
        return data

    def begin(
        self,
        verb: str,
        *,
        source: "_Part | None" = None,
        result: "_Part | None" = None,
        op: int = 0,
        peer: int = 0,
        number: int = 0,
        timeout: float | None = None,
        kind: type[Answer] = Answer,
    ) -> Any:
        """Send a call."""
        limit = 0
        if timeout is not None:
            if not isinstance(timeout, (int, float)) or not 0 <= timeout < 9e9:
                raise _errors.Invalid(f"timeout must be a number of seconds from 0 to 9e9, not {timeout!r}")
            limit = max(1, round(timeout * 1e9))
        if not 0 <= peer < 1 << 32 or not 0 <= number < 1 << 64:
            raise _errors.Invalid(f"a rank, tag or offset is out of range: {peer}, {number}")
        some = source or result or _NONE
        body = _CALL.pack(
            some[0], op, 0, peer, number, limit, *(source or _NONE)[1:], *(result or _NONE)[1:],
        )
        with self._writing:
            self._check()
            self._number += 1
            answer = kind(self, self._number)
            with self._changed:
                self._check()
                self._answers[answer.number] = answer
            self._send(_frames.HEADER.pack(len(body), _frames.CALL, _VERBS[verb], 0, answer.number) + body)
        return answer

    def run(self, verb: str, **fields: Any) -> int:
        """Make a call, wait for its end, and return its value. An interrupt ends it early."""
        answer = self.begin(verb, **fields)
        try:
            value: int = answer.wait()[0].size
            return value
        finally:
            self.stop(answer)

    def _read_frame(self) -> bool:
        """Read a frame. The answer that most calls have takes few steps: a transfer has emptied the caches of all code."""
        if self._received or self._deadline is not None or self._poll is None:
            return super()._read_frame()
        self._poll.poll()
        self._taking = True
        try:
            data = self._receive(1 << 16)
        except OSError:
            data = b""  # what is read next has the reason
        if len(data) != _frames.HEADER.size + len(_PLAIN) or data[4] != _frames.LAST or not data.endswith(_PLAIN):
            self._received += data
            self._taking = False
            return super()._read_frame()
        with self._changed:
            answer = self._answers.pop(_frames.HEADER.unpack_from(data)[4], None)
            if answer is not None:
                answer.lines.append(_DONE)
                answer.over = True
                for call in answer.listeners:
                    call()
            self._changed.notify_all()
        return True


class _Part(Tuple[int, int, int, int]):
    """A range of elements: type, memory, offset in bytes, count."""

    type = property(lambda self: self[0])


_NONE = _Part((0, 0, 0, 0))
# _SEEN are the types and sizes of dtypes that were used: their names take long to find.
_SEEN: dict[Any, tuple[int, int]] = {}


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _describe(x: Any, what: str) -> tuple[int, int]:
    """Return the type of the elements of an array, and their size."""
    dtype = getattr(x, "dtype", None)
    known = _SEEN.get(dtype)
    if known is not None:
        return known
    if _is_torch(x):
        name, size = str(dtype).rpartition(".")[2], x.element_size()
    elif dtype is not None:
        name, size = str(getattr(dtype, "name", dtype)), dtype.itemsize
        if getattr(dtype, "byteorder", "=") == (">" if sys.byteorder == "little" else "<"):
            raise _errors.Invalid(f"{what}: the elements have the byte order of another machine; give x.astype(x.dtype.newbyteorder('='))")
    else:
        view = memoryview(x)
        name, size = _FORMATS.get(view.format.lstrip("@="), view.format), view.itemsize
    if name not in _TYPES:
        raise _errors.Unsupported(f"{what}: elements of type {name} are not known; use one of {', '.join(_TYPES)}, or move bytes: x.view('u1')")
    if dtype is not None:
        _SEEN[dtype] = _TYPES[name], size
    return _TYPES[name], size


def _bytes_of(x: Any, writable: bool, what: str) -> memoryview:
    """Return the bytes of an array or tensor in host memory."""
    if not _is_torch(x):
        if hasattr(x, "__cuda_array_interface__"):
            raise _errors.Unsupported(f"{what}: the array is in the memory of a card; give a copy on the host, such as x.get()")
        return flat(x, writable, what)
    import torch

    if x.device.type != "cpu":
        raise _errors.Unsupported(f"{what}: the tensor is on {x.device}; give x.cpu()")
    if not x.is_contiguous():
        raise _errors.Invalid(f"{what}: the tensor is not contiguous; give x.contiguous()")
    return flat(x.detach().reshape(-1).view(torch.uint8).numpy(), writable, what)


def _like(x: Any, shape: Sequence[int], what: str) -> Any:
    """Return a new array of the kind of another one."""
    if _is_torch(x):
        return x.new_empty(tuple(shape), requires_grad=False)
    if hasattr(x, "dtype"):
        return _dtypes.package("numpy", what).empty(shape, x.dtype)
    raise _errors.Invalid(f"{what}: give out=, memory for the result")


class _Arguments:
    """The memory of one call: arrays that the server does not have are copied through memory that it has."""

    def __init__(self, owner: "Communicator") -> None:
        self._owner = owner
        self._staged: list[tuple[_Piece, memoryview, bool]] = []
        self._keep: list[Any] = []

    def use(self, x: Any, what: str, *, read: bool = False, write: bool = False) -> _Part:
        """Return the elements of an array that is read or written."""
        part = self._owner._in_place(x)
        if part is not None:
            self._keep.append(x)
            return part
        kind, size = _describe(x, what)
        view = _bytes_of(x, write, what)
        self._keep.append(x)
        at = self._owner._find(view)
        if at is None:
            piece = self._owner._stage(view.nbytes)
            self._staged.append((piece, view, write))
            if read:
                piece.view[: view.nbytes] = view
            at = piece.number, 0
        return _Part((kind, *at, view.nbytes // size))

    def end(self, succeeded: bool) -> None:
        """Copy results to their arrays, and give the memory back. The call is over."""
        staged, self._staged, self._keep = self._staged, [], []
        for piece, view, write in staged:
            if write and succeeded:
                view[:] = piece.view[: view.nbytes]
            self._owner._unstage(piece)


class _Request(Future):
    """A message in progress; ``await`` it, or call result(), which returns the array."""

    def __init__(self, link: _Link, answer: Answer, arguments: _Arguments, array: Any) -> None:
        super().__init__(link, answer, 0, None, array)  # type: ignore[arg-type]
        self._arguments: _Arguments | None = arguments
        self._lock = threading.Lock()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the message: return the array, or raise the error."""
        try:
            super().result(timeout)
        finally:
            self.settle()
        return self._keep

    wait = result

    def settle(self) -> bool:
        """Complete the arrays if the message is over; report whether it is."""
        if not self._answer.over:
            return False
        with self._lock:
            arguments, self._arguments = self._arguments, None
            if arguments is not None:
                arguments.end(self._answer.fault is None)
        return True


class Communicator:
    """A rank: it sends to and receives from the others, and takes part in collectives.

    Arrays are NumPy arrays, PyTorch tensors on the CPU, or other contiguous buffers. Those of empty()
    and window() are used in place; others are copied once on each side. All ranks call collectives in
    the same order, also empty() and window(). Methods may be called from any thread.
    """

    def __init__(self, timeout: float | None = None) -> None:
        if "HMCFS_RANK" not in os.environ or "HMCFS_WORLD" not in os.environ:
            raise _errors.Invalid("this process is not a rank of a job; start it with: hmcfs run --nranks 4 -- python3 PROGRAM")
        self.rank, self.size = int(os.environ["HMCFS_RANK"]), int(os.environ["HMCFS_WORLD"])
        binary = os.environ.get("HMCFS_BINARY") or shutil.which("hmcfs")
        if not binary:
            raise _errors.Unsupported("hmcfs is not in PATH; set HMCFS_BINARY to its path")
        self._lock = threading.Lock()
        # _pieces is the memory of arrays by its address, _dropped the addresses of arrays that are gone.
        self._pieces: dict[int, _Piece] = {}
        self._dropped: collections.deque[int] = collections.deque()
        self._spare: list[_Piece] = []
        self._own_window: int | None = None
        # _requests are messages in progress, whose memory must not be used again before.
        self._requests: list[_Request] = []
        self._pid = os.getpid()
        ours, theirs = socket.socketpair()
        try:
            # It stays in this session, with which the kernel shares processors between groups of processes.
            self._server = subprocess.Popen(["hmcfs", "rank-server"], executable=binary, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        except OSError as e:
            ours.close()
            raise _errors.Unsupported(f"start {binary}: {e}; set HMCFS_BINARY to the path of hmcfs") from e
        finally:
            theirs.close()
        try:
            self._link = _Link(ours, self.rank, timeout)
        except BaseException:
            ours.close()
            self._end_server(0)
            raise

    def _end_server(self, timeout: float) -> None:
        try:
            self._server.wait(timeout)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._leave(kind is None)

    def close(self) -> None:
        """Leave the job, when the other ranks have received what was sent to them. Arrays stay usable."""
        self._leave(True)

    def _leave(self, orderly: bool) -> None:
        if os.getpid() != self._pid:
            return
        if orderly and self._link._ended is None:
            try:
                self._link.run("flush", timeout=_LEAVE)
            except _errors.HmcfsError:
                pass  # of ranks that have ended, or do not receive it
        self._link.close()
        self._end_server(_LEAVE)

    # Memory

    def empty(self, shape: Any, dtype: Any = "float32", *, shared: bool = True) -> Any:
        """Return an array that messages and collectives use in place.

        All ranks call it together, each with a shape of its own, and map the memory of each other. With
        shared=False one rank calls it alone: such an array is for messages, and slower in collectives.
        """
        numpy = _dtypes.package("numpy", "memory of ranks")
        kind = numpy.dtype(dtype)
        size = int(numpy.prod(shape, dtype="u8")) * kind.itemsize
        if size == 0:
            raise _errors.Invalid("an array of no bytes")
        self._give_back()
        piece = self._allocate("alloc-shared" if shared else "alloc", size)
        return self._array(piece).view(kind).reshape(shape)

    def _allocate(self, verb: str, size: int) -> _Piece:
        answer = self._link.begin(verb, number=size, kind=_Memory)
        try:
            piece: _Piece = answer.piece(size)
            return piece
        finally:
            self._link.stop(answer)

    def _array(self, piece: _Piece) -> Any:
        """Return the memory as an array of bytes, which frees it when nothing refers to it any more."""
        numpy = _dtypes.package("numpy", "memory of ranks")
        with self._lock:
            self._pieces[piece.start] = piece
        array = numpy.frombuffer(piece.view, "u1")
        weakref.finalize(array, self._dropped.append, piece.start).atexit = False
        return array

    def _give_back(self) -> None:
        """Free memory of arrays that are gone, and of messages that are over."""
        if not self._requests and not self._dropped:
            return
        with self._lock:
            requests, self._requests = self._requests, []
        going = [r for r in requests if not r.done() or not r.settle()]
        with self._lock:
            self._requests += going
            gone = []
            while self._dropped:
                piece = self._pieces.pop(self._dropped.popleft(), None)
                if piece is not None:
                    gone.append(piece)
        for piece in gone:
            self._free(piece)

    def _free(self, piece: _Piece) -> None:
        try:
            self._link.begin("free", source=_Part((0, piece.number, 0, 0)))
        except _errors.HmcfsError:
            pass  # the server has ended, and the memory with it

    def _find(self, view: memoryview) -> tuple[int, int] | None:
        """Return the memory that contains bytes, and where; None if the server does not have it."""
        if view.readonly or not self._pieces:
            return None
        at = address(view)
        with self._lock:
            for start, piece in self._pieces.items():
                if start <= at and at + view.nbytes <= start + piece.size:
                    return piece.number, at - start
        return None

    def _in_place(self, x: Any) -> _Part | None:
        """Return the elements of an array in memory that the server has, of a type that was used before; else None.

        It takes few steps: a transfer has emptied the caches of all code.
        """
        known = _SEEN.get(getattr(x, "dtype", None))
        if known is None:
            return None
        try:
            start = ctypes.addressof(ctypes.c_char.from_buffer(x))
        except (TypeError, ValueError):
            return None  # a tensor, or an array that is not contiguous, or read-only
        end = start + x.nbytes
        with self._lock:
            for first, piece in self._pieces.items():
                if first <= start < end <= first + piece.size:
                    return _Part((known[0], piece.number, start - first, x.nbytes // known[1]))
        return None

    def _stage(self, size: int) -> _Piece:
        """Return staging memory of at least a size; _unstage takes it back."""
        with self._lock:
            fits = [p for p in self._spare if p.size >= size]
            if fits:
                piece = min(fits, key=lambda p: p.size)
                self._spare.remove(piece)
                return piece
        return self._allocate("alloc", max(_LEAST, 1 << (size - 1).bit_length()))

    def _unstage(self, piece: _Piece) -> None:
        with self._lock:
            keep = sum(p.size for p in self._spare) + piece.size <= _SPARE
            if keep:
                self._spare.append(piece)
        if not keep:
            self._free(piece)

    def _peer_of(self, rank: int, what: str) -> int:
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            raise _errors.Invalid(f"{what}: rank {rank!r} is not one of the {self.size} ranks, from 0 to {self.size - 1}")
        return rank

    def _other(self, rank: int, what: str) -> int:
        if rank == self.rank:
            raise _errors.Invalid(f"{what}: rank {rank} is this rank itself; tags go to other ranks")
        return self._peer_of(rank, what)

    # Messages

    def isend(self, x: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> _Request:
        """Start to send an array. It must not change before the request is over."""
        return self._message("send", x, self._peer_of(to, "send"), tag, timeout)

    def irecv(self, out: Any, source: int, tag: int = 0, *, timeout: float | None = None) -> _Request:
        """Start to receive the next message of a rank and tag, of the type and length of out."""
        return self._message("recv", out, self._peer_of(source, "recv"), tag, timeout)

    def send(self, x: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Send an array: it may change when this returns."""
        self._run("send", source=x, peer=self._peer_of(to, "send"), number=tag, timeout=timeout)

    def recv(self, out: Any, source: int, tag: int = 0, *, timeout: float | None = None) -> Any:
        """Receive the next message of a rank and tag into out, and return it."""
        return self._run("recv", result=out, peer=self._peer_of(source, "recv"), number=tag, timeout=timeout)

    def _message(self, verb: str, x: Any, peer: int, tag: int, timeout: float | None) -> _Request:
        self._give_back()
        arguments = _Arguments(self)
        try:
            if verb == "send":
                answer = self._link.begin(verb, source=arguments.use(x, verb, read=True), peer=peer, number=tag, timeout=timeout)
            else:
                answer = self._link.begin(verb, result=arguments.use(x, verb, write=True), peer=peer, number=tag, timeout=timeout)
        except BaseException:
            arguments.end(False)
            raise
        request = _Request(self._link, answer, arguments, x)
        if arguments._staged:
            with self._lock:
                self._requests.append(request)
        return request

    # Windows

    def window(self, size: int) -> Any:
        """Open a window of some bytes at each rank, into which all can put, and return this rank's as an array.

        All ranks call it together, with the same size. There is one window at a time.
        """
        self._give_back()
        return self._array(self._allocate("open-window", size))

    def close_window(self) -> None:
        """Release the windows; all ranks call it together. The array stays, and is this rank's alone."""
        self._link.run("close-window")

    def put(self, x: Any, to: int, offset: int = 0, *, timeout: float | None = None) -> None:
        """Copy an array into the window of a rank, from a byte on. The bytes are there when this returns."""
        self._move("put", to, offset, timeout, source=x)

    def get(self, out: Any, source: int, offset: int = 0, *, timeout: float | None = None) -> Any:
        """Copy from the window of a rank, from a byte on, into out, and return it."""
        return self._move("get", source, offset, timeout, result=out)

    def _move(self, verb: str, peer: int, offset: int, timeout: float | None, **arrays: Any) -> Any:
        return self._run(verb, peer=self._peer_of(peer, verb), number=offset, timeout=timeout, **arrays)

    # Tags

    def tag(self, to: int, value: int, *, timeout: float | None = None) -> None:
        """Send a number to a rank, which sees all that was put before when it receives it."""
        self._link.run("tag", peer=self._other(to, "tag"), number=value, timeout=timeout)

    def recv_tag(self, source: int, *, timeout: float | None = None) -> int:
        """Wait for the next number of tag() from a rank."""
        return self._link.run("recv-tag", peer=self._other(source, "recv_tag"), timeout=timeout)

    # Collectives

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, *, timeout: float | None = None) -> Any:
        """Combine the arrays of all ranks into out, or in place, and return it."""
        return self._run("all-reduce", source=x, result=x if out is None else out, op=op, timeout=timeout)

    def reduce(self, x: Any, op: str = "sum", root: int = 0, out: Any = None, *, timeout: float | None = None) -> Any:
        """Combine the arrays of all ranks at the root, into out, or in place. Other ranks get None."""
        result = None
        if self._peer_of(root, "reduce") == self.rank:
            result = x if out is None else out
        return self._run("reduce", source=x, result=result, op=op, peer=root, timeout=timeout)

    def broadcast(self, x: Any, root: int = 0, *, timeout: float | None = None) -> Any:
        """Copy the array of the root over those of all other ranks, and return it."""
        at_root = self._peer_of(root, "broadcast") == self.rank
        return self._run("broadcast", source=x if at_root else None, result=None if at_root else x, peer=root, timeout=timeout, twice=True)

    def all_gather(self, x: Any, out: Any = None, *, timeout: float | None = None) -> Any:
        """Gather the arrays of all ranks in out, in their order. Without out, in a new array with one more dimension."""
        if out is None:
            out = _like(x, (self.size, *getattr(x, "shape", ())), "all_gather")
        return self._run("all-gather", source=x, result=out, timeout=timeout)

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None, *, timeout: float | None = None) -> Any:
        """Combine the arrays of all ranks, and return this rank's part: as out, or as a new array."""
        if out is None:
            out = _like(x, self._part(x, "reduce_scatter"), "reduce_scatter")
        return self._run("reduce-scatter", source=x, result=out, op=op, timeout=timeout)

    def all_to_all(self, x: Any, out: Any = None, *, timeout: float | None = None) -> Any:
        """Give part r of each rank's array to rank r: in out, or in a new array, in the order of the ranks."""
        if out is None:
            self._part(x, "all_to_all")
            out = _like(x, x.shape, "all_to_all")
        return self._run("all-to-all", source=x, result=out, timeout=timeout)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return when all ranks have called it."""
        self._link.run("barrier", timeout=timeout)

    def _part(self, x: Any, what: str) -> tuple[int, ...]:
        """Return the shape of one of as many parts as there are ranks."""
        shape = tuple(getattr(x, "shape", ()))
        if not shape or shape[0] % self.size:
            raise _errors.Invalid(f"{what}: the first dimension of {shape} is not a multiple of {self.size} ranks; give out=, of this rank's part")
        return (shape[0] // self.size, *shape[1:])

    def _run(
        self, verb: str, *, source: Any = None, result: Any = None, op: str | None = None, peer: int = 0, number: int = 0,
        timeout: float | None = None, twice: bool = False,
    ) -> Any:
        """Make a call with arrays and wait for it; twice passes the one array as both. Return the result."""
        if op is not None and op not in _OPS:
            raise _errors.Invalid(f"op={op!r} is not known; use one of {', '.join(_OPS)}")
        self._give_back()
        arguments = _Arguments(self)
        succeeded = False
        reads: _Part | None
        writes: _Part | None
        try:
            if source is result and source is not None:
                reads = writes = arguments.use(source, verb, read=True, write=True)
            else:
                reads = None if source is None else arguments.use(source, verb, read=True)
                writes = None if result is None else arguments.use(result, verb, write=True)
                if twice:
                    reads = writes = reads or writes
            if reads and writes and reads.type != writes.type:
                raise _errors.Invalid(f"{verb}: the arrays have different types")
            self._link.run(
                verb, source=reads, result=writes, op=_OPS[op] if op else 0, peer=peer, number=number, timeout=timeout
            )
            succeeded = True
        finally:
            arguments.end(succeeded)
        return source if twice and result is None else result


_current: Communicator | None = None
_current_lock = threading.Lock()


def init(timeout: float | None = None) -> Communicator:
    """Return this rank of the job, and join the job if this process has not yet.

    All ranks of a program started by ``hmcfs run`` call it. Raise Timeout if the others do not within
    timeout seconds; without it, the job's own limit applies.
    """
    global _current
    with _current_lock:
        if _current is not None:
            ended = _current._link._ended
            if ended is None:
                return _current
            if os.getpid() != _current._pid:
                raise ended
        _current = Communicator(timeout)
        return _current


def _at_exit() -> None:
    if _current is not None:
        # After an exception other ranks may never receive what was sent.
        _current._leave(not hasattr(sys, "last_value"))


atexit.register(_at_exit)


def _after_fork() -> None:
    global _current_lock
    _current_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
