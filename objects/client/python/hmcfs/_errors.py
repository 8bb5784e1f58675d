"""Errors, one class for each code that the daemon answers with."""

from __future__ import annotations

import errno
import functools
import os
from typing import Any


class HmcfsError(Exception):
    """An operation failed. ``key`` is the key that it concerns, or None."""

    code = "io"
    # _way_out says what to do, where the daemon does not.
    _way_out = "hmcfs status says more"
    # failures has the error of each key that failed, of a call about several.
    failures: dict[str, HmcfsError] = {}

    def __init__(self, text: str, key: str | None = None) -> None:
        named = key is None or text.startswith(f'key "{key}"')  # the daemon has named it
        super().__init__(text if named else f"key {key!r}: {text}")
        self.key = key


class NotMounted(HmcfsError, FileNotFoundError):
    """There is no mount, or several and none was named."""

    code = "not_mounted"
    _way_out = "mount one with hmcfs mount, or run hmcfs serve"


class Disconnected(HmcfsError, ConnectionError):
    """The daemon does not answer, or has ended."""

    code = "disconnected"
    _way_out = "hmcfs status says what still runs"


class Closed(HmcfsError, ValueError):
    """The object was closed."""

    code = "closed"
    _way_out = "connect again"


class Invalid(HmcfsError, ValueError):
    """An argument is wrong."""

    code = "invalid"
    _way_out = "the help of the call says what it takes"


class Shape(HmcfsError, ValueError):
    """The memory does not have the sizes of the blobs of the key."""

    code = "shape"
    _way_out = "hmcfs ls-keys --json shows the sizes of the blobs of each key"


class Inconsistent(HmcfsError):
    """The key exists in another state than the call assumes."""

    code = "inconsistent"
    _way_out = "repeat it as it was first, or delete the key"


class NotFound(HmcfsError, KeyError):
    """The key does not exist."""

    code = "not_found"
    _way_out = "create it first, or wait for it with a timeout"

    def __str__(self) -> str:  # KeyError would show the text quoted
        return Exception.__str__(self)


class Exists(HmcfsError, FileExistsError):
    """The key exists already."""

    code = "exists"
    _way_out = "remove the other one, or choose another name"


class Timeout(HmcfsError, TimeoutError):
    """The key was not there in time."""

    code = "timeout"
    _way_out = "give a longer timeout"


class Interrupted(HmcfsError):
    """The call was cancelled."""

    code = "interrupted"
    _way_out = "call it again"


class OwnerGone(HmcfsError):
    """The client that owned the memory has ended."""

    code = "owner_gone"
    _way_out = "publish it again"


class Withdrawn(HmcfsError):
    """The publication was withdrawn before it was received."""

    code = "withdrawn"
    _way_out = "publish it again"


class Lost(HmcfsError):
    """The content is lost, because its memory no longer exists."""

    code = "lost"
    _way_out = "remove it, or write it again"


class NoMemory(HmcfsError, MemoryError):
    """The device, or a limit of this user, has no more room."""

    code = "no_memory"
    _way_out = "hmcfs status shows how much is free, and hmcfs ls-keys what could be deleted"


class NotAuthorized(HmcfsError, PermissionError):
    """This user may not do that."""

    code = "not_authorized"
    _way_out = "run it as the owner, or as root"


class NotOwner(HmcfsError, PermissionError):
    """The key belongs to another client."""

    code = "not_owner"
    _way_out = "run it as the owner, or as root"


class ReadOnly(HmcfsError, OSError):
    """The mount permits no changes."""

    code = "read_only"
    _way_out = "mount it without -o ro"


class Busy(HmcfsError):
    """In use, or a limit is reached; trying again may succeed."""

    code = "busy"
    _way_out = "try again when no process uses it"


class RankLost(HmcfsError, ConnectionError):
    """Another rank of the job has ended, or is not reachable."""

    code = "rank_lost"
    _way_out = "end this rank, and start the job again"


class Retry(HmcfsError):
    """A collective failed and was not repeated; all ranks continue with the next one."""

    code = "retry"
    _way_out = "repeat the call at all ranks"


class Unsupported(HmcfsError):
    """The device, or the file, does not support that."""

    code = "unsupported"
    _way_out = "hmcfs doctor says what this machine supports"


def _classes() -> dict[str, type[HmcfsError]]:
    found = {c.code: c for c in HmcfsError.__subclasses__()}
    found["forbidden"] = NotAuthorized
    found["ending"] = found["no_session"] = Disconnected
    return found


_BY_CODE = _classes()


def of(code: str, text: str, key: str | None = None) -> HmcfsError:
    """Return the error of a code of the daemon. Its text names a way out, after a semicolon: the daemon's, or that of its class."""
    kind = _BY_CODE.get(code, HmcfsError)
    return kind(text if "; " in text else f"{text}; {kind._way_out}", key)


# _OF_ERRNO has the classes of errors about files.
_OF_ERRNO: dict[int, type[HmcfsError]] = {
    errno.ENOENT: NotFound, errno.ENODATA: NotFound, errno.EEXIST: Exists, errno.EACCES: NotAuthorized,
    errno.EPERM: NotAuthorized, errno.ENOSPC: NoMemory, errno.ENOMEM: NoMemory, errno.EDQUOT: NoMemory,
    errno.EINVAL: Invalid, errno.ENAMETOOLONG: Invalid, errno.EBUSY: Busy, errno.EMFILE: Busy,
    errno.EROFS: ReadOnly,
    errno.EOPNOTSUPP: Unsupported, errno.ENOTCONN: Disconnected,
}


# _WAYS_OUT says what to do about an error, where that does not depend on the call.
_WAYS_OUT = {
    errno.ENOSPC: ": remove files of this device, or choose another one",
    errno.EDQUOT: ": remove files of this user, or raise the limit",
    errno.EROFS: ": it was mounted with -o ro",
    errno.ENOTCONN: ": the daemon has ended; hmcfs status says more",
}


@functools.lru_cache(maxsize=None)
def _about_files(number: int) -> Any:
    """Return the class of errors of a number that are one of this package's and one of Python's."""
    kind, system = _OF_ERRNO.get(number, HmcfsError), type(OSError(number, ""))
    bases = (kind,) if issubclass(kind, system) else (kind, system)
    return type(kind.__name__, bases, {"__module__": "hmcfs", "__doc__": kind.__doc__, "__reduce__": _reduced, "__str__": OSError.__str__})


def _reduced(error: Any) -> Any:
    return of_errno, (error.errno, error.filename, error.filename2, error.strerror)


def of_errno(number: int, path: str, other: str | None = None, text: str = "") -> HmcfsError:
    """Return the error of a call about a file, or two: also the OSError that the call on a mount would raise."""
    text = text or os.strerror(number) + _WAYS_OUT.get(number, "")
    error = _about_files(number)(text)
    error.errno, error.strerror, error.filename = number, text, path
    if other is not None:
        error.filename2 = other
    return error  # type: ignore[no-any-return]


def of_os(error: Exception, what: str) -> HmcfsError:
    """Return the error of a failed system call on the daemon's socket, or of a connection that ended."""
    number = getattr(error, "errno", None)
    reason = os.strerror(number) if number else str(error)
    if number in (errno.EACCES, errno.EPERM):
        return NotAuthorized(f"{what}: {reason}; mount with --allow-other to give other users access")
    return Disconnected(f"{what}: {reason}")
