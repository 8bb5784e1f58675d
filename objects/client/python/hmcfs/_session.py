"""A session with the daemon of a mount: calls, answers, registered memory."""

from __future__ import annotations

import collections
import json
import os
import select
import socket
import threading
import time
import weakref
from typing import Any, Callable, Sequence

from . import _errors, _frames

_REQUEST = (
    "POST {path} HTTP/1.1\r\nHost: hmcfs\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{extra}Content-Length: 0\r\n\r\n"
)
_MAX_HEAD = 64 << 10
# _STOP bounds the time, in seconds, that the daemon takes to end a call or a session.
_STOP = 30.0
# _HELD bounds the time, in seconds, that the daemon takes to end what a connection holds.
_HELD = 2.0
# _TICK is the time, in seconds, after which frames are read that no thread waits for.
_TICK = 0.1
# _MOMENT is the time, in seconds, for which a thread asks for a frame before it sleeps.
_MOMENT = 50e-6


class Answer:
    """A call in progress. ``lines`` grows until ``over``."""

    def __init__(self, session: "Session", number: int) -> None:
        self._session = session
        self.number = number
        self.lines: list[_frames.Line] = []
        self.file: _frames.FileAnswer | None = None
        self.begun = False
        self.over = False
        self.fault: _errors.HmcfsError | None = None
        # listeners are called after every frame, with the session's condition held.
        self.listeners: list[Callable[[], None]] = []

    def end(self, error: _errors.HmcfsError) -> None:
        """End the answer early."""
        self.fault, self.over = error, True
        for call in list(self.listeners):
            call()

    def _add(self, kind: int, body: bytes) -> None:
        if kind in (_frames.LINES, _frames.LAST):
            self.lines.extend(_frames.lines(body))
        elif kind in (_frames.BEGUN, _frames.FAILURE):
            self.begun = True
            if body:
                code, text, _ = _frames.failure(body)
                self.fault = _errors.of(code, text)
        elif kind == _frames.FILE_ANSWER:
            self.file = _frames.file_answer(body)
        self.over = kind in (_frames.LAST, _frames.FAILURE, _frames.FILE_ANSWER)
        for call in list(self.listeners):
            call()

    def wait(self, limit: float | None = None) -> list[_frames.Line]:
        """Wait for the whole answer, for limit seconds; raise the failure of the whole call."""
        if not self._session.read_until(lambda: self.over, limit):
            raise _errors.Disconnected(f"{self._session.path}: {self._session._peer} does not answer")
        if self.fault is not None:
            raise self.fault
        return self.lines


class Session:
    """One connection to the daemon. Its methods may be called from any thread.

    A thread that waits for an answer reads the connection, and passes on what belongs to others; so
    a call needs no switch of threads. After a fork the child must open a session of its own.
    """

    # _peer is the process at the other end.
    _peer = "the daemon"

    def __init__(self, path: str, timeout: float = 10.0) -> None:
        self._prepare(path)
        self._socket = _connect(path, timeout)
        try:
            rest = _upgrade(self._socket, "/v1/session", _frames.PROTOCOL)
            self._received += rest
            self._deadline = time.monotonic() + timeout
            kind, _, body = self._next_frame()
            if kind != _frames.HELLO or len(body) < 5:
                raise _errors.Disconnected(f"{path}: no session was answered")
            self.name = body[4:].decode()
            self._deadline = None
            # Threads that send, and one that reads, use the socket at the same time.
            self._socket.setblocking(True)
        except _errors.HmcfsError:
            self._socket.close()
            raise
        except (OSError, EOFError, ValueError) as e:
            self._socket.close()
            raise _errors.of_os(e, path) from e
        except BaseException:
            self._socket.close()
            raise
        with _open_lock:
            _open.add(self)

    def _prepare(self, path: str) -> None:
        self.path = path
        self._writing = threading.Lock()
        # _changed guards _read_by, the thread that reads, and is notified of every frame.
        self._changed = threading.Condition()
        self._read_by: int | None = None
        self._answers: dict[int, Answer] = {}
        # _cancelled are calls whose ends are still to be sent.
        self._cancelled: collections.deque[Answer] = collections.deque()
        # _left are handles of files that are still to be closed.
        self._left: collections.deque[int] = collections.deque()
        self._number = 0
        self._received = bytearray()
        self._ended: _errors.HmcfsError | None = None
        # _deadline is the time at which the thread that reads gives up.
        self._deadline: float | None = None
        # _awaited counts the futures that an event loop awaits, and _reader reads for them.
        self._awaited = 0
        self._reader: threading.Thread | None = None
        # _taking is set while bytes that were read are in no place where they are found again.
        self._taking = False
        self._poll: select.poll | None = None
        # _pause counts the reads until the next one that asks before it sleeps, and _missed those in a
        # row that asked in vain.
        self._pause = self._missed = 0

    def close(self) -> None:
        """End the session: what belonged to it is released when this returns."""
        if self._ended is not None and isinstance(self._ended, _errors.Closed):
            return
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self.read_until(lambda: False, _STOP)
        except (OSError, _errors.HmcfsError):
            pass  # it has ended already
        with self._changed:
            self._end(_errors.Closed("the session is closed"))
            self._changed.notify_all()
        self._leave()

    def _leave(self) -> None:
        """Close the socket when no other thread uses it: its number may be another file's afterwards."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes them
        except OSError:
            pass  # it has ended
        if self._writing.acquire(timeout=_HELD):
            try:
                with self._changed:
                    if self._changed.wait_for(lambda: self._read_by in (None, threading.get_ident()), _HELD):
                        self._socket.close()
            finally:
                self._writing.release()

    def _forked(self) -> None:
        """Leave the session to the parent, in the child of a fork."""
        self._socket.close()
        self._writing, self._changed, self._read_by, self._reader = threading.Lock(), threading.Condition(), None, None
        self._answers = {}
        self._ended = _errors.Closed("this session belongs to the process that forked; connect again")

    def start(self, verb: str, keys: Sequence[str] = (), lists: Sequence[_frames.Blobs] = (), **options: Any) -> Answer:
        """Send a call."""
        encoded = [k.encode(errors="surrogateescape") for k in keys]
        for key in encoded:
            if len(key) > 255:
                raise _errors.Invalid("a key has at most 255 bytes", os.fsdecode(key))
        return self._start(lambda number: _frames.call(verb, number, encoded, lists, **options))

    def file(self, verb: str, name: bytes = b"", other: bytes = b"", data: "bytes | memoryview" = b"", **fields: Any) -> _frames.FileAnswer:
        """Make a call on files, and wait for its answer."""
        answer = self._start(lambda number: _frames.file_call(verb, number, name, other, data, **fields))
        try:
            answer.wait()
        except BaseException:
            self.stop(answer)
            if verb == "open" and answer.file is not None and not answer.file.errno:
                self.close_later(answer.file.handle)
            raise
        if answer.file is None:
            raise _errors.HmcfsError("the answer of the daemon is incomplete")
        return answer.file

    def _start(self, encode: Callable[[int], bytes]) -> Answer:
        with self._writing:
            self._check()
            self._cancel()
            self._number += 1
            answer = Answer(self, self._number)
            try:
                frame = encode(answer.number)
            except (ValueError, KeyError) as e:
                raise _errors.Invalid(str(e)) from e
            with self._changed:
                self._check()
                self._answers[answer.number] = answer
            self._send(frame)
        return answer

    def call(self, verb: str, keys: Sequence[str] = (), lists: Sequence[_frames.Blobs] = (), **options: Any) -> list[_frames.Line]:
        """Make a call and wait for its whole answer."""
        answer = self.start(verb, keys, lists, **options)
        try:
            return answer.wait(options["timeout"] + _STOP if verb == "wait" else None)
        finally:
            self.stop(answer)

    def stop(self, answer: Answer) -> None:
        """End a call early, if it is not over: the daemon no longer uses its memory afterwards."""
        if answer.over:
            return
        try:
            with self._writing:
                if self._ended is None:
                    self._send(_frames.cancel(answer.number))
            self.read_until(lambda: answer.over, _STOP)
        except _errors.HmcfsError:
            pass  # the session has ended, and the call with it
        finally:
            if not answer.over and self._ended is None:
                # Its memory must not be used again while bytes may still arrive in it.
                self._abandon(f"{self._peer} did not end a call that was cancelled")

    def cancel_later(self, answer: Answer) -> None:
        """End a call early, soon: it may be called at any time, as by the end of an object."""
        self._cancelled.append(answer)

    def close_later(self, handle: int) -> None:
        """Close a handle of a file, soon: it may be called at any time."""
        self._left.append(handle)

    def _cancel(self) -> None:
        """Send the ends of calls, and of files; the caller may send."""
        while self._cancelled:
            answer = self._cancelled.popleft()
            if not answer.over:
                self._send(_frames.cancel(answer.number))
        while self._left:
            self._number += 1
            self._send(_frames.file_call("close", self._number, handle=self._left.popleft()))

    def _abandon(self, reason: str) -> None:
        """End the session from this side."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended
        if self._ended is None:
            self._ended = _errors.Disconnected(f"{self.path}: {reason}")

    def read_in_background(self) -> None:
        """Have frames read from now on even if no thread waits for them."""
        with self._changed:
            if self._reader is None:
                self._reader = threading.Thread(target=_read_for, args=(weakref.ref(self),), name="hmcfs", daemon=True)
                self._reader.start()

    def awaited(self, change: int) -> None:
        """Count futures that an event loop awaits: frames are then read as they arrive."""
        with self._changed:
            self._awaited += change
            self._changed.notify_all()

    def read_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until done() is true. Return False if the time ends before.

        One of the threads that wait reads frames, for all of them.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        reader = threading.get_ident()
        try:  # an interrupt may come anywhere from here on
            with self._changed:
                while self._read_by is not None and not done():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._changed.wait(left)
                if done():
                    return True
                self._read_by = reader
            while not done():
                self._check()
                left = None if deadline is None else deadline - time.monotonic()
                if not self._read(left):
                    return False
            return True
        finally:
            if self._read_by == reader:
                with self._changed:
                    self._read_by = None
                    self._changed.notify_all()

    def _read(self, timeout: float | None) -> bool:
        """Read a frame for the answer it belongs to. Return False if the time ends before."""
        self._deadline = None if timeout is None else time.monotonic() + timeout
        try:
            read = self._read_frame()
            self._taking = False
            return read
        finally:
            if self._taking:  # an interrupt has taken bytes with it, and what follows makes no sense
                self._abandon("it was interrupted in the middle of a frame")

    def _read_frame(self) -> bool:
        try:
            kind, number, body = self._next_frame()
        except TimeoutError:
            return False
        except (OSError, EOFError, ValueError) as e:
            kind, number, body = _frames.ENDED, 0, b""
            reason = f"{self.path}: {self._peer} has ended, or the session: {e}"
        else:
            reason = f"{self.path}: {self._peer} has ended the session"
        with self._changed:
            if kind == _frames.ENDED:
                self._end(_errors.Disconnected(reason))
            else:
                answer = self._answers.get(number)
                if answer is not None:
                    answer._add(kind, body)
                    if answer.over:
                        del self._answers[number]
            self._changed.notify_all()
        return True

    def register(self, device: str, memory: dict[str, Any] | None, files: Sequence[int], **fields: Any) -> int:
        """Register memory, and return its number in this session."""
        self._check()
        question = {"device": device, "descriptors": len(files), **fields}
        if memory is not None:
            question["memory"] = memory
        reply, received = ask(self.path, "/v1/register", question, files, session=self.name)
        for fd in received:
            os.close(fd)
        return int(reply["registered"]["memory"])

    def _check(self) -> None:
        if self._ended is not None:
            # Raised again, the same error would keep what those who have caught it have had.
            raise type(self._ended)(str(self._ended))

    def _end(self, error: _errors.HmcfsError) -> None:
        if not isinstance(self._ended, _errors.Closed):
            self._ended = error
        for answer in list(self._answers.values()):
            answer.end(error)
        self._answers.clear()

    def _send(self, frame: bytes) -> None:
        sent = False
        try:
            self._socket.sendall(frame)
            sent = True
        except OSError as e:
            raise _errors.of_os(e, self.path) from e
        finally:
            if not sent:  # a part of the frame may have been
                self._abandon("a frame was not sent")

    def _next_frame(self) -> tuple[int, int, bytes]:
        """Read one frame. What has arrived of it is kept when the time ends."""
        self._fill(_frames.HEADER.size)
        size, kind, _, _, number = _frames.HEADER.unpack_from(self._received)
        if size > _frames.MAX_BODY:
            raise ValueError(f"a frame of {size} bytes")
        end = _frames.HEADER.size + size
        self._fill(end)
        body = bytes(self._received[_frames.HEADER.size : end])
        self._taking = True
        del self._received[:end]
        return kind, number, body

    def _fill(self, size: int) -> None:
        while len(self._received) < size:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000
            if self._poll is None:
                self._poll = select.poll()
                self._poll.register(self._socket, select.POLLIN)
            if not self._soon(left) and not self._poll.poll(left):
                raise TimeoutError("no frame has arrived")
            self._taking = True
            data = self._receive(max(1 << 16, size - len(self._received)))
            self._received += data
            self._taking = False
            if not data:
                raise EOFError("the connection was closed")

    def _soon(self, left: float | None) -> bool:
        """Ask for bytes for a moment, without sleeping. Report whether there are some.

        Most answers arrive sooner than a sleeping thread wakes up. After moments in vain there are fewer.
        """
        if self._pause or left == 0:
            self._pause = max(0, self._pause - 1)
            return False
        poll, clock = self._poll.poll, time.perf_counter  # type: ignore[union-attr]
        limit = clock() + _MOMENT
        while not poll(0):
            if clock() > limit:
                self._missed = min(self._missed + 1, 3)
                self._pause = (1 << self._missed) - 2
                return False
            os.sched_yield()
        self._missed = 0
        return True

    def _receive(self, size: int) -> bytes:
        return self._socket.recv(size)


def _read_for(of: "weakref.ref[Session]") -> None:
    """Read frames for a session: as they arrive for an event loop, else now and then."""
    while True:
        session = of()
        if session is None or not _read_once(session):
            return
        del session


def _read_once(session: Session) -> bool:
    """Read the frames that are there, and wait a little for more. Report whether the session goes on.

    A daemon that can't send its answers ends the session; a thread that waits reads them itself.
    """
    if session._ended is not None:
        return False
    try:
        if session._cancelled or session._left:
            with session._writing:
                session._cancel()
        if session._awaited > 0:
            session.read_until(lambda: session._awaited == 0, _TICK)
        else:
            session.read_until(lambda: False, 0)
    except (_errors.HmcfsError, OSError, ValueError):
        return False
    if session._awaited == 0:
        with session._changed:
            session._changed.wait_for(lambda: session._awaited > 0 or session._ended is not None, _TICK)
    return True


_open: "weakref.WeakSet[Session]" = weakref.WeakSet()
_open_lock = threading.Lock()


def _after_fork() -> None:
    global _open_lock
    _open_lock = threading.Lock()
    for session in list(_open):
        session._forked()


os.register_at_fork(after_in_child=_after_fork)


def _connect(path: str, timeout: float) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(timeout)
        s.connect(path)
    except OSError as e:
        s.close()
        raise _errors.of_os(e, path) from e
    return s


def _upgrade(s: socket.socket, path: str, protocol: str, session: str = "") -> bytes:
    """Ask for an upgrade; return what came after the answer."""
    extra = f"Hmcfs-Session: {session}\r\n" if session else ""
    s.sendall(_REQUEST.format(path=path, protocol=protocol, extra=extra).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        data = s.recv(4096)
        if not data or len(head) > _MAX_HEAD:
            raise _errors.Disconnected("the daemon closed the connection")
        head += data
    head, _, rest = head.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")[1]
    if status == b"101":
        return rest
    while True:
        data = s.recv(4096)
        if not data or len(rest) > _MAX_HEAD:
            break
        rest += data
        if rest.rstrip().endswith(b"}"):
            break
    try:
        said = json.loads(rest)
    except ValueError:
        said = {}
    raise _errors.of(said.get("code", "io"), said.get("error") or f"the daemon answered with status {status.decode()}")


def ask(
    socket_path: str, path: str, question: dict[str, Any], files: Sequence[int], session: str = "", timeout: float = 120.0
) -> tuple[dict[str, Any], list[int]]:
    """Make a request with descriptors. Return the reply, and the descriptors that came with it."""
    reply, received, held = ask_held(socket_path, path, question, files, session, timeout)
    held.drop()
    return reply, received


class Held:
    """What the daemon holds for this process until end()."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._pid = connection, os.getpid()

    def drop(self) -> None:
        """End it, and leave when to the daemon."""
        self._connection.close()

    def end(self) -> None:
        """End it, and wait until the daemon has: it is then as if it had never been there."""
        with self._connection as s:
            if os.getpid() != self._pid:
                return  # it goes on for the process that forked
            try:
                s.settimeout(_HELD)
                s.shutdown(socket.SHUT_WR)
                s.recv(1)
            except OSError:
                pass  # the daemon has ended, or ends it later


def ask_held(
    socket_path: str, path: str, question: dict[str, Any], files: Sequence[int], session: str = "", timeout: float = 120.0
) -> tuple[dict[str, Any], list[int], Held]:
    """Make a request with descriptors, and keep what it holds: the caller ends it."""
    s = _connect(socket_path, timeout)
    received: list[int] = []
    try:
        _upgrade(s, path, "hmcfs-descriptors", session)
        body = json.dumps(question).encode()
        frame = len(body).to_bytes(4, "big") + body
        sent = socket.send_fds(s, [frame], list(files)) if files else s.send(frame)
        if sent < len(frame):
            s.sendall(frame[sent:])
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            more, fds, _, _ = socket.recv_fds(s, 1 << 16, 253, socket.MSG_CMSG_CLOEXEC)
            received += fds
            if not more:
                raise _errors.Disconnected(f"{socket_path}: the daemon closed the connection")
            data += more
        reply = json.loads(data[4:])
        fault = reply.get("failure")
        if fault:
            raise _errors.of(fault.get("code", "io"), fault.get("error", "failed"))
    except BaseException as e:
        for fd in received:
            os.close(fd)
        s.close()
        if isinstance(e, OSError) and not isinstance(e, _errors.HmcfsError):
            raise _errors.of_os(e, socket_path) from e
        raise
    return reply, received, Held(s)
