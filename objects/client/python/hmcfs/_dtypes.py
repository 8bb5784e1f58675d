"""The types of elements: their names here, in files, in NumPy, PyTorch, DLPack and ctypes."""

from __future__ import annotations

import ctypes
import importlib
import re
from typing import Any, NamedTuple

from . import _errors


class Type(NamedTuple):
    """A type of elements, by its name in NumPy, ml_dtypes and PyTorch."""

    name: str
    size: int
    # safetensors is its name in safetensors files, descr its type string in .npy files.
    safetensors: str
    descr: str
    # dlpack is its code in DLPack.
    dlpack: int
    # ctype is the type of the standard library, None if it has none.
    ctype: Any


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

TYPES = {
    t.name: t
    for t in (
        Type("bool", 1, "BOOL", "|b1", _BOOL, ctypes.c_bool),
        Type("uint8", 1, "U8", "|u1", _UINT, ctypes.c_uint8),
        Type("int8", 1, "I8", "|i1", _INT, ctypes.c_int8),
        Type("uint16", 2, "U16", "<u2", _UINT, ctypes.c_uint16),
        Type("int16", 2, "I16", "<i2", _INT, ctypes.c_int16),
        Type("uint32", 4, "U32", "<u4", _UINT, ctypes.c_uint32),
        Type("int32", 4, "I32", "<i4", _INT, ctypes.c_int32),
        Type("uint64", 8, "U64", "<u8", _UINT, ctypes.c_uint64),
        Type("int64", 8, "I64", "<i8", _INT, ctypes.c_int64),
        Type("float16", 2, "F16", "<f2", _FLOAT, None),
        Type("float32", 4, "F32", "<f4", _FLOAT, ctypes.c_float),
        Type("float64", 8, "F64", "<f8", _FLOAT, ctypes.c_double),
        Type("complex64", 8, "C64", "<c8", _COMPLEX, None),
        Type("complex128", 16, "", "<c16", _COMPLEX, None),
        # NumPy has no names for these; ml_dtypes and PyTorch have.
        Type("bfloat16", 2, "BF16", "<V2", _BFLOAT, None),
        Type("float8_e4m3fn", 1, "F8_E4M3", "|V1", 10, None),
        Type("float8_e4m3fnuz", 1, "F8_E4M3FNUZ", "|V1", 11, None),
        Type("float8_e5m2", 1, "F8_E5M2", "|V1", 12, None),
        Type("float8_e5m2fnuz", 1, "F8_E5M2FNUZ", "|V1", 13, None),
        Type("float8_e8m0fnu", 1, "F8_E8M0", "|V1", 14, None),
    )
}
SAFETENSORS = {t.safetensors: t for t in TYPES.values() if t.safetensors}
_DESCRS = {t.descr: t for t in TYPES.values() if "V" not in t.descr}
_PLAIN = re.compile(r"[<>|=]?(?:[?]|[biufcSUV]\d{1,9}|[mM]8(?:\[\w+\])?)")


def package(name: str, what: str, instead: str = "") -> Any:
    """Return a package that is used only where it is installed, such as NumPy."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise _errors.Unsupported(f"{what}: this needs the package {name}, which can't be imported ({e}); install it{instead}") from e


def of_plain(dtype: Any, what: str) -> Type:
    """Return the type of a name or a type string, for programs without NumPy."""
    text = str(dtype)
    known = {**TYPES, **{t.descr.lstrip("<|"): t for t in TYPES.values()}}.get(text.lstrip("<|="))
    if known is None or known.ctype is None:
        raise _errors.Unsupported(f"{what}: elements of {text} need the package numpy, which is not installed; install it, or take bytes: u1")
    return known


def of_format(text: str) -> str:
    """Return the name of the type of a memoryview's elements; "" if it has none."""
    return next((t.name for t in TYPES.values() if t.ctype is not None and t.ctype._type_ == text), "")


def of_descr(descr: Any) -> str:
    """Return the name of the type string of a .npy file: the string itself if it has none."""
    if isinstance(descr, str) and descr in _DESCRS:
        return _DESCRS[descr].name
    return descr if isinstance(descr, str) else str(descr)


def in_numpy(dtype: Any, what: str) -> Any:
    """Return NumPy's type of a name, a type string or a description of a structured type."""
    numpy = package("numpy", what, ", or use memory()")
    one = TYPES.get(dtype) if isinstance(dtype, str) else None
    if one is not None and "V" in one.descr:
        try:
            import ml_dtypes

            return numpy.dtype(getattr(ml_dtypes, one.name))
        except (ImportError, AttributeError) as e:
            raise _errors.Unsupported(f"{what}: NumPy has no type {one.name}; use PyTorch, or install ml_dtypes") from e
    try:
        kind = numpy.dtype(one.descr if one is not None else _fields(dtype))
    except (TypeError, ValueError) as e:
        raise _errors.Unsupported(f"{what}: NumPy has no type {dtype}; use memory()") from e
    if kind.hasobject:
        raise _errors.Unsupported(f"{what}: its elements are Python objects, which are not in the file; save it with another dtype")
    return kind


def _fields(dtype: Any) -> Any:
    if isinstance(dtype, str) and not _PLAIN.fullmatch(dtype):
        raise TypeError(dtype)
    return dtype


def in_torch(name: str, what: str) -> Any:
    """Return PyTorch's type of a name."""
    torch = package("torch", what, ", or use numpy() or memory()")
    kind = getattr(torch, name, None) if name in TYPES else None
    if not isinstance(kind, torch.dtype):
        raise _errors.Unsupported(f"{what}: PyTorch {torch.__version__} has no type {name}; use numpy() or memory()")
    return kind
