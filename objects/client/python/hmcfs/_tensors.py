"""Tensors by name, from and to .safetensors and .npy files."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import re
from typing import Any, Iterator, Mapping

from . import _dtypes, _errors, _mounted
from ._files import File, Tensor
from ._fs import _mount_of, _mounts, connect
from ._memory import flat, type_and_shape

_NUMBER = itertools.count()
# _ALIGNED is what the data of a file begin at a multiple of.
_ALIGNED = 64


def load_file(path: str, device: "str | None" = None, *, framework: "str | None" = None) -> dict[str, Any]:
    """Return the tensors of a .safetensors file by name, or the array of a .npy file by the name of the file.

    They are the memory of the file: nothing is copied. With a device ("cuda:1", "cuda1", "sim0", "host" or
    "cpu") they are on that one: if the file is on another, it is copied there, from device to device, to memory
    that is given back with the tensors. ``framework`` is "torch" or "numpy": by default "torch" where PyTorch is
    installed.
    """
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    if framework not in ("torch", "numpy"):
        raise _errors.Invalid(f"framework is 'torch' or 'numpy', not {framework!r}")
    with connect(path) as fs, _on(fs, os.path.realpath(path), device) as file:
        if file._is_npy:
            parts: Iterator[tuple[str, Tensor]] = iter([(os.path.splitext(os.path.basename(path))[0], file)])
        else:
            parts = file._parts()
        return {name: one.torch() if framework == "torch" else one.numpy() for name, one in parts}


def _on(fs: Any, path: str, device: "str | None") -> File:
    """Open a file on a device."""
    if device is None:
        return fs.open(path)  # type: ignore[no-any-return]
    device = "host" if str(device) == "cpu" else re.sub(r":(\d+)$", r"\1", str(device))
    if fs.attribute(path, "user.hmc.device").decode() == device:
        return fs.open(path)  # type: ignore[no-any-return]
    there = sorted(set(fs.listdir()) - {".hmcfs", "keys", "publish", "nodes"})
    if device not in there:
        raise _errors.Invalid(f"{device!r} is no device of the mount; it has {', '.join(there)}")
    copy = os.path.join(device, f".{os.path.basename(path)[:200]}.{os.getpid()}.{next(_NUMBER)}")
    try:
        fs.copy(path, copy)
        file: File = fs.open(copy)
        if not file._is_npy:
            file._header  # can be read as long as it has a name
        return file
    finally:
        with contextlib.suppress(_errors.NotFound):
            fs.remove(copy)  # what is open stays


def save_file(tensors: Any, path: str, metadata: "Mapping[str, str] | None" = None, *, copy: bool = False) -> None:
    """Write tensors by name to a .safetensors file, or one array, alone or by any name, to a .npy file.

    The file appears, or replaces another, when all of it is written. Arrays that are not contiguous are refused,
    unless copy allows to copy them.
    """
    if path.endswith(".npy"):
        if isinstance(tensors, Mapping):
            if len(tensors) != 1:
                raise _errors.Invalid(f"{path}: a .npy file has one array, not {len(tensors)}; save a .safetensors file")
            (tensors,) = tensors.values()
        if metadata:
            raise _errors.Invalid(f"{path}: a .npy file has no metadata; save a .safetensors file")
        kind, shape = _kind_of(tensors, path)
        _write(path, _npy_header(kind, shape), [_data(tensors, path, copy)], kind)
    elif path.endswith(".safetensors"):
        if not isinstance(tensors, Mapping):
            raise _errors.Invalid(f"{path}: give the tensors by name, as {{'name': tensor}}")
        header, order = _safetensors_header(tensors, path, metadata)
        _write(path, header, [_data(tensors[name], f"{path}: {name}", copy) for name in order], "")
    else:
        raise _errors.Invalid(f"{path}: the name must end with .safetensors or .npy")


def _kind_of(x: Any, what: str) -> tuple[str, tuple[int, ...]]:
    """Return the type and shape of an array or a tensor."""
    if isinstance(x, memoryview) and _dtypes.of_format(x.format):  # as of empty() without NumPy
        return _dtypes.of_format(x.format), tuple(x.shape or ())
    kind, shape = type_and_shape(x)
    if not kind:
        raise _errors.Invalid(f"{what}: {type(x).__name__} is no array or tensor; give numpy.asarray(x)")
    if getattr(x.dtype, "hasobject", False) or getattr(x.dtype, "names", None):
        raise _errors.Invalid(f"{what}: elements of {x.dtype} can't be saved; give numbers, as x.astype(...)")
    return kind, shape


def _data(x: Any, what: str, copy: bool) -> Any:
    """Return the bytes of an array, and the array, which keeps them."""
    return (b"" if 0 in x.shape else flat(x, False, what, copy)), x


def _npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    known = _dtypes.TYPES.get(kind)
    text = repr({"descr": known.descr if known else kind, "fortran_order": False, "shape": shape}).encode("latin-1")
    size = -(-(10 + len(text) + 1) // _ALIGNED) * _ALIGNED - 10
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"


def _safetensors_header(tensors: Mapping[str, Any], path: str, metadata: "Mapping[str, str] | None") -> tuple[bytes, list[str]]:
    """Return the header of a file, and the order of its tensors: the widest elements first, so that all are aligned."""
    header: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise _errors.Invalid(f"{path}: names and values of metadata are text")
        header["__metadata__"] = dict(metadata)
    kinds, shapes = {}, {}
    for name, x in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise _errors.Invalid(f"{path}: {name!r} is no name of a tensor")
        found, shapes[name] = _kind_of(x, f"{path}: {name}")
        kind = _dtypes.TYPES.get(found)
        if kind is None or not kind.safetensors:
            raise _errors.Unsupported(f"{path}: safetensors files have no elements of {x.dtype}, the type of {name}; convert them")
        kinds[name] = kind
    order, at = sorted(kinds, key=lambda name: (-kinds[name].size, name)), 0
    for name in order:
        size = kinds[name].size
        for n in shapes[name]:
            size *= n
        header[name] = {"dtype": kinds[name].safetensors, "shape": shapes[name], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-(8 + len(text)) // _ALIGNED) * _ALIGNED - 8)
    return len(text).to_bytes(8, "little") + text, order


def _write(path: str, header: bytes, data: list[Any], dtype: str) -> None:
    """Write a file, which may also be none of hmcfs, and name errors by its path."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    full = os.path.join(folder, os.path.basename(path))
    try:
        if _mount_of(folder) in (None, *_mounts()):
            _write_to(_mounted.Tree("/"), full, header, data, dtype)
            return
        with connect(folder) as fs:
            _write_to(fs._tree, fs._name(full), header, data, dtype)
    except OSError as e:
        if e.errno is None:
            raise
        raise _errors.of_errno(e.errno, path) from e


def _write_to(tree: Any, full: str, header: bytes, data: list[Any], dtype: str) -> None:
    """Write a file beside its place, and put it there."""
    folder, name = os.path.split(full)
    beside = os.path.join(folder, f".{name[:200]}.{os.getpid()}.{next(_NUMBER)}")
    file = tree.create(beside)
    try:
        with file:
            for part in (header, *(view for view, _ in data)):
                view = memoryview(part)
                while view.nbytes:
                    view = view[file.write(view[: 1 << 30]) :]
        if dtype in _dtypes.TYPES and "V" in _dtypes.TYPES[dtype].descr:
            # The header of a .npy file can't say it, nor the attribute of a file that is none of hmcfs.
            with contextlib.suppress(OSError):
                tree.set_attribute(beside, "user.hmc.dtype", dtype.encode())
        tree.rename(beside, full)
    except BaseException:
        with contextlib.suppress(OSError):
            tree.remove(beside)
        raise
