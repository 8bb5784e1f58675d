"""The buffer of a session of hmcfs.compat.hmc."""

from __future__ import annotations

import sys
from typing import Any

from ._links import Memory, copy
from ._status import HMCStatusError, MemoryType, status_t


def _torch_tensor(x: Any) -> Any:
    """Return the module torch if x is one of its tensors; it is not imported for that."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.is_tensor(x) else None


def bytes_of(x: Any, writable: bool) -> memoryview:
    """Return the bytes of a buffer in host memory; a source that is not contiguous is copied."""
    torch = _torch_tensor(x)
    if torch is not None:
        if not x.is_contiguous():
            if writable:
                raise ValueError("the destination tensor is not contiguous: give x.contiguous() and copy it back")
            x = x.contiguous()
        return memoryview(x.detach().reshape(-1).view(torch.uint8).numpy())
    if hasattr(x, "__array_interface__"):
        if not x.flags.c_contiguous:
            if writable:
                raise ValueError("the destination is not C-contiguous")
            x = x.copy()
        x = x.reshape(-1).view("u1")
    view = memoryview(x)
    if writable and view.readonly:
        raise ValueError("the destination is read-only: give a bytearray, or an array that can be written")
    if not view.c_contiguous:
        if writable:
            raise ValueError("the destination is not C-contiguous")
        view = memoryview(view.tobytes())
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _sized(have: int, nbytes: int | None, what: str) -> int:
    size = have if nbytes is None else int(nbytes)
    if not 0 <= size <= have:
        raise ValueError(f"{what} has {have} bytes, not {size}")
    return size


class IOBuffer:
    """Memory that peers put to and get from: shared memory of this process."""

    def __init__(self, device_id: int, buffer_size: int, mem_type: MemoryType) -> None:
        if mem_type not in (MemoryType.CPU, MemoryType.DEFAULT):
            raise HMCStatusError(
                status_t.UNSUPPORT,
                f"buffers are in host memory, not {MemoryType(mem_type).name}; tensors of a card are put and got with device='cuda'",
            )
        if int(buffer_size) < 1:
            raise HMCStatusError(status_t.INVALID_CONFIG, f"a buffer of {buffer_size} bytes")
        self.device_id, self.mem_type = int(device_id), MemoryType.CPU
        try:
            self.memory = Memory.new(int(buffer_size))
        except OSError as e:
            raise HMCStatusError(status_t.ERROR, f"a buffer of {buffer_size} bytes: {e.strerror}") from e

    @classmethod
    def create(cls, device_id: int, buffer_size: int, mem_type: MemoryType = MemoryType.DEFAULT) -> "IOBuffer":
        """Allocate a buffer."""
        return cls(device_id, buffer_size, mem_type)

    @property
    def ptr(self) -> int:
        """The address of the buffer."""
        return self.memory.start

    @property
    def size(self) -> int:
        """The size of the buffer, in bytes."""
        return self.memory.size

    def _range(self, offset: int, size: int) -> memoryview:
        if not self.memory.has(int(offset), size):
            raise HMCStatusError(
                status_t.ERROR, f"Buffer overflow: {size} bytes at {offset}, of a buffer of {self.size} bytes; create_session takes buffer_size"
            )
        return self.memory.view[int(offset) : int(offset) + size]

    def put(self, data: Any, *, nbytes: int | None = None, offset: int = 0, device: str | None = None) -> int:
        """Copy data into the buffer, and return its size in bytes."""
        torch = self._card(data, device)
        if torch is not None:
            return self._put_card(torch, data, nbytes, offset)
        source = bytes_of(data, False)
        size = _sized(source.nbytes, nbytes, "the source")
        self._range(offset, size)[:] = source[:size]
        return size

    def get_into(self, dst: Any, *, nbytes: int, offset: int = 0, device: str | None = None) -> None:
        """Copy bytes of the buffer into dst."""
        torch = self._card(dst, device)
        if torch is not None:
            self._get_card(torch, dst, nbytes, offset)
            return
        target = bytes_of(dst, True)
        size = _sized(target.nbytes, nbytes, "the destination")
        target[:size] = self._range(offset, size)

    def buffer_put_cpu(self, src: Any, *, nbytes: int | None = None, offset: int = 0) -> int:
        """Copy data of host memory into the buffer, and return its size in bytes."""
        return self.put(src, nbytes=nbytes, offset=offset, device="cpu")

    def buffer_get_cpu_into(self, dst: Any, *, nbytes: int, offset: int = 0) -> None:
        """Copy bytes of the buffer into host memory."""
        self.get_into(dst, nbytes=nbytes, offset=offset, device="cpu")

    def buffer_get_cpu(self, *, nbytes: int, offset: int = 0) -> bytearray:
        """Return bytes of the buffer."""
        return bytearray(self._range(offset, int(nbytes)))

    def buffer_put_cuda(self, t: Any, *, nbytes: int | None = None, offset: int = 0) -> int:
        """Copy a tensor of a card into the buffer, and return its size in bytes."""
        return self.put(t, nbytes=nbytes, offset=offset, device="cuda")

    def buffer_get_cuda(self, t: Any, *, nbytes: int | None = None, offset: int = 0) -> int:
        """Copy bytes of the buffer into a tensor of a card, and return their number."""
        size: int = t.numel() * t.element_size() if nbytes is None else int(nbytes)
        self.get_into(t, nbytes=size, offset=offset, device="cuda")
        return size

    def buffer_copy_within(self, *, dst_offset: int, src_offset: int, nbytes: int) -> None:
        """Copy bytes inside the buffer; the ranges may overlap."""
        self._range(dst_offset, int(nbytes))
        self._range(src_offset, int(nbytes))
        copy(self.memory, int(dst_offset), self.memory, int(src_offset), int(nbytes))

    def _card(self, x: Any, device: str | None) -> Any:
        """Return the module torch if x is memory of a card."""
        if device not in (None, "cpu", "cuda", "ptr"):
            raise ValueError(f"device is 'cpu', 'cuda' or 'ptr', not {device!r}")
        if device == "ptr":
            raise HMCStatusError(status_t.UNSUPPORT, "addresses of a card are not supported: give the tensor itself, with device='cuda'")
        torch = _torch_tensor(x)
        on_card = torch is not None and x.device.type != "cpu"
        if device == "cuda" and not on_card:
            raise ValueError("device='cuda' takes a tensor of PyTorch on a card")
        if device == "cpu" and on_card:
            raise ValueError(f"the tensor is on {x.device}: use device='cuda'")
        return torch if on_card else None

    def _put_card(self, torch: Any, t: Any, nbytes: int | None, offset: int) -> int:
        source = t.detach().contiguous().reshape(-1).view(torch.uint8)
        size = _sized(source.numel(), nbytes, "the tensor")
        if size:
            torch.frombuffer(self._range(offset, size), dtype=torch.uint8).copy_(source[:size])
        return size

    def _get_card(self, torch: Any, t: Any, nbytes: int, offset: int) -> None:
        if not t.is_contiguous():
            raise ValueError("the destination tensor is not contiguous: give x.contiguous() and copy it back")
        target = t.detach().view(-1).view(torch.uint8)
        size = _sized(target.numel(), nbytes, "the tensor")
        if size:
            target[:size].copy_(torch.frombuffer(self._range(offset, size), dtype=torch.uint8))
