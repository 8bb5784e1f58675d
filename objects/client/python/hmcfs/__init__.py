"""Device memory as files and keys: a client of hmcfs."""

from ._errors import (
    Busy, Closed, Disconnected, Exists, HmcfsError, Inconsistent, Interrupted, Invalid, Lost, NoMemory,
    NotAuthorized, NotFound, NotMounted, NotOwner, OwnerGone, RankLost, ReadOnly, Retry, Shape, Timeout, Unsupported, Withdrawn,
)
from ._files import File, Tensor
from ._fs import Event, FileSystem, Future, connect
from ._ranks import Communicator, init
from ._tensors import load_file, save_file

__version__ = "0.1.0"
__all__ = [
    "Busy", "Closed", "Communicator", "Disconnected", "Event", "Exists", "File", "FileSystem", "Future", "HmcfsError",
    "Inconsistent", "Interrupted", "Invalid", "Lost", "NoMemory", "NotAuthorized", "NotFound", "NotMounted",
    "NotOwner", "OwnerGone", "RankLost", "ReadOnly", "Retry", "Shape", "Tensor", "Timeout", "Unsupported",
    "Withdrawn", "connect", "init", "load_file", "save_file",
]
