"""openYuanrong datasystem's Python interface to heterogeneous objects.

``from hmcfs.compat.datasystem import DsTensorClient`` takes the place of the import from
``yr.datasystem``. Tensors and addresses are memory of the host: PyTorch on the CPU, NumPy, or any buffer.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Sequence, TypeVar

from .. import _errors
from .._fs import FileSystem, connect
from .._memory import address
from ._buffer import bytes_of
from ._handshake import is_local
from ._held import Piece, stage, view_of

__all__ = [
    "Blob", "CacheType", "CopyRange", "DatasystemError", "DeviceBlobList", "DsClient", "DsTensorClient", "ExistenceOpt", "Future",
    "HeteroClient", "MetaInfo", "SetParam", "WriteMode",
]

_T = TypeVar("_T")
_MAX_FUTURE_MS = 30 * 60 * 1000
# _STATUS are the names of openYuanrong's statuses; docs/seeds.md has the whole table.
_STATUS = {
    "timeout": "K_FUTURE_TIMEOUT", "interrupted": "K_INTERRUPTED", "shape": "K_INVALID", "inconsistent": "K_DATA_INCONSISTENCY",
    "invalid": "K_INVALID", "owner_gone": "K_RPC_PEER_DEAD", "withdrawn": "K_NOT_FOUND", "lost": "K_NOT_FOUND",
    "not_found": "K_NOT_FOUND", "exists": "K_OC_KEY_ALREADY_EXIST", "no_memory": "K_OUT_OF_MEMORY",
    "not_authorized": "K_NOT_AUTHORIZED", "not_owner": "K_NOT_OWNER", "busy": "K_TRY_AGAIN", "unsupported": "K_NOT_SUPPORTED", "read_only": "K_NOT_SUPPORTED",
    "closed": "K_SHUTTING_DOWN", "disconnected": "K_CLIENT_WORKER_DISCONNECT", "not_mounted": "K_RPC_UNAVAILABLE",
}


class DatasystemError(_errors.HmcfsError, RuntimeError):
    """A call failed. ``status`` is the name of openYuanrong's status, and ``failures`` has the error of each key."""

    def __init__(self, error: _errors.HmcfsError) -> None:
        self.status = _STATUS.get(error.code, "K_RUNTIME_ERROR")
        super().__init__(f"{self.status}: {error}")
        self.key, self.code, self.failures = error.key, error.code, error.failures
        self.__cause__ = error


class WriteMode(Enum):
    """Whether objects are also written to a second level; hmcfs has none."""

    NONE_L2_CACHE = 0
    WRITE_THROUGH_L2_CACHE = 1
    WRITE_BACK_L2_CACHE = 2
    NONE_L2_CACHE_EVICT = 3
    WRITE_BACK_L2_CACHE_EVICT = 4


class ExistenceOpt(Enum):
    """What becomes of a key that exists; mset_d2h leaves it as it is either way, as openYuanrong does."""

    NONE = 0
    NX = 1


class CacheType(Enum):
    """Where objects are kept; hmcfs keeps them in memory."""

    MEMORY = 0
    DISK = 1


@dataclass
class SetParam:
    """Options of mset_d2h."""

    write_mode: WriteMode = WriteMode.NONE_L2_CACHE
    ttl_second: int = 0
    existence: ExistenceOpt = ExistenceOpt.NONE
    cache_type: CacheType = CacheType.MEMORY


@dataclass
class CopyRange:
    """Bytes of a key, and where they go in a tensor."""

    src_offset: int
    dst_offset: int
    length: int


@dataclass
class MetaInfo:
    """The sizes of the blobs of a key; none if the key does not exist."""

    blob_size_list: list[int]


class Blob:
    """A piece of memory: an address in this process, or a buffer."""

    def __init__(self, dev_ptr: Any, size: int) -> None:
        self.dev_ptr, self.size = dev_ptr, size

    def set_dev_ptr(self, dev_ptr: Any) -> None:
        """Set the address."""
        self.dev_ptr = dev_ptr

    def set_size(self, size: int) -> None:
        """Set the size, in bytes."""
        self.size = size


class DeviceBlobList:
    """The memory of one key. src_offset is where dev_mget begins to read in each blob of the key."""

    def __init__(self, dev_idx: int, blob_list: list[Blob], src_offset: int = 0) -> None:
        self.dev_idx, self.blob_list, self.src_offset = dev_idx, blob_list, src_offset

    def append_blob(self, blob: Blob) -> None:
        """Add a blob."""
        self.blob_list.append(blob)

    def get_blob_list(self) -> list[Blob]:
        """Return the blobs."""
        return self.blob_list

    def set_dev_idx(self, dev_idx: int) -> None:
        """Set the index of the device."""
        self.dev_idx = dev_idx

    def set_src_offset(self, src_offset: int) -> None:
        """Set where dev_mget begins to read in each blob of the key."""
        self.src_offset = src_offset


def _typed(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")


def _keys(keys: Any) -> list[str]:
    _typed("keys", keys, list)
    for key in keys:
        _typed("a key", key, str)
    if not keys:
        raise DatasystemError(_errors.Invalid("keys must not be empty"))
    return list(keys)


def _checked(keys: Any, lists: Any) -> None:
    """Refuse wrong arguments."""
    _keys(keys)
    _typed("data_blob_list", lists, list)
    if len(lists) != len(keys):
        raise DatasystemError(_errors.Invalid(f"{len(keys)} keys, but {len(lists)} lists of blobs"))


class _Call:
    """A call of several keys in progress, whose outcomes come one by one."""

    def __init__(self, session: Any, answer: Any, keys: Sequence[str], pieces: Sequence[Piece] = ()) -> None:
        self.session, self.answer, self.keys, self.pieces = session, answer, keys, pieces
        self._seen = 0
        self._lines: dict[int, Any] = {}

    def line(self, index: int) -> Any:
        """Return the outcome of a key; None if there is none yet."""
        lines = self.answer.lines
        while self._seen < len(lines):
            self._lines[lines[self._seen].index] = lines[self._seen]
            self._seen += 1
        return self._lines.get(index)

    def error(self, index: int) -> _errors.HmcfsError | None:
        line = self.line(index)
        if line is None:
            return self.answer.fault or _errors.HmcfsError("the answer of the daemon is incomplete", self.keys[index])
        return _errors.of(line.code, line.text, self.keys[index]) if line.code else None

    def outcome(self) -> list[str]:
        """Return the keys that failed; raise if all have."""
        failures = {key: e for i, key in enumerate(self.keys) for e in [self.error(i)] if e is not None}
        if failures and len(failures) == len(self.keys):
            first = next(iter(failures.values()))
            first.failures = failures
            raise DatasystemError(first)
        return list(failures)


class Future:
    """The outcome of a call in progress, or of one key of it."""

    def __init__(self, call: _Call, indexes: Sequence[int], each: bool, into: bool) -> None:
        self._call, self._indexes, self._each, self._into = call, indexes, each, into
        self._taken = False

    def _ready(self) -> bool:
        return self._call.answer.over or (self._each and self._call.line(self._indexes[0]) is not None)

    def get(self, timeout_ms: int = 60000) -> list[str]:
        """Wait for the outcome, and return the keys that failed. What was received is in place then."""
        _typed("timeout_ms", timeout_ms, int)
        if not 0 <= timeout_ms <= _MAX_FUTURE_MS:
            raise DatasystemError(_errors.Invalid(f"timeout_ms is between 0 and {_MAX_FUTURE_MS}, not {timeout_ms}"))
        try:
            if not self._call.session.read_until(self._ready, timeout_ms / 1000):
                raise _errors.Timeout("not done in time, please try again")
        except _errors.HmcfsError as e:
            raise DatasystemError(e) from e
        self._take()
        if not self._each:
            return self._call.outcome()
        error = self._call.error(self._indexes[0])
        if error is not None:
            raise DatasystemError(error)
        return []

    def _take(self) -> None:
        """Take what was received, once, and give back the memory of the call."""
        if self._taken:
            return
        self._taken = True
        for i in self._indexes if self._call.pieces else ():
            if self._into and self._call.error(i) is None:
                self._call.pieces[i].empty()
            self._call.pieces[i].release()


class HeteroClient:
    """Heterogeneous objects: keys that name memory, copies in host memory, and hand-over.

    ``host`` is an address of this host (of the only mount, or that of $HMCFS_MOUNT), or a path on a
    mount; ``port`` is not used. Bytes of memory that is not of ``fs.empty`` are copied once more, when they
    are set or published.
    """

    def __init__(self, host: str = "", port: int = 0, connect_timeout_ms: int = 9000, **options: Any) -> None:
        _typed("host", host, str)
        _typed("port", port, int)
        _typed("connect_timeout_ms", connect_timeout_ms, int)
        if connect_timeout_ms < 1:
            raise DatasystemError(_errors.Invalid(f"connect_timeout_ms is 1 or more, not {connect_timeout_ms}"))
        _refuse(options)
        self._host, self._timeout = host, connect_timeout_ms / 1000
        self._fs: FileSystem | None = None
        # _named is the memory that keys of dev_mset name, and _offered what was published last under a key. The
        # same memory keeps its copy when it is set or published again, so that the daemon finds it the same.
        self._named: dict[str, tuple[Any, Piece]] = {}
        self._offered: dict[str, tuple[Any, Piece]] = {}
        # _open are the futures that have memory.
        self._open: list[Future] = []

    def __enter__(self) -> "HeteroClient":
        self.init()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def init(self) -> None:
        """Connect to the daemon."""
        path = self._host if self._host.startswith("/") else None
        if path is None and self._host and not is_local(self._host):
            raise DatasystemError(_errors.NotMounted(f"{self._host} is another host; clients connect to the daemon of their own"))
        try:
            self._fs = connect(path)
            self._fs._timeout = self._timeout
            self._fs._open()
        except _errors.HmcfsError as e:
            raise DatasystemError(e) from e

    def close(self) -> None:
        """End the client: what it has published, and set from its memory, is gone."""
        if self._fs is not None:
            self._fs.close()
        self._named, self._offered, self._open = {}, {}, []
        _ALIVE.discard(self)

    @property
    def fs(self) -> FileSystem:
        """The client of the mount; its empty() makes arrays that are set and published without a copy."""
        if self._fs is None:
            raise DatasystemError(_errors.Closed("the client is not connected: call init()"))
        return self._fs

    # The steps of calls

    def _stage(self, keys: list[str], lists: list[DeviceBlobList], into: bool, known: Any = None) -> list[Piece]:
        """Return the memory of a call: of a key that is known with the same blobs, the memory that it has."""
        views = []
        for key, one in zip(keys, lists):
            if not isinstance(one.dev_idx, int) or one.dev_idx < 0:
                raise _errors.Invalid(f"there is no device {one.dev_idx}", key)
            views.append([view_of(b.dev_ptr, b.size, into, key) for b in one.blob_list])
        for future in [f for f in self._open if f._ready() and not f._into]:
            future._take()
        self._open = [f for f in self._open if not f._taken]
        pieces: dict[int, Piece] = {}
        for i, (key, one) in enumerate(zip(keys, lists)):
            mark, piece = (known or {}).get(key, (None, None))
            if piece is not None and mark == _mark(one) and piece.retain():
                pieces[i] = piece
        new = [i for i in range(len(keys)) if i not in pieces]
        staged = stage(self.fs, [views[i] for i in new], [lists[i].src_offset for i in new])
        pieces.update(zip(new, staged))
        return [pieces[i] for i in range(len(keys))]

    def _run(self, make: Callable[[], _T]) -> _T:
        try:
            return make()
        except DatasystemError:
            raise
        except _errors.HmcfsError as e:
            raise DatasystemError(e) from e

    def _whole(self, verb: str, keys: Any, lists: Any, into: bool, **options: Any) -> list[str]:
        """Make a call and wait for it."""
        _checked(keys, lists)

        def make() -> list[str]:
            pieces = self._stage(keys, lists, into)
            try:
                call = self._called(verb, keys, pieces, into, **options)
                for i in range(len(keys)) if into else ():
                    if call.error(i) is None:
                        pieces[i].empty()
                return call.outcome()
            finally:
                for piece in pieces:
                    piece.release()

        return self._run(make)

    def _called(self, verb: str, keys: list[str], pieces: list[Piece], into: bool, **options: Any) -> _Call:
        for piece in () if into else pieces:
            piece.fill()
        session = self.fs._open()[0]
        answer = session.start(verb, keys, [piece.blobs for piece in pieces], **options)
        try:
            answer.wait()
        finally:
            session.stop(answer)
        return _Call(session, answer, keys, pieces)

    def _background(self, verb: str, keys: Any, lists: Any, each: bool, into: bool, known: Any = None, **options: Any) -> list[Future]:
        """Begin a call, with a future for each key or one for all."""
        _checked(keys, lists)

        def make() -> list[Future]:
            pieces = self._stage(keys, lists, into, known)
            begun = False
            try:
                for piece in () if into else pieces:
                    piece.fill()
                answer = self._begin(verb, keys, [piece.blobs for piece in pieces], **options)
                begun = True
            finally:
                for piece in () if begun else pieces:
                    piece.release()
            call, count = _Call(self.fs._open()[0], answer, keys, pieces), range(len(keys))
            futures = [Future(call, [i], True, into) for i in count] if each else [Future(call, count, False, into)]
            self._open += futures
            return futures

        return self._run(make)

    def _begin(self, verb: str, keys: list[str], lists: Any, **options: Any) -> Any:
        session = self.fs._open()[0]
        session.read_in_background()
        answer = session.start(verb, keys, lists, **options)
        session.read_until(lambda: answer.begun or answer.over, None)
        if answer.fault is not None:
            raise answer.fault
        return answer

    def _simple(self, verb: str, keys: Any, **options: Any) -> list[str]:
        """Make a call without memory."""
        keys = _keys(keys)

        def make() -> list[str]:
            session = self.fs._open()[0]
            answer = session.start(verb, keys, **options)
            answer.wait()
            return _Call(session, answer, keys).outcome()

        return self._run(make)

    # Hand-over

    def dev_publish(self, keys: list[str], data_blob_list: list[DeviceBlobList]) -> list[Future]:
        """Offer memory to one subscriber. A future is done when the subscriber has the bytes."""
        futures = self._background("publish", keys, data_blob_list, True, False, self._offered)
        pending = {f._call.keys[i] for f in self._open for i in f._indexes}
        self._offered = {key: one for key, one in self._offered.items() if key in pending}
        for key, one, piece in zip(keys, data_blob_list, futures[0]._call.pieces):
            self._offered[key] = (_mark(one), piece)
        return futures

    def dev_subscribe(self, keys: list[str], data_blob_list: list[DeviceBlobList]) -> list[Future]:
        """Receive what is published: within 20 s for one key, 60 s for several."""
        return self._background("subscribe", keys, data_blob_list, True, True)

    # Keys that name memory

    def dev_mset(self, keys: list[str], data_blob_list: list[DeviceBlobList]) -> list[str]:
        """Make keys name memory, and return the keys that failed. The memory must not change before dev_delete.

        The keys are there until they are deleted, or this client is closed, or the process ends.
        """
        _checked(keys, data_blob_list)

        def make() -> list[str]:
            pieces = self._stage(keys, data_blob_list, False, self._named)
            named: set[int] = set()
            try:
                call = self._called("mset", keys, pieces, False)
                named = {i for i in range(len(keys)) if call.error(i) is None}
            finally:
                for i, (key, one, piece) in enumerate(zip(keys, data_blob_list, pieces)):
                    if i in named:
                        self._forget([key])
                        self._named[key] = (_mark(one), piece)
                        _ALIVE.add(self)
                    else:
                        piece.release()
            return call.outcome()

        return self._run(make)

    def _forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            _, piece = self._named.pop(key, (None, None))
            if piece is not None:
                piece.release()
        if not self._named:
            _ALIVE.discard(self)

    def dev_mget(self, keys: list[str], data_blob_list: list[DeviceBlobList], sub_timeout_ms: int = 0) -> list[str]:
        """Copy the bytes of keys into memory, and return the keys that failed."""
        _typed("sub_timeout_ms", sub_timeout_ms, int)
        return self._whole("mget", keys, data_blob_list, True, timeout=sub_timeout_ms / 1000)

    def dev_delete(self, keys: list[str]) -> list[str]:
        """Remove keys, and return those that failed. A key that does not exist is none to remove."""
        failed = self._simple("delete", keys)
        self._forget([key for key in keys if key not in failed])
        return failed

    delete = dev_delete

    def dev_local_delete(self, keys: list[str]) -> list[str]:
        """Remove what this client has set, and return the keys that failed."""
        failed = self._simple("local-delete", keys)
        self._forget([key for key in keys if key not in failed])
        return failed

    def async_dev_delete(self, keys: list[str]) -> Future:
        """Remove keys in the background."""
        keys = _keys(keys)
        call = self._run(lambda: _Call(self.fs._open()[0], self._begin("delete", keys, (), asynchronous=True), keys))
        return Future(call, range(len(keys)), False, False)

    # Copies in host memory

    def mset_d2h(self, keys: list[str], data_blob_list: list[DeviceBlobList], set_param: SetParam | None = None) -> None:
        """Keep copies in host memory. A key that exists stays as it is; if any other fails, this raises."""
        options = _set_options(set_param)
        failed = self._whole("d2h", keys, data_blob_list, False, **options)
        if failed:
            raise DatasystemError(_errors.HmcfsError(f"{len(failed)} of {len(keys)} keys failed: {', '.join(failed[:5])}"))

    def mget_h2d(self, keys: list[str], data_blob_list: list[DeviceBlobList], sub_timeout_ms: int = 0) -> list[str]:
        """Copy from host memory, into as many blobs of the same sizes; return the keys that failed."""
        _typed("sub_timeout_ms", sub_timeout_ms, int)
        return self._whole("h2d", keys, data_blob_list, True, timeout=sub_timeout_ms / 1000)

    def mset_d2h_from_multi_buffers(
        self, keys: list[str], addrs: list[list[int]], sizes: list[list[int]], set_param: SetParam | None = None
    ) -> None:
        """Do mset_d2h with the addresses and the sizes of the blobs of each key."""
        self.mset_d2h(keys, _lists_of(keys, addrs, sizes), set_param)

    def mget_h2d_from_multi_buffers(
        self, keys: list[str], addrs: list[list[int]], sizes: list[list[int]], sub_timeout_ms: int = 0
    ) -> list[str]:
        """Do mget_h2d with the addresses and the sizes of the blobs of each key."""
        return self.mget_h2d(keys, _lists_of(keys, addrs, sizes), sub_timeout_ms)

    def async_mset_d2h(self, keys: list[str], data_blob_list: list[DeviceBlobList], set_param: SetParam | None = None) -> Future:
        """Do mset_d2h in the background."""
        return self._background("d2h", keys, data_blob_list, False, False, asynchronous=True, **_set_options(set_param))[0]

    def async_mget_h2d(self, keys: list[str], data_blob_list: list[DeviceBlobList], sub_timeout_ms: int = 0) -> Future:
        """Do mget_h2d in the background; the bytes are in place when the future's get() returns."""
        _typed("sub_timeout_ms", sub_timeout_ms, int)
        timeout = sub_timeout_ms / 1000
        return self._background("h2d", keys, data_blob_list, False, True, asynchronous=True, timeout=timeout)[0]

    # Questions

    def exist(self, keys: list[str]) -> list[bool]:
        """Report for each key whether its bytes are there."""
        keys = _keys(keys)

        def make() -> list[bool]:
            found = self.fs.exists(*keys)
            return found if isinstance(found, list) else [found]

        return self._run(make)

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        """Report for each key, by 1 or 0, whether its bytes are there."""
        return [int(one) for one in self.exist(keys)]

    def get_meta_info(self, keys: list[str], is_dev_key: bool) -> tuple[list[str], list[MetaInfo]]:
        """Return the keys that do not exist, and the sizes of the blobs of each key. Device keys may be published."""
        keys = _keys(keys)
        _typed("is_dev_key", is_dev_key, bool)

        def make() -> tuple[list[str], list[MetaInfo]]:
            session, found = self.fs._open()[0], {}
            for published in (False, True) if is_dev_key else (False,):
                left = [key for key in keys if key not in found]
                for line in session.call("info", left, published=published) if left else ():
                    if not line.code:
                        found[left[line.index]] = list(line.blobs)
                    elif line.code != "not_found":
                        raise _errors.of(line.code, line.text, left[line.index])
            if not found:
                raise _errors.NotFound("can't find objects")
            return [key for key in keys if key not in found], [MetaInfo(found.get(key, [])) for key in keys]

        return self._run(make)

    def generate_key(self, prefix: str = "") -> str:
        """Return prefix, or a unique key."""
        _typed("prefix", prefix, str)
        return prefix or str(uuid.uuid4())


# _ALIVE are the clients that have set keys: these are there as long as the process, also if it no longer uses the client.
_ALIVE: set[HeteroClient] = set()


def _refuse(options: dict[str, Any]) -> None:
    """Refuse options that ask for what hmcfs does not have; an empty one asks for nothing."""
    for name, value in options.items():
        if value:
            raise DatasystemError(_errors.Unsupported(
                f"{name}: hmcfs has no such option, as it knows a client by the user of its process; leave it out"
            ))


def _lists_of(keys: Any, addrs: Any, sizes: Any) -> list[DeviceBlobList]:
    """Return the memory of each key: lists of addresses, and of sizes, of the same lengths."""
    _keys(keys)
    for name, rows, kind in (("addrs", addrs, "addresses"), ("sizes", sizes, "sizes")):
        _typed(name, rows, list)
        if len(rows) != len(keys):
            raise DatasystemError(_errors.Invalid(f"{len(keys)} keys, but {len(rows)} lists of {kind}"))
        for row in rows:
            _typed(f"a list of {name}", row, list)
            for one in row:
                _typed(f"one of {name}", one, int)
    for key, places, lengths in zip(keys, addrs, sizes):
        if len(places) != len(lengths):
            raise DatasystemError(_errors.Invalid(f"{len(places)} addresses, but {len(lengths)} sizes", key))
    return [DeviceBlobList(0, [Blob(at, n) for at, n in zip(places, lengths)]) for places, lengths in zip(addrs, sizes)]


def _mark(one: DeviceBlobList) -> Any:
    """Return what tells whether two lists are the same memory: never, if it can't be written to."""
    return [(_address(b.dev_ptr), b.size) for b in one.blob_list]


def _address(pointer: Any) -> Any:
    if isinstance(pointer, int):
        return pointer
    view = bytes_of(pointer, False)
    return object() if view.readonly or not view.nbytes else address(view)


def _set_options(param: SetParam | None) -> dict[str, Any]:
    param = param or SetParam()
    if param.write_mode not in (WriteMode.NONE_L2_CACHE, WriteMode.NONE_L2_CACHE_EVICT):
        raise DatasystemError(_errors.Invalid(f"{param.write_mode.name}: there is no second level; copy the file to a disk"))
    if param.cache_type is CacheType.DISK:
        raise DatasystemError(_errors.Invalid("CacheType.DISK: objects are kept in memory; copy the file to a disk"))
    return {"existing": "skip", "ttl": param.ttl_second}


class DsTensorClient:
    """HeteroClient with tensors in the place of lists of blobs: PyTorch's on the CPU, or NumPy's arrays."""

    def __init__(self, host: str = "", port: int = 0, device_id: int = 0, connect_timeout_ms: int = 60000, **options: Any) -> None:
        _typed("device_id", device_id, int)
        self._client = HeteroClient(host, port, connect_timeout_ms, **options)
        self._device_id = device_id

    def __enter__(self) -> "DsTensorClient":
        self.init()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def init(self) -> None:
        """Connect to the daemon."""
        self._client.init()

    def close(self) -> None:
        """End the client: what it has published, and set from its memory, is gone."""
        self._client.close()

    @property
    def fs(self) -> FileSystem:
        """The client of the mount; its empty() makes arrays that are set and published without a copy."""
        return self._client.fs

    def _lists(self, tensors: Any, into: bool) -> list[DeviceBlobList]:
        _typed("tensors", tensors, list)
        return [DeviceBlobList(self._device_id, [_blob(t, into)]) for t in tensors]

    def dev_publish(self, keys: list[str], tensors: list[Any]) -> list[Future]:
        """Offer tensors to one subscriber each; see HeteroClient.dev_publish."""
        return self._client.dev_publish(keys, self._lists(tensors, False))

    def dev_subscribe(self, keys: list[str], tensors: list[Any]) -> list[Future]:
        """Receive published tensors; see HeteroClient.dev_subscribe."""
        return self._client.dev_subscribe(keys, self._lists(tensors, True))

    dev_send, dev_recv = dev_publish, dev_subscribe

    def dev_mset(self, keys: list[str], tensors: list[Any]) -> list[str]:
        """Make keys name tensors; see HeteroClient.dev_mset."""
        return self._client.dev_mset(keys, self._lists(tensors, False))

    def dev_mget(self, keys: list[str], tensors: list[Any], sub_timeout_ms: int = 0) -> list[str]:
        """Copy the bytes of keys into tensors; see HeteroClient.dev_mget."""
        return self._client.dev_mget(keys, self._lists(tensors, True), sub_timeout_ms)

    def dev_mget_into_tensor(self, keys: list[str], tensor: Any, copy_ranges: list[CopyRange], sub_timeout_ms: int = 60000) -> list[str]:
        """Copy a part of each key into its place in one tensor; return the keys that failed."""
        _typed("copy_ranges", copy_ranges, list)
        whole, lists = _blob(tensor, True), []
        for key, one in zip(_keys(keys), copy_ranges):
            if not (0 <= one.dst_offset and 0 < one.length and one.dst_offset + one.length <= whole.size):
                raise DatasystemError(_errors.Invalid(f"{one.length} bytes at {one.dst_offset} of a tensor of {whole.size}", key))
            part = whole.dev_ptr[one.dst_offset : one.dst_offset + one.length]
            lists.append(DeviceBlobList(self._device_id, [Blob(part, one.length)], one.src_offset))
        if len(copy_ranges) != len(keys):
            raise DatasystemError(_errors.Invalid(f"{len(keys)} keys, but {len(copy_ranges)} ranges"))
        return self._client.dev_mget(keys, lists, sub_timeout_ms)

    def mset_d2h(self, keys: list[str], tensors: list[Any], set_param: SetParam | None = None) -> None:
        """Keep copies of tensors in host memory; see HeteroClient.mset_d2h."""
        self._client.mset_d2h(keys, self._lists(tensors, False), set_param)

    def mget_h2d(self, keys: list[str], tensors: list[Any], sub_timeout_ms: int = 0) -> list[str]:
        """Copy from host memory into tensors; see HeteroClient.mget_h2d."""
        return self._client.mget_h2d(keys, self._lists(tensors, True), sub_timeout_ms)

    def async_mset_d2h(self, keys: list[str], tensors: list[Any], set_param: SetParam | None = None) -> Future:
        """Do mset_d2h in the background."""
        return self._client.async_mset_d2h(keys, self._lists(tensors, False), set_param)

    def async_mget_h2d(self, keys: list[str], tensors: list[Any], sub_timeout_ms: int = 0) -> Future:
        """Do mget_h2d in the background; the bytes are in place when the future's get() returns."""
        return self._client.async_mget_h2d(keys, self._lists(tensors, True), sub_timeout_ms)

    def delete(self, keys: list[str]) -> list[str]:
        """Remove keys, and return those that failed."""
        return self._client.delete(keys)

    def dev_delete(self, keys: list[str]) -> list[str]:
        """Remove keys, and return those that failed."""
        return self._client.dev_delete(keys)

    def async_dev_delete(self, keys: list[str]) -> Future:
        """Remove keys in the background."""
        return self._client.async_dev_delete(keys)

    def dev_local_delete(self, keys: list[str]) -> list[str]:
        """Remove what this client has set, and return the keys that failed."""
        return self._client.dev_local_delete(keys)

    def exist(self, keys: list[str]) -> list[bool]:
        """Report for each key whether its bytes are there."""
        return self._client.exist(keys)

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        """Report for each key, by 1 or 0, whether its bytes are there."""
        return self._client.batch_is_exist(keys)

    def get_meta_info(self, keys: list[str], is_dev_key: bool) -> tuple[list[str], list[MetaInfo]]:
        """Return the keys that do not exist, and the sizes of the blobs of each key."""
        return self._client.get_meta_info(keys, is_dev_key)


def _blob(t: Any, into: bool) -> Blob:
    """Return the bytes of a tensor."""
    contiguous = t.is_contiguous() if hasattr(t, "is_contiguous") else memoryview(t).c_contiguous
    if not contiguous:
        raise TypeError("the tensor is not contiguous: give tensor.contiguous()")
    if getattr(getattr(t, "device", None), "type", "cpu") != "cpu":
        raise DatasystemError(_errors.Unsupported(f"the tensor is on {t.device}; give a tensor of host memory, such as tensor.cpu()"))
    view = bytes_of(t, into)
    return Blob(view, view.nbytes)


class DsClient:
    """The clients of one daemon; only hetero() exists here."""

    def __init__(self, host: str = "", port: int = 0, connect_timeout_ms: int = 9000, **options: Any) -> None:
        self._hetero = HeteroClient(host, port, connect_timeout_ms, **options)

    def init(self) -> None:
        """Connect to the daemon."""
        self._hetero.init()

    def hetero(self) -> HeteroClient:
        """Return the client of heterogeneous objects."""
        return self._hetero
