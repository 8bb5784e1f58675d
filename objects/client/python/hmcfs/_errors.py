"""Errors, one class for each code that the daemon answers with."""

from __future__ import annotations

import errno
import functools
import os
from typing import Any


class HmcfsError(Exception):
    """An operation failed. ``key`` is the key that it concerns, or None."""

    code = "io"
    # failures has the error of each key that failed, of a call about several.
    failures: dict[str, HmcfsError] = {}

    def __init__(self, text: str, key: str | None = None) -> None:
        named = key is None or text.startswith(f'key "{key}"')  # the daemon has named it
        super().__init__(text if named else f"key {key!r}: {text}")
        self.key = key


class NotMounted(HmcfsError, FileNotFoundError):
    """There is no mount, or several and none was named."""

    code = "not_mounted"


class Disconnected(HmcfsError, ConnectionError):
    """The daemon does not answer, or has ended."""

    code = "disconnected"


class Closed(HmcfsError, ValueError):
    """The object was closed."""

    code = "closed"


class Invalid(HmcfsError, ValueError):
    """An argument is wrong."""

    code = "invalid"


class Shape(HmcfsError, ValueError):
    """The memory does not have the sizes of the blobs of the key."""

    code = "shape"


class Inconsistent(HmcfsError):
    """The key exists in another state than the call assumes."""

    code = "inconsistent"


class NotFound(HmcfsError, KeyError):
    """The key does not exist."""

    code = "not_found"

    def __str__(self) -> str:  # KeyError would show the text quoted
        return Exception.__str__(self)


class Exists(HmcfsError, FileExistsError):
    """The key exists already."""

    code = "exists"


class Timeout(HmcfsError, TimeoutError):
    """The key was not there in time."""

    code = "timeout"


class Interrupted(HmcfsError):
    """The call was cancelled."""

    code = "interrupted"


class OwnerGone(HmcfsError):
    """The client that owned the memory has ended."""

    code = "owner_gone"


class Withdrawn(HmcfsError):
    """The publication was withdrawn before it was received."""

    code = "withdrawn"


class Lost(HmcfsError):
    """The content is lost, because its memory no longer exists."""

    code = "lost"


class NoMemory(HmcfsError, MemoryError):
    """The device, or a limit of this user, has no more room."""

    code = "no_memory"


class NotAuthorized(HmcfsError, PermissionError):
    """This user may not do that."""

    code = "not_authorized"


class NotOwner(HmcfsError, PermissionError):
    """The key belongs to another client."""

    code = "not_owner"


class ReadOnly(HmcfsError, OSError):
    """The mount permits no changes."""

    code = "read_only"


class Busy(HmcfsError):
    """In use, or a limit is reached; trying again may succeed."""

    code = "busy"


class RankLost(HmcfsError, ConnectionError):
    """Another rank of the job has ended, or is not reachable."""

    code = "rank_lost"


class Retry(HmcfsError):
    """A collective failed and was not repeated; all ranks continue with the next one."""

    code = "retry"


class Unsupported(HmcfsError):
    """The device, or the file, does not support that."""

    code = "unsupported"


def _classes() -> dict[str, type[HmcfsError]]:
    found = {c.code: c for c in HmcfsError.__subclasses__()}
    found["forbidden"] = NotAuthorized
    found["ending"] = found["no_session"] = Disconnected
    return found


_BY_CODE = _classes()


def of(code: str, text: str, key: str | None = None) -> HmcfsError:
    """Return the error of a code of the daemon."""
    return _BY_CODE.get(code, HmcfsError)(text, key)


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
