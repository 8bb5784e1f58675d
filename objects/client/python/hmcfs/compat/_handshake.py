"""How two processes that use hmcfs.compat.hmc find and trust each other.

On one host they meet at a Unix socket, and both check that the other belongs to the same user. Between
hosts both prove, by HMAC-SHA256, that they have the secret of $HMCFS_SECRET_FILE; the bytes that follow
are not encrypted.

    client  hello: magic, kind, rank, the session's token, a nonce
    server  u8 refused, u16 length; then a nonce and a proof, or the reason
    client  a proof
    server  u8 refused, u16 length; then its session's token, or the reason
"""

from __future__ import annotations

import hmac
import math
import os
import secrets
import socket
import struct
import time
from typing import NamedTuple

_MAGIC = b"hmcfs-hmc-1\n"
_HELLO = struct.Struct("<12scI16s32s")
_ANSWER = struct.Struct("<BH")
_NONCE = 32
# _MIN_SECRET is the least size of a secret, in bytes, as for nodes and ranks.
_MIN_SECRET = 16
# LIMIT bounds the time of a whole handshake, in seconds, however slowly the other side sends.
LIMIT = 10.0

DATA, CTRL = b"D", b"C"


class Refused(Exception):
    """The other side refused, or is not to be trusted."""


class Hello(NamedTuple):
    """What a client asks for."""

    kind: bytes
    rank: int
    token: bytes


def receive(s: socket.socket, size: int, until: float = math.inf) -> bytes:
    """Receive exactly size bytes, until a time; raise EOFError if the connection ends before."""
    data = bytearray(size)
    receive_into(s, memoryview(data), until)
    return bytes(data)


def receive_into(s: socket.socket, view: memoryview, until: float = math.inf) -> None:
    """Fill view with received bytes. Without a time, the limit of the socket applies to each wait."""
    while len(view) > 0:
        if until != math.inf:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the other side did not complete the handshake in time")
            s.settimeout(left)
        n = s.recv_into(view)
        if n == 0:
            raise EOFError("the connection was closed")
        view = view[n:]


def is_local(address: str) -> bool:
    """Report whether an address is one of this host."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as s:
                s.bind(where)
                return True
        except OSError:
            continue
    return False


def secret() -> bytes:
    """Return the secret of $HMCFS_SECRET_FILE; none if the variable is unset."""
    path = os.environ.get("HMCFS_SECRET_FILE")
    if not path:
        return b""
    try:
        with open(path, "rb") as f:
            found = f.read(1 << 16).strip()
            if os.fstat(f.fileno()).st_mode & 0o077:
                raise Refused(f"{path}: other users can read the secret: chmod 600 {path}")
    except OSError as e:
        raise Refused(f"{path}: {e.strerror}; HMCFS_SECRET_FILE must name the file with the secret") from e
    if len(found) < _MIN_SECRET:
        raise Refused(f"{path}: the secret must have {_MIN_SECRET} bytes or more: head -c 32 /dev/urandom | base64 >{path}")
    return found


def _same_user(s: socket.socket) -> None:
    _, uid, _ = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.geteuid():
        raise Refused(f"the other process belongs to user {uid}, this one to user {os.geteuid()}")


def _key(s: socket.socket) -> bytes:
    """Return the key of the proofs. The kernel vouches for the other side of a Unix socket."""
    if s.family == socket.AF_UNIX:
        _same_user(s)
        return b"local"
    key = secret()
    if not key:
        raise Refused("processes of different hosts need a secret that both know: set HMCFS_SECRET_FILE on both")
    return key


def _proof(key: bytes, side: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.new(key, side + hello + nonce, "sha256").digest()


def _answer(s: socket.socket, refused: bool, body: bytes) -> None:
    s.sendall(_ANSWER.pack(refused, len(body)) + body)


def _answered(s: socket.socket, until: float) -> bytes:
    refused, size = _ANSWER.unpack(receive(s, _ANSWER.size, until))
    body = receive(s, size, until)
    if refused:
        raise Refused(body.decode(errors="replace"))
    return body


def connect(s: socket.socket, hello: Hello) -> bytes:
    """Introduce this process over a new connection, and return the token of the server's session."""
    s.settimeout(LIMIT)
    until = time.monotonic() + LIMIT
    key = _key(s)
    first = _HELLO.pack(_MAGIC, hello.kind, hello.rank, hello.token, secrets.token_bytes(_NONCE))
    s.sendall(first)
    body = _answered(s, until)
    nonce, proof = body[:_NONCE], body[_NONCE:]
    if not hmac.compare_digest(proof, _proof(key, b"server", first, nonce)):
        raise Refused("the server does not know the secret: HMCFS_SECRET_FILE must be the same on both hosts")
    s.sendall(_proof(key, b"client", first, nonce))
    token = _answered(s, until)
    s.settimeout(LIMIT)
    return token


def challenge(s: socket.socket) -> Hello:
    """Read the hello of a client, and have it prove itself. The caller accepts or refuses it then."""
    s.settimeout(LIMIT)
    until = time.monotonic() + LIMIT
    try:
        key = _key(s)  # another user is not waited for
    except Refused as e:
        refuse(s, str(e))
        raise
    first = receive(s, _HELLO.size, until)
    magic, kind, rank, token, _ = _HELLO.unpack(first)
    if magic != _MAGIC or kind not in (DATA, CTRL):
        raise Refused("this is not a client of hmcfs.compat.hmc")
    nonce = secrets.token_bytes(_NONCE)
    _answer(s, False, nonce + _proof(key, b"server", first, nonce))
    if not hmac.compare_digest(receive(s, _NONCE, until), _proof(key, b"client", first, nonce)):
        refuse(s, "the client does not know the secret")
        raise Refused("a client does not know the secret")
    s.settimeout(LIMIT)
    return Hello(kind, rank, token)


def accept(s: socket.socket, token: bytes) -> None:
    """Accept a client that has proved itself."""
    _answer(s, False, token)


def refuse(s: socket.socket, reason: str) -> None:
    """Refuse a client."""
    _answer(s, True, reason.encode()[:4096])
