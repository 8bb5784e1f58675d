"""The binary frames of a session; docs/wire.md describes them byte by byte."""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Iterator, NamedTuple, Sequence

PROTOCOL = "hmcfs-frames-3"
MAX_BODY = 64 << 20
HEADER = struct.Struct("<IBBHQ")
_CALL = struct.Struct("<BBHIIIqqQ")
_LIST = struct.Struct("<qI")
_BLOB = struct.Struct("<QQQ")
_LINE = struct.Struct("<IB")
_FILE = struct.Struct("<IIQQQQQHHI")
_FILE_ANSWER = struct.Struct("<IIQQ")
_STAT = struct.Struct("<QQQIIIIIIqqqIIII")
_ENTRY = struct.Struct("<QQBB")

CALL, CANCEL, HELLO, LINES, LAST, BEGUN, FAILURE, ENDED, FILE, FILE_ANSWER, REQUEST, REPLY, PART, MORE = range(1, 15)

VERBS = {
    name: number
    for number, name in enumerate(
        (
            "publish", "subscribe", "claim", "fetch", "settle", "mset", "mget", "delete", "local-delete",
            "d2h", "h2d", "exist", "info", "expire", "wait", "unregister", "continue",
        ),
        1,
    )
}
FILE_VERBS = {
    name: number
    for number, name in enumerate(
        (
            "open", "close", "stat", "read", "write", "list", "mkdir", "remove", "rename", "copy", "link", "symlink",
            "readlink", "change", "get-attribute", "set-attribute", "list-attributes", "remove-attribute", "usage", "sync",
        ),
        1,
    )
}
REQUESTS = {name: number for number, name in enumerate(("register", "bind", "export", "collect", "verify", "keys", "watch"), 1)}
# MAX_REQUEST is the most bytes of a request.
MAX_REQUEST = 1 << 20
# MAX_FILE_DATA is the most bytes of a file in one frame.
MAX_FILE_DATA = 1 << 20
RULES = {None: 0, "skip": 1, "replace": 2, "fail": 3}


class Blobs(NamedTuple):
    """The memory of one key: blobs of (memory, offset, size), all on one device.

    start is where a read begins in each blob of the key.
    """

    device: str
    blobs: Sequence[tuple[int, int, int]]
    start: int = 0


class Line(NamedTuple):
    """What an answer says of one key."""

    index: int  # type: ignore[assignment]
    code: str
    text: str
    skipped: bool
    exists: bool
    device: str
    size: int
    blobs: tuple[int, ...]


def call(
    verb: str,
    number: int,
    keys: Sequence[bytes] = (),
    lists: Sequence[Blobs] = (),
    *,
    timeout: float = 0,
    ttl: float = 0,
    memory: int = 0,
    existing: str | None = None,
    published: bool = False,
    asynchronous: bool = False,
) -> bytes:
    """Return the frame of a call; times are seconds."""
    for name, value in (("timeout", timeout), ("ttl", ttl)):
        if not isinstance(value, (int, float)) or not abs(value) < 9e9:
            raise ValueError(f"{name} must be a number of seconds below 9e9, not {value!r}")
    bits = (2 if published else 0) | (4 if asynchronous else 0)
    parts = [b"", _CALL.pack(bits, RULES[existing], 0, len(keys), len(lists), 0, round(timeout * 1e9), round(ttl * 1e9), memory)]
    for key in keys:
        parts.append(len(key).to_bytes(2, "little"))
        parts.append(key)
    for one in lists:
        device = one.device.encode()
        parts.append(bytes((len(device),)) + device)
        parts.append(_LIST.pack(one.start, len(one.blobs)))
        for blob in one.blobs:
            parts.append(_BLOB.pack(*blob))
    size = sum(map(len, parts))
    if size > MAX_BODY:
        raise ValueError(f"the call has {size} bytes, the maximum is {MAX_BODY}")
    parts[0] = HEADER.pack(size, CALL, VERBS[verb], 0, number)
    return b"".join(parts)


def request(verb: str, number: int, question: Any, descriptors: int = 0) -> bytes:
    """Return the frame of a request, whose descriptors are sent before."""
    body = json.dumps(question).encode()
    if len(body) > MAX_REQUEST:
        raise ValueError(f"the request has {len(body)} bytes, the maximum is {MAX_REQUEST}")
    return HEADER.pack(len(body), REQUEST, REQUESTS[verb], descriptors << 8, number) + body


class FileAnswer(NamedTuple):
    """The answer to a call on files."""

    errno: int
    handle: int
    n: int
    data: bytes


def file_call(
    verb: str, number: int, name: bytes = b"", other: bytes = b"", data: "bytes | memoryview" = b"", *,
    flags: int = 0, mode: int = 0, handle: int = 0, offset: int = 0, size: int = 0, memory: "tuple[int, int]" = (0, 0),
) -> bytes:
    """Return the frame of a call on files; memory is a number and an offset in it."""
    head = _FILE.pack(flags, mode, handle, offset, size, *memory, len(name), len(other), 0)
    body = len(head) + len(name) + len(other) + len(data)
    return b"".join((HEADER.pack(body, FILE, FILE_VERBS[verb], 0, number), head, name, other, data))


def file_answer(body: bytes) -> FileAnswer:
    """Decode the answer to a call on files."""
    number, _, handle, n = _FILE_ANSWER.unpack_from(body)
    return FileAnswer(number, handle, n, body[_FILE_ANSWER.size :])


def stat(data: bytes) -> os.stat_result:
    """Decode the description of a file."""
    ino, size, blocks, mode, links, uid, gid, device, block, *times = _STAT.unpack(data)
    seconds, parts = times[:3], times[3:6]
    more: dict[str, Any] = {"st_rdev": device, "st_blksize": block, "st_blocks": blocks}
    for name, s, ns in zip(("st_atime", "st_mtime", "st_ctime"), seconds, parts):
        more[name], more[name + "_ns"] = s + ns / 1e9, s * 10**9 + ns
    return os.stat_result((mode, ino, 0, links, uid, gid, size, *seconds), more)


def entries(data: bytes) -> "Iterator[tuple[int, str]]":
    """Decode entries of a directory: their cookies and names."""
    at = 0
    while at < len(data):
        cookie, _, _, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size + length
        if at > len(data):
            raise ValueError("an entry ends too early")
        yield cookie, os.fsdecode(data[at - length : at])


def again(frame: bytes, timeout: float | None = None, tried: bool = True) -> bytes:
    """Return a call as one that a daemon before may have tried, with another timeout, in seconds, unless that is None."""
    out = bytearray(frame)
    out[6] = tried
    if timeout is not None:
        out[32:40] = max(1, round(timeout * 1e9)).to_bytes(8, "little")
    return bytes(out)


def more(number: int) -> bytes:
    """Return the frame that asks for the next part of an answer."""
    return HEADER.pack(0, MORE, 0, 0, number)


def cancel(number: int) -> bytes:
    """Return the frame that ends a call early."""
    return HEADER.pack(0, CANCEL, 0, 0, number)


def failure(body: bytes, at: int = 0) -> tuple[str, str, int]:
    """Return the code and text of a failure, and where it ends."""
    end = at + 1 + body[at]
    code = body[at + 1 : end].decode()
    size = int.from_bytes(body[end : end + 2], "little")
    text = body[end + 2 : end + 2 + size]
    if len(text) != size:
        raise ValueError("a failure ends too early")
    return code, text.decode(errors="replace"), end + 2 + size


def lines(body: bytes) -> Iterator[Line]:
    """Decode the lines of an answer."""
    at = 0
    while at < len(body):
        index, bits = _LINE.unpack_from(body, at)
        at += _LINE.size
        code = text = device = ""
        size, blobs = 0, tuple[int, ...]()
        if bits & 1:
            code, text, at = failure(body, at)
        if bits & 8:
            end = at + 1 + body[at]
            device = body[at + 1 : end].decode()
            size, count = struct.unpack_from("<QI", body, end)
            blobs = struct.unpack_from(f"<{count}Q", body, end + 12)
            at = end + 12 + 8 * count
        yield Line(index, code, text, bool(bits & 2), bool(bits & 4), device, size, blobs)
