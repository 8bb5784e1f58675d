"""Enumerations and errors of HMC."""

from __future__ import annotations

from enum import IntEnum

from .. import _errors


class status_t(IntEnum):
    """What became of an operation."""

    SUCCESS = 0
    ERROR = 1
    UNSUPPORT = 2
    INVALID_CONFIG = 3
    TIMEOUT = 4
    NOT_FOUND = 5


class MemoryType(IntEnum):
    """Kinds of memory."""

    DEFAULT = 0
    CPU = 1
    NVIDIA_GPU = 2
    AMD_GPU = 3
    CAMBRICON_MLU = 4
    MOORE_GPU = 5


class ConnType(IntEnum):
    """Kinds of connections. Here both are the same transport, at the server's two ports."""

    RDMA = 0
    UCX = 1


class CtrlTransport(IntEnum):
    """How tags travel."""

    TCP = 0
    UDS = 1


class HMCError(_errors.HmcfsError, RuntimeError):
    """An operation failed."""


class HMCStatusError(HMCError):
    """An operation failed, with a status."""

    def __init__(self, status: status_t, text: str) -> None:
        super().__init__(f"{text} (status={status.name})")
        self.status = status
