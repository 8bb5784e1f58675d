"""A session with the daemon of a mount: calls, answers, registered memory."""

from __future__ import annotations

import collections
import errno
import fcntl
import json
import os
import posixpath
import select
import socket
import struct
import threading
import time
import weakref
from typing import Any, Callable, Sequence

from . import _errors, _frames

_REQUEST = (
    "POST /v1/session HTTP/1.1\r\nHost: hmcfs\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{extra}Content-Length: 0\r\n\r\n"
)
# _ANSWER bounds the time, in seconds, for the answer to a request of its own session.
_ANSWER = 120.0
_MAX_HEAD = 64 << 10
# _STOP bounds the time, in seconds, that the daemon takes to end a call or a session.
_STOP = 30.0
# _HELD bounds the time, in seconds, that the daemon takes to end what a connection holds.
_HELD = 2.0
# _TICK is the time, in seconds, after which frames are read that no thread waits for.
_TICK = 0.1
# _FIRST and _LAST are the pauses, in seconds, between attempts to reach the next daemon, _ATTEMPT bounds the time until it greets, and
# _MISSING the time for which there may be no socket: a daemon that has died leaves it, one that has ended in order does not.
_FIRST, _LAST, _ATTEMPT, _MISSING = 0.005, 0.2, 10.0, 2.0
# _CUT bounds the attempts that may be cut off of a client that was promised no daemon: one that dies does so once, but so does one
# that this user has too many connections with, each time.
_CUT = 5
# _DIED bounds the attempts of a request whose daemon dies after it has it: it may be the cause.
_DIED = 3
# _RANGES bounds the ranges of a file that the next daemon is told to have been read.
_RANGES = 64
# _RETURNING stands for the thread that reads while a session looks for the next daemon.
_RETURNING = -1
# _MOMENT is the time, in seconds, for which a thread asks for a frame before it sleeps.
_MOMENT = 150e-6


class Answer:
    """A call in progress. ``lines`` grows until ``over``."""

    def __init__(self, session: "Session", number: int) -> None:
        self._session = session
        self.number = number
        self.lines: list[_frames.Line] = []
        self.file: _frames.FileAnswer | None = None
        self.reply: Any = None
        # once is set for a request, which no later daemon is asked for.
        self.once = False
        self.begun = False
        self.over = False
        self.fault: _errors.HmcfsError | None = None
        # frame is the call, to be asked again, and _deadline the end of its timeout, if it has one.
        self.frame = b""
        self._deadline: float | None = None
        # _tried is set once there was a daemon that may have carried it out.
        self._tried = False
        # _left is set once the caller needs no more of it.
        self._left = False
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
        elif kind == _frames.REPLY:
            self.reply = json.loads(body)
        self.over = kind in (_frames.LAST, _frames.FAILURE, _frames.FILE_ANSWER, _frames.REPLY)
        for call in list(self.listeners):
            call()

    def again(self) -> bytes:
        """Return the call for the next daemon, with the rest of its timeout."""
        left = None if self._deadline is None else self._deadline - time.monotonic()
        tried, self._tried = self._tried, True
        return _frames.again(self.frame, left, tried)

    def wait(self, limit: float | None = None) -> list[_frames.Line]:
        """Wait for the whole answer, for limit seconds; raise the failure of the whole call."""
        if not self._session.read_until(lambda: self.over, limit):
            raise _errors.Disconnected(f"{self._session.path}: {self._session._peer} does not answer; hmcfs status says what still runs")
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
    # _deadline is the time at which the thread that reads gives up.
    _deadline: float | None
    _poll: select.poll | None
    _channel: socket.socket | None

    def __init__(self, path: str, timeout: float = 10.0) -> None:
        self._prepare(path)
        # A daemon that has died may be being started again.
        retry(path, timeout, lambda: False, lambda: self._begin(path, timeout), promised=False)
        with _open_lock:
            _open.add(self)
        self._watch()

    def _begin(self, path: str, timeout: float) -> None:
        """Connect, and open a session."""
        self._received.clear()
        self._poll = None
        self._socket = _connect(path, timeout)
        try:
            rest, head, channel = _upgrade(self._socket)
            self._channel = channel
            self._received += rest
            self._continues = continues(head)
            self._deadline = time.monotonic() + timeout
            kind, _, body = self._next_frame()
            if kind != _frames.HELLO or len(body) < 5:
                raise _errors.Disconnected(f"{path}: no session was answered")
            self.name = body[4:].decode()
            self._deadline = None
            # Threads that send, and one that reads, use the socket at the same time.
            self._socket.setblocking(True)
        except BaseException as e:
            self._socket.close()
            self._close_channel()
            if isinstance(e, (OSError, EOFError, ValueError)) and not isinstance(e, _errors.HmcfsError):
                raise _errors.of_os(e, path) from e
            raise

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
        # _channel passes descriptors.
        self._channel = None
        self._ended: _errors.HmcfsError | None = None
        # _continues is the time, in seconds, within which the session comes back to the daemon that follows one that has
        # died; 0 if it ends with the daemon.
        self._continues = 0.0
        # _away is set while there is no daemon, and _generation counts them. Both change with _writing and _changed held.
        self._away = False
        self._generation = 0
        # _next is the connection to the next daemon, while that has not given back everything.
        self._next: socket.socket | None = None
        # _memories and _opened say how memory is registered, and files are opened, again, by their numbers.
        self._memories: dict[int, tuple[dict[str, Any], list[int]]] = {}
        # The last part of a file of publish/ are the ranges that were read.
        self._opened: dict[int, tuple[bytes, int, int, list[tuple[int, int]]]] = {}
        # _finalizer ends the connection when the session is gone.
        self._finalizer: Any = None
        self._deadline = None
        # _awaited counts the futures that an event loop awaits, and _reader reads for them.
        self._awaited = 0
        self._reader: threading.Thread | None = None
        # _taking is set while bytes that were read are in no place where they are found again.
        self._taking = False
        self._poll = None
        # _pause counts the reads until the next one that asks before it sleeps, and _missed those in a
        # row that asked in vain.
        self._pause = self._missed = 0

    def close(self) -> None:
        """End the session: what belonged to it is released when this returns."""
        if self._ended is not None and isinstance(self._ended, _errors.Closed):
            return
        self._continues = 0.0
        try:
            self._socket.shutdown(socket.SHUT_WR)
            if not self._away:
                self.read_until(lambda: False, _STOP)
        except (OSError, _errors.HmcfsError):
            pass  # it has ended already
        with self._changed:
            self._end(_errors.Closed("the session is closed; connect again"))
            self._changed.notify_all()
        self._leave()
        self._forget_all()

    def _leave(self) -> None:
        """Close the socket when no other thread uses it: its number may be another file's afterwards."""
        for s in (self._socket, self._next):
            if s is not None:
                _shut(s)  # which wakes them
        if self._writing.acquire(timeout=_HELD):
            try:
                with self._changed:
                    if self._changed.wait_for(lambda: self._read_by in (None, threading.get_ident()), _HELD):
                        self._socket.close()
                        self._close_channel()
            finally:
                self._writing.release()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _forked(self) -> None:
        """Leave the session to the parent, in the child of a fork."""
        if self._finalizer is not None:
            self._finalizer.detach()  # the connection is the parent's
        self._socket.close()
        self._close_channel()
        if self._next is not None:
            self._next.close()
        self._writing, self._changed, self._read_by, self._reader = threading.Lock(), threading.Condition(), None, None
        self._answers = {}
        self._forget_all()
        self._ended = _errors.Closed("this session belongs to the process that forked; connect again")

    def start(self, verb: str, keys: Sequence[str] = (), lists: Sequence[_frames.Blobs] = (), **options: Any) -> Answer:
        """Send a call."""
        encoded = []
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"a key is text, not {key!r}")
            encoded.append(key.encode(errors="surrogateescape"))
            if len(encoded[-1]) > 255:
                raise _errors.Invalid("a key has at most 255 bytes", key)
        return self._start(lambda number: _frames.call(verb, number, encoded, lists, **options), options.get("timeout", 0))

    def file(self, verb: str, name: bytes = b"", other: bytes = b"", data: "bytes | memoryview" = b"", **fields: Any) -> _frames.FileAnswer:
        """Make a call on files, and wait for its answer."""
        generation = self._generation
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
        if self._continues and not answer.file.errno:
            if verb == "open" and (self._away or self._generation != generation):
                # It is not known which daemon has opened it.
                self.close_later(answer.file.handle)
                fields["flags"] = fields.get("flags", 0) & ~(os.O_EXCL | os.O_TRUNC)
                return self.file(verb, name, other, data, **fields)
            if verb == "open":
                flags = fields.get("flags", 0) & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
                self._opened[answer.file.handle] = (name, flags, _frames.stat(answer.file.data).st_ino, [])
            elif verb == "read":
                self._had_read(fields["handle"], fields.get("offset", 0), answer.file.n if "memory" in fields else len(answer.file.data))
            elif verb == "close":
                self._opened.pop(fields["handle"], None)
        return answer.file

    def _had_read(self, handle: int, start: int, n: int) -> None:
        """Keep that n bytes were read, of a file of publish/: the next daemon must know which."""
        with self._changed:
            of = self._opened.get(handle)
            if of is None or n == 0 or not posixpath.normpath(b"/" + of[0]).startswith(b"/publish/"):
                return
            had = of[3]
            if had and had[-1][1] == start:
                had[-1] = (had[-1][0], start + n)
            elif len(had) < _RANGES:
                had.append((start, start + n))

    def _start(self, encode: Callable[[int], bytes], timeout: float = 0, files: "Sequence[int] | None" = None) -> Answer:
        """Send a call; with files a request, and them before it."""
        with self._writing:
            self._check()
            self._cancel()
            self._number += 1
            answer = Answer(self, self._number)
            try:
                frame = encode(answer.number)
            except (ValueError, KeyError) as e:
                raise _errors.Invalid(str(e)) from e
            answer.once = files is not None
            if self._continues and not answer.once:
                answer.frame, answer._tried = frame, not self._away
                if timeout:
                    answer._deadline = time.monotonic() + timeout
            with self._changed:
                self._check()
                self._answers[answer.number] = answer
            if files and not self._away and self._channel is not None:
                _pass(self._channel, answer.number, files)
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
                    self._cancel_one(answer)
            self.read_until(lambda: answer.over, _STOP)
        except _errors.HmcfsError:
            pass  # the session has ended, and the call with it
        finally:
            if not answer.over and self._ended is None:
                # Its memory must not be used again while bytes may still arrive in it.
                self._abandon(f"{self._peer} did not end a call that was cancelled")

    def _cancel_one(self, answer: Answer) -> None:
        """Send the end of a call; the caller may send."""
        answer._left = True
        self._send(_frames.cancel(answer.number))
        with self._changed:
            self._drop()

    def _drop(self) -> None:
        """End the calls that are cancelled if there is no daemon, which would use their memory: no other is asked for them."""
        for answer in [a for a in self._answers.values() if a._left and self._away]:
            del self._answers[answer.number]
            answer.end(_errors.Interrupted("the call was cancelled; call it again"))

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
                self._cancel_one(answer)
        while self._left and not self._away:  # the next daemon may be opening them
            self._number += 1
            handle = self._left.popleft()
            self._opened.pop(handle, None)
            self._send(_frames.file_call("close", self._number, handle=handle))

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
            while True:
                with self._changed:
                    while self._read_by is not None and not done():
                        left = None if deadline is None else deadline - time.monotonic()
                        if left is not None and left <= 0:
                            return False
                        self._changed.wait(left)
                    if done():
                        return True
                    self._read_by = reader
                while self._read_by == reader:  # until it is left to the search for the next daemon
                    if done():
                        return True
                    self._check()
                    left = None if deadline is None else deadline - time.monotonic()
                    if not self._read(left):
                        return False
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
            if self._continues and self._ended is None and not isinstance(e, ValueError):
                self._depart()
                return True
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
        question: dict[str, Any] = {"device": device, **fields}
        if memory is not None:
            question["memory"] = memory
        # Before the daemon knows the memory, since this may fail.
        own = self._duplicates(files) if self._continues else []
        try:
            while True:
                generation = self._present()
                answer = self._start(lambda n: _frames.request("register", n, question, len(files)), files=files)
                try:
                    answer.wait()
                except _errors.Disconnected:
                    if self._replaced(generation):
                        continue
                    raise
                finally:
                    self.stop(answer)
                number = int(answer.reply["memory"])
                if not self._continues:
                    return number
                with self._changed:
                    if not self._away and self._generation == generation and self._ended is None:
                        self._memories[number], own = (question, own), []
                        return number
        finally:
            for fd in own:
                os.close(fd)

    def _duplicates(self, files: Sequence[int]) -> list[int]:
        own: list[int] = []
        try:
            for fd in files:
                own.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0))
        except OSError as e:
            for fd in own:
                os.close(fd)
            raise _errors.of_errno(e.errno or errno.EIO, self.path) from e
        return own

    def forget(self, number: int) -> None:
        """Register memory no more with the next daemon."""
        with self._changed:
            memory = self._memories.pop(number, None)
        for fd in memory[1] if memory else ():
            os.close(fd)

    def _forget_all(self) -> None:
        for number in list(self._memories):
            self.forget(number)

    def _present(self) -> int:
        """Wait until there is a daemon, and return the number of daemons before it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._away or self._ended is not None)
            self._check()
            return self._generation

    def _replaced(self, generation: int) -> bool:
        """Report whether a daemon has died, of which a connection has ended."""
        if self._continues:
            self.read_until(lambda: self._away or self._generation != generation, 1.0)
        return self._away or self._generation != generation

    # The search for the next daemon

    def _watch(self) -> None:
        """Have the end of the connection noticed even if no thread reads."""
        if not self._continues:
            return
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _shut, self._socket)
        self._finalizer.atexit = False
        threading.Thread(target=_guard, args=(weakref.ref(self), self._socket.fileno(), self._generation), name="hmcfs", daemon=True).start()

    def _depart(self) -> None:
        """Leave the connection to a thread that looks for the next daemon. The caller reads."""
        with self._changed:
            self._read_by = _RETURNING
        threading.Thread(target=self._come_back, name="hmcfs", daemon=True).start()

    def _come_back(self) -> None:
        """Continue the session with the next daemon, or end it."""
        with self._writing, self._changed:
            self._away = True
            self._drop()
            self._changed.notify_all()
        try:
            made = retry(self.path, self._continues, lambda: self._ended is not None, self._arrive)
            if made is None:
                raise _errors.Disconnected(f"{self.path}: the session is closed")
        except (_errors.HmcfsError, ValueError) as e:
            with self._changed:
                self._away, self._read_by = False, None
                self._end(_errors.Disconnected(f"{self.path}: {self._peer} has ended, and no other one continues the session: {e}"))
                self._changed.notify_all()
            return
        with self._writing:
            self._socket.close()
            self._close_channel()
            self._socket, self._received, self._channel = made
            self._poll, self._deadline = None, None
            with self._changed:
                self._away, self._read_by = False, None
                self._generation += 1
                calls = [self._answers[number] for number in sorted(self._answers)]
                for answer in calls:
                    if answer.once:
                        del self._answers[answer.number]
                        answer.end(_errors.Disconnected(f"{self.path}: the daemon has died"))
                self._changed.notify_all()
            self._watch()
            for answer in calls:
                if not answer.over and not answer.once:
                    self._send(answer.again())

    def _arrive(self) -> "tuple[socket.socket, bytearray, socket.socket]":
        """Make one attempt to continue the session: memory, keys and files are then as before.

        Only the greeting has a limit: the daemon takes the name once, so another attempt would be refused.
        """
        s, channel = _connect(self.path, _ATTEMPT), None
        try:
            rest, _, channel = _upgrade(s, self.name)
            received = bytearray(rest)
            if _one_frame(s, received)[0] != _frames.HELLO:
                raise ValueError("no session was answered")
            s.settimeout(None)
            self._next = s
            self._check()
            with self._changed:
                memories = dict(self._memories)
                opened = {handle: (name, flags, ino, list(had)) for handle, (name, flags, ino, had) in self._opened.items()}
            for number, (question, files) in memories.items():
                asked = {**question, "number": number}
                try:
                    self._exchange(s, received, lambda n: _frames.request("register", n, asked, len(files)), channel, files)
                except _errors.HmcfsError as e:
                    if not said(e):
                        raise  # it is lost otherwise
            self._exchange(s, received, lambda n: _frames.call("continue", n))
            for handle, (name, flags, ino, had) in opened.items():
                ranges = b"".join(struct.pack("<QQ", *r) for r in had)
                self._exchange(
                    s, received, lambda n: _frames.again(_frames.file_call("open", n, name, b"", ranges, flags=flags, handle=handle, size=ino))
                )
            return s, received, channel
        except BaseException as e:
            s.close()
            if channel is not None:
                channel.close()
            if isinstance(e, OSError) and not isinstance(e, _errors.HmcfsError):
                raise _errors.of_os(e, self.path) from e
            raise
        finally:
            self._next = None

    def _exchange(
        self, s: socket.socket, received: bytearray, encode: Callable[[int], bytes],
        channel: "socket.socket | None" = None, files: Sequence[int] = (),
    ) -> None:
        """Make a call on a connection on which nothing else is in progress."""
        with self._writing:
            self._number += 1
            number = self._number
        if channel is not None and files:
            _pass(channel, number, files)
        s.sendall(encode(number))
        while True:
            kind, of, body = _one_frame(s, received)[:3]
            if kind == _frames.FAILURE and of == number:
                raise _answered(*_frames.failure(body)[:2])
            if of == number:
                return

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
        if self._away:
            return  # calls are asked again
        sent = False
        try:
            self._socket.sendall(frame)
            sent = True
        except OSError as e:
            if self._continues:
                sent = True
                _shut(self._socket)  # whoever reads notices it
                return
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
            poll = self._poll
            if poll is None:
                self._poll = poll = select.poll()
                poll.register(self._socket, select.POLLIN)
            if not self._soon(poll.poll, left) and not poll.poll(left):
                raise TimeoutError("no frame has arrived")
            self._taking = True
            data = self._receive(max(1 << 16, size - len(self._received)))
            self._received += data
            self._taking = False
            if not data:
                raise EOFError("the connection was closed")

    def _soon(self, poll: Callable[[int], Any], left: float | None) -> bool:
        """Ask for bytes for a moment, without sleeping. Report whether there are some.

        Most answers arrive sooner than a sleeping thread wakes up. After moments in vain there are fewer.
        """
        if self._pause or left == 0:
            self._pause = max(0, self._pause - 1)
            return False
        clock = time.perf_counter
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


def _one_frame(s: socket.socket, received: bytearray) -> tuple[int, int, bytes, int]:
    """Read one frame of a connection that nothing else reads; also the number of its descriptors."""
    def fill(size: int) -> None:
        while len(received) < size:
            data = s.recv(1 << 16)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
            received.extend(data)

    fill(_frames.HEADER.size)
    size, kind, _, marks, number = _frames.HEADER.unpack_from(received)
    if size > _frames.MAX_BODY:
        raise ValueError(f"a frame of {size} bytes")
    end = _frames.HEADER.size + size
    fill(end)
    body = bytes(received[_frames.HEADER.size : end])
    del received[:end]
    return kind, number, body, marks >> 8


def _pass(channel: socket.socket, number: int, files: Sequence[int]) -> None:
    """Send the descriptors of a request. A daemon that has ended is noticed by those who read."""
    try:
        socket.send_fds(channel, [number.to_bytes(8, "little")], list(files))
    except (BrokenPipeError, ConnectionResetError):
        pass


def _shut(s: socket.socket) -> None:
    """End a connection, of which others may have descriptors."""
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended


def _guard(of: "weakref.ref[Session]", fd: int, generation: int) -> None:
    """Wait for the end of a connection, and have it noticed. Whoever closes it shuts it down before."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    poll.poll()
    found = of()
    if found is not None and found._ended is None:
        session: Session = found
        try:
            session.read_until(lambda: session._away or session._generation != generation, None)
        except (_errors.HmcfsError, OSError, ValueError):
            pass  # it has ended


def retry(path: str, limit: float, over: Callable[[], bool], attempt: Callable[[], Any], promised: bool = True) -> Any:
    """Make attempts to reach a daemon that is started again, for limit seconds.

    Return the result of the first success, None when it is over. A client that was promised another daemon goes on unless one
    refuses it, or it knows that nobody starts one; others only while there is a holder that says that it does.
    """
    deadline, pause, missing, cut = time.monotonic() + limit, _FIRST, 0.0, 0
    while not over():
        try:
            return attempt()
        except _errors.HmcfsError as e:
            now = time.monotonic()
            missing = (missing or now) if isinstance(e.__cause__, FileNotFoundError) else 0.0
            if said(e) and not isinstance(e, _errors.Busy) or getattr(e, "last", False) or now > deadline or missing and now - missing > _MISSING:
                raise
            if not promised:
                cut += not isinstance(e.__cause__, (ConnectionRefusedError, FileNotFoundError))
                if said(e) or not isinstance(e, _errors.Disconnected) or cut > _CUT:
                    raise
            if _revives(path) not in ((True, None) if promised else (True,)):
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LAST)
    return None


def opened(path: str, do: "Callable[[Requests], Any]") -> Any:
    """Open a session of requests for do, to which it belongs unless that fails, and return its result."""
    session = Requests(path)
    try:
        return do(session)
    except BaseException:
        session.close()
        raise


def asked(path: str, do: "Callable[[Requests], Any]", done: Callable[[], bool] = lambda: False) -> Any:
    """Do it in a session of requests, as opened does, and again with the next daemon if one dies meanwhile and its holder starts it again.

    None is returned if a daemon has died and done() says that it has done it before. The third death while it is being done is the last.
    """
    deaths = 0

    def once(session: "Requests") -> Any:
        nonlocal deaths
        try:
            return do(session)
        except _errors.Disconnected as e:
            deaths += 1
            e.last = deaths >= _DIED  # type: ignore[attr-defined]
            raise

    return retry(path, _ANSWER, lambda: deaths > 0 and done(), lambda: opened(path, once), promised=False)


def _revives(path: str) -> bool | None:
    """Ask the holder of a daemon whether it starts it again. None if that can't be known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(_ATTEMPT)
        try:
            s.connect(os.path.join(os.path.dirname(path), "hold.sock"))
            s.sendall(b'{"op":"status"}')
            return not json.loads(s.recv(1 << 14))["status"].get("gave_up", False)
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None


def said(error: BaseException) -> bool:
    """Report whether an error is one that a daemon has answered with."""
    return bool(getattr(error, "said", False))


def _answered(code: str, text: str) -> _errors.HmcfsError:
    """Return an error that a daemon has answered with."""
    error = _errors.of(code, text)
    error.said = True  # type: ignore[attr-defined]
    return error


def continues(head: bytes) -> float:
    """Return the time, in seconds, within which a client comes back to the next daemon; 0 if there is none."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"hmcfs-continues" and value.strip().isdigit():
            return float(value)
    return 0.0


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


def _connect(path: str, timeout: float | None) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(timeout)
        s.connect(path)
    except OSError as e:
        s.close()
        raise _errors.of_os(e, path) from e
    return s


def _upgrade(s: socket.socket, session: str = "") -> "tuple[bytes, bytes, socket.socket]":
    """Ask for a session; return what came after the answer, its head, and the channel for descriptors."""
    extra = f"Hmcfs-Session: {session}\r\n" if session else ""
    s.sendall(_REQUEST.format(protocol=_frames.PROTOCOL, extra=extra).encode())
    head, files = b"", list[int]()
    try:
        while b"\r\n\r\n" not in head:
            data, some, _, _ = socket.recv_fds(s, 4096, 2, socket.MSG_CMSG_CLOEXEC)
            files += some
            if not data or len(head) > _MAX_HEAD:
                raise _errors.Disconnected("the daemon closed the connection")
            head += data
        head, _, rest = head.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 101 "):
            if not files:
                raise _errors.Disconnected("no channel came with the answer; this process's limit of open files may be too low")
            channel = socket.socket(fileno=files.pop())
            channel.settimeout(_STOP)
            return rest, head, channel
    finally:
        for fd in files:
            os.close(fd)
    status = head.split(b"\r\n", 1)[0].split(b" ")[1]
    if status == b"200":  # a session without frames, whose answer has no end
        raise _answered("unsupported", f"the daemon does not speak {_frames.PROTOCOL}; use a package of its version, or update it with hmcfs upgrade")
    while not rest.rstrip().endswith(b"}") and len(rest) <= _MAX_HEAD:
        data = s.recv(4096)
        if not data:
            break
        rest += data
    try:
        told = json.loads(rest)
    except ValueError:
        told = {}
    raise _answered(told.get("code", "io"), told.get("error") or f"the daemon answered with status {status.decode()}")


class Requests:
    """A session for requests alone: a thread makes one, and waits for its answer, before the next one is made."""

    def __init__(self, path: str, timeout: "float | None" = _ANSWER) -> None:
        self.path, self.pid, self._number, self._received = path, os.getpid(), 0, bytearray()
        self.socket = _connect(path, timeout)
        try:
            rest, head, self._channel = _upgrade(self.socket)
        except BaseException as e:
            self.socket.close()
            if isinstance(e, OSError) and not isinstance(e, _errors.HmcfsError):
                raise _errors.of_os(e, path) from e
            raise
        self._received += rest
        # continues is the time, in seconds, within which another daemon comes; 0 if none does.
        self.continues = continues(head)
        # _over has the numbers of requests that are still to be ended, while _lock is held by who makes one.
        self._over: collections.deque[int] = collections.deque()
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _close_both, self.socket, self._channel)

    def ask(self, verb: str, question: Any, files: Sequence[int] = ()) -> "tuple[int, Any, list[int]]":
        """Make a request. Return its number, the first answer, and the descriptors that came with it."""
        with self._lock:
            self._number += 1
            number = self._number
            try:
                frame = _frames.request(verb, number, question, len(files))
                if files:
                    _pass(self._channel, number, files)
                self.socket.sendall(frame)
                reply, came = self._answer(number)
            except BaseException as e:
                if not said(e):
                    self.close()  # a part of a frame may have been sent, or the answer is still to come
                if isinstance(e, OSError) and not isinstance(e, _errors.HmcfsError):
                    raise _errors.of_os(e, self.path) from e
                raise
        self._end()
        return number, reply, came

    def more(self, number: int) -> Any:
        """Ask for the next part of an answer."""
        with self._lock:
            self.socket.sendall(_frames.more(number))
            return self._answer(number)[0]

    def _answer(self, number: int) -> "tuple[Any, list[int]]":
        """Read the next answer to a request, None at its end."""
        while True:
            files = list[int]()
            try:
                kind, of, body, count = _one_frame(self.socket, self._received)
                if count:
                    _, files, _, _ = socket.recv_fds(self._channel, 9, count, socket.MSG_CMSG_CLOEXEC)
            except OSError as e:
                raise _errors.of_os(e, self.path) from e
            if of == number and kind == _frames.FAILURE:
                raise _answered(*_frames.failure(body)[:2])
            if of == number and kind in (_frames.REPLY, _frames.PART) and len(files) == count:
                return json.loads(body), files
            for fd in files:
                os.close(fd)
            if kind == _frames.ENDED:
                raise _errors.Disconnected(f"{self.path}: the daemon has ended the session")
            if of == number and kind == _frames.LAST:
                return None, []
            if of == number:
                raise _errors.HmcfsError("the answer of the daemon is incomplete")

    def end(self, number: int) -> None:
        """End a request that lasts, and wait until the daemon has, but not for long: two seconds for those that end together.

        It may be called at any time, as by the end of an object: in the middle of a request of this thread it comes after that.
        """
        self._over.append(number)
        self._end()

    def _end(self) -> None:
        while self._over and self._lock.acquire(blocking=False):
            try:
                until = time.monotonic() + _HELD
                while self._over:
                    number = self._over.popleft()
                    self.socket.settimeout(_HELD)
                    self.socket.sendall(_frames.cancel(number))
                    try:
                        if (left := until - time.monotonic()) > 0:
                            self.socket.settimeout(left)
                            self._answer(number)
                    except _errors.Disconnected as e:
                        # One that the daemon takes longer to end does not end the others: its answer is passed over when it comes.
                        if not isinstance(e.__cause__, socket.timeout):
                            raise
                self.socket.settimeout(_ANSWER)
            except (OSError, ValueError, _errors.HmcfsError):
                self.close()  # the daemon has ended, or ends all of them now
                self._over.clear()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the session, and leave when to the daemon."""
        self._finalizer()

    def finish(self) -> None:
        """End the session, and wait until the daemon has."""
        try:
            self.socket.settimeout(_HELD)
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(1 << 12):
                pass
        except OSError:
            pass  # the daemon has ended, or ends it later
        self.close()


def _close_both(s: socket.socket, channel: socket.socket) -> None:
    s.close()
    channel.close()


def ask(socket_path: str, verb: str, question: dict[str, Any], files: Sequence[int], done: Callable[[], bool] = lambda: False) -> Any:
    """Make a request in a session of its own, and return the answer. See asked."""

    def only(session: Requests) -> Any:
        answer = session.ask(verb, question, files)[1]
        session.finish()
        return answer

    return asked(socket_path, only, done)


class Held:
    """An export that the daemon holds for this process until end()."""

    def __init__(self, session: Requests, number: int) -> None:
        self._session, self._number = session, number

    def end(self) -> None:
        """End it, as Requests.end does."""
        if os.getpid() == self._session.pid:  # else it goes on for the process that forked
            self._session.end(self._number)


# _exporting are the sessions that hold exports, by the sockets of their daemons.
_exporting: "weakref.WeakValueDictionary[str, Requests]" = weakref.WeakValueDictionary()


def export(socket_path: str, question: dict[str, Any], files: Sequence[int]) -> "tuple[Any, list[int], Held]":
    """Have memory exported to this process until the end of what is returned beside its description and descriptors."""

    def held(session: Requests) -> "tuple[Any, list[int], Held]":
        number, reply, came = session.ask("export", {**question, "hold": True}, files)
        return reply, came, Held(session, number)

    def first(session: Requests) -> "tuple[Any, list[int], Held]":
        _exporting[socket_path] = session
        return held(session)

    session = _exporting.get(socket_path)
    if session is not None and session.pid == os.getpid():
        try:
            return held(session)
        except _errors.Disconnected:
            pass  # the daemon has ended meanwhile, and perhaps another one is there
    made: "tuple[Any, list[int], Held]" = asked(socket_path, first)
    return made
