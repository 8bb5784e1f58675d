"""Memory for other libraries, by DLPack."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _dtypes

CPU, CUDA = 1, 2


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]


# _AT has the offset of the tensor in what capsules of a name point to.
_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


# _STAND_INS are types that NumPy has, by their sizes.
_STAND_INS = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8", 16: "<c16"}


class _Address:
    """Memory that NumPy refers to, and never reads."""

    def __init__(self, keep: Any, address: int, shape: tuple[int, ...], strides: "tuple[int, ...] | None", size: int) -> None:
        self.keep = keep
        self.__array_interface__ = {
            "version": 3, "data": (address, False), "shape": shape, "strides": strides, "typestr": _STAND_INS[size],
        }


def capsule(
    keep: Any, address: int, code: int, size: int, shape: tuple[int, ...], strides: "tuple[int, ...] | None",
    device: tuple[int, int], version: Any,
) -> Any:
    """Return a capsule of memory that keep keeps alive, whose strides are in bytes.

    NumPy makes it: its deleter may be called from any thread, and in the middle of an error, which one in
    Python could not. Then the type and the device are set, which NumPy need not know.
    """
    numpy = _dtypes.package("numpy", "DLPack", ", or use memory()")
    array: Any
    if 0 in shape:
        array = numpy.empty(shape, _STAND_INS[size])
        address = array.ctypes.data
    else:
        array = numpy.asarray(_Address(keep, address, shape, strides, size))
    try:
        made = array.__dlpack__(max_version=version) if version is not None else array.__dlpack__()
    except TypeError:  # NumPy before 2.1
        made = array.__dlpack__()
    name = _name_of(made)
    tensor = _Tensor.from_address(_pointer_of(made, name) + _AT[name])
    tensor.data, (tensor.device_type, tensor.device_id) = address, device
    tensor.code, tensor.bits = code, 8 * size
    return made
