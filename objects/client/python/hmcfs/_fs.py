"""The client of one mount, or of a daemon without one."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import datetime
import errno
import functools
import fcntl
import json
import math
import operator
import os
import stat
import sys
import tempfile
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence

from . import _bound, _dtypes, _errors, _frames, _mounted, _remote
from ._files import File, open_file
from ._memory import Region, Slots, address, cuda_address, flat, is_torch, type_and_shape
from ._session import Answer, Requests, Session, asked, opened, retry


class Future:
    """The outcome of one key of a call in progress; ``await`` it, or call result()."""

    def __init__(self, session: Session, answer: Answer, index: int, key: str, keep: Any) -> None:
        self._session, self._answer, self._index, self.key = session, answer, index, key
        self._keep = keep  # the memory that is in use until then

    def _line(self) -> _frames.Line | None:
        return next((one for one in self._answer.lines if one.index == self._index), None)

    def _ready(self) -> bool:
        return self._answer.over or self._line() is not None

    def done(self) -> bool:
        """Report whether there is an outcome."""
        return self._ready() or self._session.read_until(self._ready, 0)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the outcome: return, or raise the error of the key. What is received is returned."""
        if not self._session.read_until(self._ready, timeout):
            raise _errors.Timeout("not done in time; call it again, or give a longer timeout", self.key)
        line = self._line()
        if line is not None and line.code:
            raise _errors.of(line.code, line.text, self.key)
        if line is None:
            raise self._answer.fault or _errors.HmcfsError("the answer of the daemon is incomplete", self.key)

        return self._value()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the outcome, as result() does."""
        return self.result(timeout)

    def _value(self) -> Any:
        return None

    def __await__(self) -> Any:
        return self._awaitable().__await__()

    async def _awaitable(self) -> Any:
        loop = asyncio.get_running_loop()
        came = loop.create_future()

        def finish() -> None:
            if not came.done():
                came.set_result(None)

        def arrived() -> None:
            if self._ready():
                loop.call_soon_threadsafe(finish)

        session, answer = self._session, self._answer
        with session._changed:
            answer.listeners.append(arrived)
            arrived()
        session.awaited(1)
        try:
            await came
        finally:
            session.awaited(-1)
            with session._changed:
                answer.listeners.remove(arrived)
        return self.result(0)


class Receipt(Future):
    """A publication that is awaited. If nothing refers to it any more, it is no longer awaited."""

    def __init__(self, session: Session, answer: Answer, key: str, arrival: "_Arrival") -> None:
        super().__init__(session, answer, 0, key, None)
        self._arrival = arrival
        weakref.finalize(self, arrival.drop, session).atexit = False

    def _value(self) -> Any:
        return self._arrival.take()


class _Arrival:
    """The memory that a publication arrives in: that of out, or a slot, whose bytes are then copied."""

    def __init__(self, answer: Answer, out: Any, view: memoryview, slot: Any) -> None:
        self._answer, self._out, self._view, self._slot = answer, out, view, slot
        self._lock = threading.Lock()
        self._dropped = False

    def take(self) -> Any:
        """Return the array with what has arrived."""
        with self._lock:
            slot, self._slot = self._slot, None
            if slot is not None:
                self._view[:] = slot.view
                slot.__exit__()
        return self._out

    def drop(self, session: Session) -> None:
        self._dropped = True
        if not self._answer.over:
            session.cancel_later(self._answer)

    def reap(self) -> bool:
        """Give the slot back if no one wants what arrives in it. Report whether nothing more is to be done."""
        if not self._answer.over:
            return False
        line = next(iter(self._answer.lines), None)
        with self._lock:
            if self._slot is not None and (self._dropped or line is None or line.code):
                slot, self._slot = self._slot, None
                slot.__exit__()
            return self._slot is None


class Event(Dict[str, Any]):
    """An event of a key: ``event``, ``key``, ``time``, ``device``, ``size``, …"""

    __getattr__ = dict.__getitem__


class _Staged:
    """The memory of a call: lists of blobs, and a slot with copies of the arrays that are not registered."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lists: list[_frames.Blobs] = []
        # copies are the index, the bytes and the offset in the slot of each of them.
        self.copies: list[tuple[int, memoryview, int]] = []
        self.slot: Any = None

    def __enter__(self) -> "_Staged":
        return self

    def __exit__(self, *_: object) -> None:
        if self.slot is not None:
            self.slot.__exit__()


class FileSystem:
    """One mount, or a daemon without one: its files, and its keys. Its methods may be called from any thread.

    Calls about several keys have an outcome for each: keys that fail raise together, after the others
    are done, as the first one's error, whose ``failures`` has all of them by key.
    """

    # _timeout is the time, in seconds, for which a daemon may take to answer a new session.
    _timeout = 10.0

    def __init__(self, path: str, socket_path: str) -> None:
        self.path = path
        self.socket_path = socket_path
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._slots: Slots | None = None
        # _regions are the pieces of memory of empty(), by address; _unused are the addresses of those whose
        # arrays are gone, which the next call of empty() gives back.
        self._regions: dict[int, Region] = {}
        self._unused: collections.deque[int] = collections.deque()
        # _named keeps the memory that keys name.
        self._named: dict[str, Any] = {}
        # _offered are publications of copies, whose memory is given back after they were received.
        self._offered: list[Future] = []
        # _arriving is the memory of subscriptions.
        self._arriving: list[_Arrival] = []

    def __enter__(self) -> "FileSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session: what this process published and set from its memory is gone."""
        with self._lock:
            session, self._session, self._slots = self._session, None, None
            self._regions, self._offered, self._arriving, self._named = {}, [], [], {}
            self._unused.clear()
        if session is not None:
            session.close()

    def _open(self) -> tuple[Session, Slots]:
        with self._lock:
            if self._session is None or self._slots is None:
                self._session = Session(self.socket_path, self._timeout)
                self._slots = Slots(self._session)
            return self._session, self._slots

    # Files

    @functools.cached_property
    def _has_mount(self) -> bool:
        return self.path in _mounts()

    def _name(self, path: str) -> str:
        """Return the name of a file from the root of the tree; a path may begin with that of the mount, too."""
        path = os.fsdecode(path)
        if "\0" in path:
            raise _errors.of_errno(errno.EINVAL, path)
        folder, last = os.path.split(path)
        for one in (path, os.path.join(os.path.realpath(folder), last)) if os.path.isabs(path) else (path,):
            name = os.path.relpath(one, self.path) if os.path.isabs(one) else os.path.normpath(one or ".")
            if name != ".." and not name.startswith("../"):
                return name
        raise _errors.Invalid(f"{path} is outside of {self.path}")

    @property
    def _tree(self) -> _mounted.Tree | _remote.Tree:
        """The files: those of the mount, or of the session if there is none."""
        return _mounted.Tree(self.path) if self._has_mount else _remote.Tree(*self._open(), self._registered)

    def open(self, path: str) -> File:
        """Map the memory of a file, without a copy. A path may be relative to the mount."""
        # On a mount, symbolic links may lead to it from outside.
        name = os.path.join(self.path, path) if self._has_mount else self._name(path)
        return open_file(self.socket_path, self._tree.memory(name))

    def listdir(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted."""
        return self._tree.names(self._name(path))

    def stat(self, path: str) -> os.stat_result:
        """Describe a file or a directory, as os.stat() does."""
        return self._tree.stat(self._name(path))

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return self._tree.read(self._name(path))

    def write(self, path: str, data: Any) -> None:
        """Make bytes, or those of an array, the content of a file, which is created if it does not exist."""
        self._tree.write(self._name(path), flat(data, False, path, empty=True))

    def remove(self, path: str) -> None:
        """Remove a file, or an empty directory."""
        self._tree.remove(self._name(path))

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, also on another device, and replace a file that has it."""
        self._tree.rename(self._name(source), self._name(target))

    def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a directory; with parents also those above it."""
        name, tree = self._name(path), self._tree
        try:
            tree.mkdir(name)
        except _errors.NotFound:
            if not parents or name == ".":
                raise
            self.mkdir(os.path.dirname(name), parents=True, exist_ok=True)
            self.mkdir(name, exist_ok=exist_ok)
        except _errors.Exists:
            if not exist_ok or not stat.S_ISDIR(tree.stat(name).st_mode):
                raise

    def attribute(self, path: str, attribute: str) -> bytes:
        """Return one extended attribute of a file, such as user.hmc.device."""
        return self._tree.attribute(self._name(path), attribute)

    def attributes(self, path: str) -> dict[str, bytes]:
        """Return the extended attributes that were set, by name."""
        tree, name = self._tree, self._name(path)
        return {one: tree.attribute(name, one) for one in tree.attribute_names(name)}

    def set_attribute(self, path: str, attribute: str, value: "str | bytes | None") -> None:
        """Set an extended attribute of a file, or remove it: None is no value."""
        self._tree.set_attribute(self._name(path), attribute, value.encode() if isinstance(value, str) else value)

    def copy(self, source: str, target: str) -> None:
        """Copy a file inside the daemon, also to a directory: the bytes do not pass through this process."""
        tree, from_, to = self._tree, self._name(source), self._name(target)
        try:
            there = tree.stat(to)
            if stat.S_ISDIR(there.st_mode):
                to = os.path.join(to, os.path.basename(from_))
                there = tree.stat(to)
            if there.st_ino == tree.stat(from_).st_ino:
                raise _errors.Invalid(f"{source} and {target} are the same file")
        except _errors.NotFound:
            pass  # it is created, or the copy says what is missing
        tree.copy(from_, to)

    def bind(self, path: str, x: Any, *, copy: bool = False) -> _bound.Bound:
        """Make memory of this process the content of a new file, until the end of ``with``, or close().

        The memory is that of empty(), or of a CUDA device; with copy, other memory is copied once, and ``with``
        returns the copy. Work on a device must have ended, as after torch.cuda.synchronize().
        """
        name = self._name(path)
        place = _bound.Place(self.socket_path, lambda: self._tree, name, os.path.join(self.path, name) if self._has_mount else name)
        dtype, shape = type_and_shape(x)
        address_there = cuda_address(x, path)
        if address_there is not None:
            return _bound.cuda(place, x, address_there, dtype, shape)
        view = flat(x, not copy, path, copy)
        found = self._region_of(view)
        if found is None and copy:
            source, x = view, self._like(x, view.nbytes)
            view = flat(x, True, path)
            view[:] = source
            found = self._region_of(view)
        if found is None:
            raise _errors.Invalid(
                f"{path}: this memory can't be shared with another process: make x with fs.empty(shape, dtype), or give copy=True"
            )
        piece = {"kind": "memfd", "fd": 0, "offset": address(view) - found.start, "size": view.nbytes}
        return _bound.Bound(place, x, _bound.describe(dtype, shape, [piece], "host", ""), [found.fd])

    def _like(self, x: Any, size: int) -> Any:
        """Return memory of empty() of the type and shape of an array."""
        if is_torch(x):
            return sys.modules["torch"].frombuffer(self.empty(size), dtype=x.dtype).reshape(x.shape)
        return self.empty(x.shape, x.dtype) if hasattr(x, "dtype") else self.empty(size)

    # Memory

    def empty(self, shape: Any, dtype: Any = "u1") -> Any:
        """Return an array in memory that the daemon can reach: keys and publications use it without a copy.

        Where NumPy is not installed it is a memoryview of that type and shape.
        """
        what = f"an array of {shape} elements of {dtype}"
        try:
            lengths = tuple(operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
            make, item = _maker(dtype, what)
        except TypeError as e:
            raise _errors.Invalid(f"{what}: {e}") from e
        size = math.prod(lengths) * item
        if size <= 0 or min(lengths, default=1) < 0:
            raise _errors.Invalid(f"an array of {shape} elements has no bytes")
        self._give_back()
        try:
            region = Region(self._open()[0], size, passed=True)
        except OSError as e:
            if e.errno != errno.ENOMEM:
                raise
            raise _errors.NoMemory(f"{what}: {e.strerror}") from e
        with self._lock:
            self._regions[region.start] = region
        array, shaped = make(region, lengths)
        weakref.finalize(array, self._unused.append, region.start)  # all views of it keep it
        return shaped

    def _give_back(self) -> None:
        """Give memory back that is no longer used: of arrays that are gone, and of what was received."""
        regions = []
        with self._lock:
            while self._unused:
                region = self._regions.pop(self._unused.popleft(), None)
                if region is not None:
                    regions.append(region)
            done = [f for f in self._offered if f._ready()]
            self._offered = [f for f in self._offered if not f._ready()]
            self._arriving = [a for a in self._arriving if not a.reap()]
        for future in done:
            regions.append(future._keep)
        for region in regions:
            region.close()

    def _registered(self, session: Session, view: memoryview) -> _frames.Blobs | None:
        """Return the blob of bytes inside memory of empty() of this session; None for other memory."""
        region = self._region_of(view)
        if region is None or region.session is not session:
            return None
        return region.blobs(address(view) - region.start, view.nbytes)

    def _region_of(self, view: memoryview) -> Region | None:
        """Return the memory of empty() that bytes are in."""
        if view.readonly or not self._regions:
            return None
        at = address(view)
        with self._lock:
            for start, region in self._regions.items():
                if start <= at and at + view.nbytes <= start + region.size:
                    return region
        return None

    # Keys

    def set(self, key: str, data: Any, *, ttl: float = 0, existing: str = "replace", copy: bool = False) -> None:
        """Keep a copy of data under a key, in host memory. Arrays that are not contiguous need copy."""
        self.d2h({key: data}, ttl=ttl, existing=existing, copy=copy)

    def get(self, key: str) -> bytes:
        """Return the bytes of a key."""
        for attempt in range(4):
            try:
                return self._get(key)
            except _errors.Shape:
                if attempt == 3:
                    raise  # it is replaced by values of other sizes again and again
        raise AssertionError("unreachable")

    def _get(self, key: str) -> bytes:
        session, slots = self._open()
        line = self._one(session.call("info", [key]), key)
        with slots.take(line.size) as slot:
            memory, at, _ = slot.blobs.blobs[0]
            blobs, offset = [], at
            for size in line.blobs:
                blobs.append((memory, offset, size))
                offset += size
            self._one(session.call("h2d", [key], [_frames.Blobs("host", blobs)]), key)
            return bytes(slot.view)

    def d2h(self, data: Mapping[str, Any], *, ttl: float = 0, existing: str = "replace", copy: bool = False) -> None:
        """Keep copies of data under keys, in host memory.

        existing says what becomes of a key that exists: "replace" it, "skip" it, or "fail".
        """
        self._out("d2h", data, copy, ttl=ttl, existing=existing)

    def mset(self, data: Mapping[str, Any], *, ttl: float = 0) -> None:
        """Make keys name memory, which must be of empty(): it stays this process's, and nothing is copied."""
        session, lists = self._open()[0], []
        for key, x in data.items():
            view = flat(x, False, f"key {key!r}")
            blobs = self._registered(session, view)
            if blobs is None:
                raise _errors.Invalid("mset names memory itself, which must be of empty(); d2h and set keep a copy", key)
            lists.append(blobs)
        lines = session.call("mset", list(data), lists, ttl=ttl)
        failed = {one.index for one in lines if one.code}
        self._named.update((key, x) for i, (key, x) in enumerate(data.items()) if i not in failed)
        self._raise(lines, list(data))

    def mget(self, keys: Sequence[str], out: Sequence[Any], *, timeout: float = 0) -> None:
        """Copy the bytes of keys, however they were set, into arrays of the same sizes."""
        self._in("mget", list(keys), list(out), timeout=timeout)

    def h2d(self, data: Mapping[str, Any], *, timeout: float = 0) -> None:
        """Copy objects in host memory into arrays of the same sizes."""
        self._in("h2d", list(data), list(data.values()), timeout=timeout)

    def _lists(self, keys: Sequence[str], arrays: Sequence[Any], writable: bool, copy: bool = False) -> "_Staged":
        """Return the memory of arrays: their own, or parts of one piece of registered memory."""
        session, slots = self._open()
        staged, total = _Staged(session), 0
        for key, x in zip(keys, arrays):
            view = flat(x, writable, f"key {key!r}", copy)
            blobs = self._registered(session, view)
            if blobs is None:
                staged.copies.append((len(staged.lists), view, total))
                total += -(-view.nbytes // 64) * 64
            staged.lists.append(blobs)  # type: ignore[arg-type]
        if total:
            staged.slot = slots.take(total)
            (memory, start, _), = staged.slot.blobs.blobs
            for index, view, at in staged.copies:
                staged.lists[index] = _frames.Blobs("host", ((memory, start + at, view.nbytes),))
        return staged

    def _out(self, verb: str, data: Mapping[str, Any], copy: bool, **options: Any) -> None:
        keys = list(data)
        with self._lists(keys, list(data.values()), False, copy) as staged:
            for _, view, at in staged.copies:
                staged.slot.view[at : at + view.nbytes] = view
            self._raise(staged.session.call(verb, keys, staged.lists, **options), keys)

    def _in(self, verb: str, keys: list[str], out: list[Any], **options: Any) -> None:
        if len(keys) != len(out):
            raise _errors.Invalid(f"{len(keys)} keys, but {len(out)} arrays")
        with self._lists(keys, out, True) as staged:
            lines = staged.session.call(verb, keys, staged.lists, **options)
            good = {one.index for one in lines if not one.code}
            for index, view, at in staged.copies:
                if index in good:
                    view[:] = staged.slot.view[at : at + view.nbytes]
            self._raise(lines, keys)

    def delete(self, *keys: str) -> None:
        """Remove keys. A key that does not exist is none to remove."""
        lines = self._open()[0].call("delete", keys)
        for one in lines:
            if not one.code:
                self._named.pop(keys[one.index], None)
        self._raise(lines, keys)

    def exists(self, *keys: str) -> Any:
        """Report whether the bytes of a key are there; for several keys a list."""
        lines = self._open()[0].call("exist", keys)
        self._raise(lines, keys)
        found = [False] * len(keys)
        for one in lines:
            found[one.index] = one.exists
        return found[0] if len(keys) == 1 else found

    def expire(self, ttl: float, *keys: str) -> None:
        """Set the time to live of keys from now on, in whole seconds; 0 is for ever."""
        self._raise(self._open()[0].call("expire", keys, ttl=ttl), keys)

    def wait(self, keys: Sequence[str], timeout: float = 60) -> None:
        """Wait until all keys are there, or raise Timeout."""
        self._raise(self._open()[0].call("wait", list(keys), timeout=timeout), list(keys))

    def publish(self, key: str, x: Any, *, copy: bool = False) -> Future:
        """Offer memory to one subscriber. The future is done when the subscriber has the bytes.

        Memory of empty() is offered itself; of other memory a copy is. Arrays that are not contiguous need copy.
        """
        session = self._open()[0]
        session.read_in_background()
        self._give_back()
        view = flat(x, False, f"key {key!r}", copy)
        blobs = self._registered(session, view)
        if blobs is not None:
            return self._begun(session.start("publish", [key], [blobs]), key, x)
        staged = Region(session, view.nbytes)
        try:
            staged.view[:] = view
            future = self._begun(session.start("publish", [key], [staged.blobs(0, view.nbytes)]), key, staged)
        except BaseException:
            staged.close()
            raise
        with self._lock:
            self._offered.append(future)
        return future

    def subscribe(self, key: str, out: Any, timeout: float = 20) -> Future:
        """Receive a publication into an array: ``result()`` waits for it, for timeout seconds, and returns the array.

        A future that nothing refers to any more receives nothing.
        """
        view = flat(out, True, f"key {key!r}")
        session, slots = self._open()
        session.read_in_background()
        self._give_back()
        blobs, slot = self._registered(session, view), None
        if blobs is None:
            slot = slots.take(view.nbytes)
            blobs = slot.blobs
        try:
            answer = session.start("subscribe", [key], [blobs], timeout=timeout)
        except BaseException:
            if slot is not None:
                slot.__exit__()
            raise
        arrival = _Arrival(answer, out, view, slot)
        with self._lock:
            self._arriving.append(arrival)
        return Receipt(session, answer, key, arrival)

    def _begun(self, answer: Answer, key: str, keep: Any) -> Future:
        answer._session.read_until(lambda: answer.begun or answer.over, None)
        future = Future(answer._session, answer, 0, key, keep)
        if future._line() is not None or answer.fault is not None:
            future.result()
        return future

    def watch(self, prefix: str = "") -> Iterator[Event]:
        """Return the events of keys that begin with a prefix, also written ``prefix*``, from now on.

        They have no end: when the daemon ends, and none continues, Disconnected is raised. A daemon that is being started again is waited for.
        """
        session, number = asked(self.socket_path, self._stream)
        return self._events(session, number, prefix[:-1] if prefix.endswith("*") else prefix)

    @staticmethod
    def _stream(session: Requests) -> "tuple[Requests, int]":
        """Request events. Return the session, and the number of the request."""
        number, _, _ = session.ask("watch", {})
        session.socket.settimeout(None)
        return session, number

    def _events(self, session: Requests, number: int, prefix: str) -> Iterator[Event]:
        while True:
            limit = session.continues
            try:
                while True:
                    try:
                        some = session.more(number)
                    except (OSError, _errors.HmcfsError, ValueError):
                        break  # the daemon has ended
                    for event in map(Event, some["events"] if some else ()):
                        if event.get("event") == "dropped" or event.get("key", "").startswith(prefix):
                            yield event
            finally:
                session.close()
            try:
                found = retry(self.socket_path, limit, lambda: False, lambda: opened(self.socket_path, self._stream)) if limit else None
            except _errors.HmcfsError as e:
                raise _errors.Disconnected(f"{self.socket_path}: the daemon has ended, and with it the events: {e}") from e
            if found is None:
                raise _errors.Disconnected(f"{self.socket_path}: the daemon has ended, and with it the events; connect again")
            session, number = found
            now = datetime.datetime.now(datetime.timezone.utc).isoformat()
            yield Event(seq=0, time=now, event="dropped", key="", size=0, dropped=0)

    @staticmethod
    def _one(lines: Sequence[_frames.Line], key: str) -> _frames.Line:
        if not lines:
            raise _errors.HmcfsError("the answer of the daemon is incomplete", key)
        if lines[0].code:
            raise _errors.of(lines[0].code, lines[0].text, key)
        return lines[0]

    @staticmethod
    def _raise(lines: Sequence[_frames.Line], keys: Sequence[str]) -> None:
        failures = {keys[one.index]: _errors.of(one.code, one.text, keys[one.index]) for one in lines if one.code}
        if failures:
            first = next(iter(failures.values()))
            first.failures = failures
            raise first
        if len({one.index for one in lines}) != len(keys):
            raise _errors.HmcfsError(f"the answer of the daemon has {len(lines)} of {len(keys)} keys")


def _maker(dtype: Any, what: str) -> "tuple[Callable[[Region, tuple[int, ...]], tuple[Any, Any]], int]":
    """Return a function of memory and a shape that makes an array, and it in its shape; and the bytes of an element."""
    try:
        import numpy
    except ImportError:
        one = _dtypes.of_plain(dtype, what)

        def plain(region: Region, lengths: tuple[int, ...]) -> tuple[Any, Any]:
            array = (ctypes.c_ubyte * region.size).from_buffer(region.map)
            return array, memoryview(array).cast("B").cast(one.ctype._type_, lengths)

        return plain, one.size
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise _errors.Invalid(f"{what}: Python objects can't be in shared memory; give a type of numbers")

    def in_numpy(region: Region, lengths: tuple[int, ...]) -> tuple[Any, Any]:
        array = numpy.frombuffer(region.view, kind)
        return array, array.reshape(lengths)

    return in_numpy, kind.itemsize


def connect(path: str | None = None) -> FileSystem:
    """Return the client of a mount, or of a daemon without one.

    It is that of ``path`` (a mount point, the directory of ``hmcfs serve``, a path below one, or the
    daemon's socket), else of ``$HMCFS_MOUNT``, else of the current directory, else the only one that
    there is.
    """
    path = path or os.environ.get("HMCFS_MOUNT")
    if path is None:
        only = _mount_of(os.getcwd()) or _only(sorted({*_mounts(os.geteuid()), *_served()} or _mounts()))
        return FileSystem(only, _socket_of(only))
    path = os.path.realpath(path)
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
        found = _mount_of(path)
    except OSError as e:
        # A file of a served directory is none of the kernel's.
        is_socket, found = False, _served_of(path)
        if found is None:
            raise _errors.NotMounted(f"{path}: {e.strerror}") from e
    if is_socket:
        return FileSystem("/", path)
    if found is None:
        remedy = _untrusted(path) or "mount one with hmcfs mount, or run hmcfs serve"
        raise _errors.NotMounted(f"{path} is not on an hmcfs mount; {remedy}")
    return FileSystem(found, _socket_of(found))


def _mounts(admitted: int | None = None) -> list[str]:
    """Return the mounts: all, or those that admit a user."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            before, _, after = line.partition(" - ")
            kind, _, options = after.rstrip("\n").split(" ", 2)
            if kind in ("fuse.hmcfs", "hmcfs") and (admitted is None or {f"user_id={admitted}", "allow_other"} & {*options.split(",")}):
                point = before.split(" ")[4]
                for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                    point = point.replace(code, char)
                found.append(point)
    return found


def _mount_of(path: str) -> str | None:
    best = [m for m in _mounts() if path == m or path.startswith(m.rstrip("/") + "/")]
    return max(best, key=len) if best else _served_of(path)


def _served_of(path: str) -> str | None:
    """Return the directory of ``hmcfs serve`` that contains a path."""
    while True:
        if _is_served(path):
            return path
        up = os.path.dirname(path)
        if up == path:
            return None
        path = up


def _untrusted(path: str) -> str:
    """Return a text about a directory above a path that is not a served one only because others may write to it."""
    while True:
        for at in (path, os.path.join(path, ".hmcfs")):
            if _says_served(path) and os.lstat(at).st_mode & 0o022:
                return f"other users may write to {at}, so it could lead to a daemon of theirs; revoke that permission: chmod go-w {at}"
        up = os.path.dirname(path)
        if up == path:
            return ""
        path = up


def _is_served(path: str) -> bool:
    # Others than the owner must not be able to make a directory look like a served one.
    try:
        both = os.lstat(path), os.lstat(os.path.join(path, ".hmcfs"))
    except OSError:
        return False
    if any(not stat.S_ISDIR(s.st_mode) or s.st_mode & 0o022 or s.st_uid != both[0].st_uid for s in both):
        return False
    return _says_served(path)


def _says_served(path: str) -> bool:
    try:
        with open(os.path.join(path, ".hmcfs", "config"), "rb") as f:
            config = json.load(f)
    except (OSError, ValueError):
        return False
    return config.get("served") is True and config.get("mount-point") == path


def _served() -> list[str]:
    """Return the directories that living daemons of this user serve without a mount."""
    uid = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    bases = {f"/run/user/{uid}", runtime if os.path.isabs(runtime) else ""}
    bases = {os.path.join(b, "hmcfs") for b in bases if b} | {os.path.join(tempfile.gettempdir(), f"hmcfs-{uid}")}
    if uid == 0:
        bases.add("/run/hmcfs")
    found = []
    for lock in (os.path.join(b, name, "lock") for b in bases if _is_own(b, uid) for name in _names(b)):
        try:
            with open(lock, "rb") as f:
                holder = json.load(f)
                try:
                    fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    continue  # its holder has ended
                except BlockingIOError:
                    pass
        except (OSError, ValueError):
            continue
        if holder.get("served") and _is_served(holder.get("mount_point", "")):
            found.append(holder["mount_point"])
    return found


def _is_own(path: str, uid: int) -> bool:
    try:
        s = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(s.st_mode) and s.st_uid == uid and not s.st_mode & 0o022


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _only(mounts: list[str]) -> str:
    if len(mounts) == 1:
        return mounts[0]
    if not mounts:
        raise _errors.NotMounted("there is no hmcfs mount; mount one with hmcfs mount, or run hmcfs serve")
    raise _errors.NotMounted(f"there are {len(mounts)} mounts; give one of {', '.join(mounts)}, or set HMCFS_MOUNT")


def _socket_of(mount: str) -> str:
    try:
        with open(os.path.join(mount, ".hmcfs", "config"), "rb") as f:
            return str(json.load(f)["socket"])
    except (OSError, ValueError, KeyError) as e:
        raise _errors.NotMounted(f"{mount}: the daemon's socket is unknown: {e}") from e
