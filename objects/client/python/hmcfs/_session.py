"""A session with the daemon of a mount: calls, answers, registered memory."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any, Callable, Sequence

from . import _errors, _frames

_REQUEST = (
    "POST {path} HTTP/1.1\r\nHost: hmcfs\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{extra}Content-Length: 0\r\n\r\n"
)
_MAX_HEAD = 64 << 10
# _STOP bounds the time, in seconds, that the daemon takes to end a call or a session.
_STOP = 30.0


class Answer:
    """A call in progress. ``lines`` grows until ``over``."""

    def __init__(self, session: "Session", number: int) -> None:
        self._session = session
        self.number = number
        self.lines: list[_frames.Line] = []
        self.begun = False
        self.over = False
        self.fault: _errors.HmcfsError | None = None

    def _add(self, kind: int, body: bytes) -> None:
        if kind in (_frames.LINES, _frames.LAST):
            self.lines.extend(_frames.lines(body))
        elif kind in (_frames.BEGUN, _frames.FAILURE):
            self.begun = True
            if body:
                code, text, _ = _frames.failure(body)
                self.fault = _errors.of(code, text)
        self.over = kind in (_frames.LAST, _frames.FAILURE)

    def wait(self) -> list[_frames.Line]:
        """Wait for the whole answer; raise the failure of the whole call."""
        self._session.read_until(lambda: self.over, None)
        if self.fault is not None:
            raise self.fault
        return self.lines


class Session:
    """One connection to the daemon. Its methods may be called from any thread.

    A thread that waits for an answer reads the connection, and passes on what belongs to others; so
    a call needs no switch of threads. After a fork the child must open a session of its own.
    """

    def __init__(self, path: str, timeout: float = 10.0) -> None:
        self.path = path
        self._pid = os.getpid()
        self._writing = threading.Lock()
        # _changed guards _read_by, the thread that reads, and is notified of every frame.
        self._changed = threading.Condition()
        self._read_by: int | None = None
        self._answers: dict[int, Answer] = {}
        self._number = 0
        self._received = bytearray()
        self._ended: _errors.HmcfsError | None = None
        self._socket = _connect(path, timeout)
        try:
            rest = _upgrade(self._socket, "/v1/session", _frames.PROTOCOL)
            self._received += rest
            self._socket.settimeout(timeout)
            kind, _, body = self._next_frame()
            if kind != _frames.HELLO or len(body) < 5:
                raise _errors.Disconnected(f"{path}: no session was answered")
            self.name = body[4:].decode()
            self._socket.settimeout(None)
        except OSError as e:
            self._socket.close()
            raise _errors.of_os(e, path) from e
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the session: what belonged to it is released when this returns."""
        if self._ended is not None and isinstance(self._ended, _errors.Closed):
            return
        if os.getpid() != self._pid:
            self._socket.close()  # the parent's session goes on
            self._ended = _errors.Closed("the session is closed")
            return
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self.read_until(lambda: False, _STOP)
        except (OSError, _errors.HmcfsError):
            pass  # it has ended already
        self._socket.close()
        self._ended = _errors.Closed("the session is closed")

    def start(self, verb: str, keys: Sequence[str] = (), lists: Sequence[_frames.Blobs] = (), **options: Any) -> Answer:
        """Send a call."""
        encoded = [k.encode(errors="surrogateescape") for k in keys]
        for key in encoded:
            if len(key) > 255:
                raise _errors.Invalid("a key has at most 255 bytes", os.fsdecode(key))
        with self._writing:
            self._check()
            self._number += 1
            answer = Answer(self, self._number)
            try:
                frame = _frames.call(verb, answer.number, encoded, lists, **options)
            except (ValueError, KeyError) as e:
                raise _errors.Invalid(str(e)) from e
            self._answers[answer.number] = answer
            self._send(frame)
        return answer

    def call(self, verb: str, keys: Sequence[str] = (), lists: Sequence[_frames.Blobs] = (), **options: Any) -> list[_frames.Line]:
        """Make a call and wait for its whole answer."""
        answer = self.start(verb, keys, lists, **options)
        try:
            return answer.wait()
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
                self._socket.shutdown(socket.SHUT_RDWR)
                self._ended = _errors.Disconnected(f"{self.path}: the daemon did not end a call that was cancelled")

    def read_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until done() is true. Return False if the time ends before.

        One of the threads that wait reads frames, for all of them.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._read_by is not None and not done():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
            if done():
                return True
            self._read_by = threading.get_ident()
        try:
            while not done():
                self._check()
                left = None if deadline is None else deadline - time.monotonic()
                if not self._read(left):
                    return False
            return True
        finally:
            with self._changed:
                self._read_by = None
                self._changed.notify_all()

    def _read(self, timeout: float | None) -> bool:
        """Read a frame for the answer it belongs to. Return False if the time ends before."""
        self._socket.settimeout(None if timeout is None else max(1e-6, timeout))
        try:
            kind, number, body = self._next_frame()
        except (TimeoutError, socket.timeout):
            return False
        except (OSError, EOFError, ValueError) as e:
            kind, number, body = _frames.ENDED, 0, b""
            reason = f"{self.path}: the daemon has ended, or the session: {e}"
        else:
            reason = f"{self.path}: the daemon has ended the session"
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
        if os.getpid() != self._pid:
            raise _errors.Closed("this session belongs to the process that forked; connect again")
        if self._ended is not None:
            raise self._ended

    def _end(self, error: _errors.HmcfsError) -> None:
        self._ended = error
        for answer in self._answers.values():
            answer.fault, answer.over = error, True
        self._answers.clear()

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as e:
            self._ended = _errors.of_os(e, self.path)
            raise self._ended from e

    def _next_frame(self) -> tuple[int, int, bytes]:
        """Read one frame. What has arrived of it is kept when the time ends."""
        self._fill(_frames.HEADER.size)
        size, kind, _, _, number = _frames.HEADER.unpack_from(self._received)
        if size > _frames.MAX_BODY:
            raise ValueError(f"a frame of {size} bytes")
        end = _frames.HEADER.size + size
        self._fill(end)
        body = bytes(self._received[_frames.HEADER.size : end])
        del self._received[:end]
        return kind, number, body

    def _fill(self, size: int) -> None:
        while len(self._received) < size:
            data = self._socket.recv(max(1 << 16, size - len(self._received)))
            if not data:
                raise EOFError("the connection was closed")
            self._received += data


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
    reply, received, s = ask_held(socket_path, path, question, files, session, timeout)
    s.close()
    return reply, received


def ask_held(
    socket_path: str, path: str, question: dict[str, Any], files: Sequence[int], session: str = "", timeout: float = 120.0
) -> tuple[dict[str, Any], list[int], socket.socket]:
    """Make a request with descriptors, and keep its connection open: the caller closes it."""
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
            more, fds, _, _ = socket.recv_fds(s, 1 << 16, 253)
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
    return reply, received, s
