"""Reads what `torch.save` wrote, without torch and without running anything that it says.

Such a file is a zip archive of uncompressed members: a pickle of the structure, and the raw
bytes of each storage. The pickle is not given to Python's own unpickler: a machine of a few
instructions follows it, which makes dicts, lists, tuples, numbers, text and tensors, and nothing
else. Anything else is refused before it has an effect.
"""

import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.conversion.faults import read_fault, shown
from utterd.errors import ConfigurationError

# The released files have about 100 KiB of pickle and 30,000 instructions.
_MAX_PICKLE_BYTES = 16 * 1024 * 1024
_MAX_INSTRUCTIONS = 2_000_000
_MAX_BYTEORDER_BYTES = 16
_MAX_DIMENSIONS = 8
_MAX_KEY_LENGTH = 512
_LOCAL_HEADER_BYTES = 30
_STORAGE_DTYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}


def read_torch_file(path: Path) -> object:
    """The saved structure, with read-only arrays (views of the mapped file) for tensors.

    Raises:
        ConfigurationError: the file is missing, cut, not of `torch.save`, or its pickle asks for
            something else than tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Machine(_Archive(path, archive)).run()
    except OSError as error:
        raise read_fault(path, error) from error
    except pickle.UnpicklingError as error:
        raise ConfigurationError(f"{path} is refused: {error}") from error
    except (
        *(zipfile.BadZipFile, RuntimeError, EOFError, struct.error, MemoryError, OverflowError),
        *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    ) as error:
        raise ConfigurationError(
            f"{path} is cut, or torch.save did not write it ({shown(str(error))}): copy it again,"
            " or save it again with torch 1.6 or newer"
        ) from error


def _refuse(reason: str) -> NoReturn:
    raise pickle.UnpicklingError(reason)


class _Archive:
    """The members of one file: the pickle's bytes and storages as arrays."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        pickles = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"it has {len(pickles)} members data.pkl, not one")
        self._archive = archive
        self._checked: set[str] = set()
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self._prefix = pickles[0].filename.removesuffix("data.pkl")
        if self._prefix + "byteorder" in archive.namelist():
            order = self._small_member("byteorder", _MAX_BYTEORDER_BYTES)
            if order != b"little":
                raise ValueError(f"its byte order is {order!r}, not little")

    def structure(self) -> bytes:
        return self._small_member("data.pkl", _MAX_PICKLE_BYTES)

    def storage(self, key: str, dtype: str, count: int) -> NDArray[Any]:
        """Elements of one storage, shape (count,), a view of the mapped file."""
        info = self._stored(f"data/{key}")
        header = self._bytes[info.header_offset :][:_LOCAL_HEADER_BYTES].tobytes()
        name_length, extra_length = struct.unpack_from("<HH", header, 26)
        start = info.header_offset + _LOCAL_HEADER_BYTES + name_length + extra_length
        length = count * np.dtype(dtype).itemsize
        if not 0 <= length <= info.file_size or not 0 <= start <= self._bytes.size - info.file_size:
            raise ValueError(f"its member {info.filename} is shorter than {length} bytes")
        content = self._bytes[start : start + info.file_size]
        # torch can be told to write 0 in its place.
        if info.CRC and key not in self._checked and zlib.crc32(content.data) != info.CRC:
            raise ValueError(f"its member {info.filename} has not the bytes that were written")
        self._checked.add(key)
        return content[:length].view(dtype)

    def _small_member(self, name: str, limit: int) -> bytes:
        info = self._stored(name)
        if info.file_size > limit:
            raise ValueError(f"its member {name} has {info.file_size} bytes, more than any has")
        with self._archive.open(info) as member:
            return member.read(limit)

    def _stored(self, name: str) -> zipfile.ZipInfo:
        info = self._archive.getinfo(self._prefix + name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"its member {info.filename} is compressed")
        return info


class _StorageType(NamedTuple):
    """Stands for a storage class that a pickle names."""

    dtype: str


class _Storage(NamedTuple):
    """The elements that tensors are views of; only `_rebuild_tensor` looks inside."""

    elements: NDArray[Any]


class _Function(NamedTuple):
    """Stands for a function that a pickle names."""

    call: Callable[..., object]


def _is_sizes(value: object) -> bool:
    """Whether it is a tuple of numbers from 0."""
    return (
        type(value) is tuple
        and len(value) <= _MAX_DIMENSIONS
        and all(type(size) is int and size >= 0 for size in value)
    )


def _rebuild_tensor(
    storage: object, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> NDArray[Any]:
    """One tensor as a view of its storage; the other arguments concern gradients."""
    if not isinstance(storage, _Storage):
        _refuse("a tensor is made of something else than a storage")
    if not (_is_sizes((offset,)) and _is_sizes(shape) and _is_sizes(stride)):
        raise ValueError("a tensor has a negative or no size")
    if len(shape) != len(stride):
        raise ValueError("a tensor has a stride for another shape")
    elements = storage.elements
    if 0 in shape:
        return np.empty(shape, elements.dtype)
    # Python's numbers don't overflow: what reaches numpy lies within the storage.
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if last >= elements.size or prod(shape) > elements.size:
        raise ValueError("a tensor reaches past its storage")
    return np.lib.stride_tricks.as_strided(
        elements[offset:],
        shape,
        tuple(
            (step if size > 1 else 1) * elements.itemsize
            for size, step in zip(shape, stride, strict=True)
        ),
        writeable=False,
    )


def _rebuild_parameter(data: object, *_: object) -> NDArray[Any]:
    if not isinstance(data, np.ndarray):
        _refuse("a parameter is made of something else than a tensor")
    return data


def _ordered_dict() -> dict[str, object]:
    return {}


_FUNCTIONS: dict[tuple[str, str], _Function] = {
    ("collections", "OrderedDict"): _Function(_ordered_dict),
    ("torch._utils", "_rebuild_tensor"): _Function(_rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_rebuild_tensor),
    ("torch._utils", "_rebuild_parameter"): _Function(_rebuild_parameter),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}
)
_CONTAINERS: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLE_LENGTHS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """Follows the instructions of one pickle."""

    def __init__(self, archive: _Archive) -> None:
        self._archive = archive
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._actions: dict[str, Callable[[Any], None]] = {
            **dict.fromkeys(("PROTO", "FRAME"), lambda _argument: None),
            **dict.fromkeys(("BINPUT", "LONG_BINPUT"), self._put),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), self._get),
            "MARK": self._mark,
            "TUPLE": self._tuple,
            "APPEND": self._append,
            "APPENDS": self._appends,
            "SETITEM": self._set_item,
            "SETITEMS": self._set_items,
            "GLOBAL": self._global,
            "STACK_GLOBAL": self._stack_global,
            "MEMOIZE": self._memoize,
            "BINPERSID": self._persistent,
            "REDUCE": self._reduce,
            "BUILD": self._build,
        }

    def run(self) -> object:
        instructions = pickletools.genops(self._archive.structure())
        for number, (opcode, argument, _position) in enumerate(instructions):
            if number >= _MAX_INSTRUCTIONS:
                _refuse("its pickle has more instructions than any checkpoint's")
            name = opcode.name
            if name in _VALUES:
                self._stack.append(argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _CONTAINERS:
                self._stack.append(_CONTAINERS[name]())
            elif name in _TUPLE_LENGTHS:
                self._stack.append(tuple(self._pop(_TUPLE_LENGTHS[name])))
            elif name in self._actions:
                self._actions[name](argument)
            elif name != "STOP":
                _refuse(f"its pickle has the instruction {name}, which no plain state dict has")
        return self._pop(1)[0]

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError("its pickle takes more than it made")
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _mark(self, _argument: object) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Any]:
        taken, self._stack = self._stack, self._below.pop()
        return taken

    def _tuple(self, _argument: object) -> None:
        items = tuple(self._pop_mark())
        self._stack.append(items)

    def _put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def _memoize(self, _argument: object) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def _append(self, _argument: object) -> None:
        self._extend(self._pop(1))

    def _appends(self, _argument: object) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            _refuse("its pickle appends to something else than a list")
        self._stack[-1].extend(items)

    def _set_item(self, _argument: object) -> None:
        self._update(self._pop(2))

    def _set_items(self, _argument: object) -> None:
        self._update(self._pop_mark())

    def _update(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not dict:
            _refuse("its pickle sets items of something else than a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str or len(key) > _MAX_KEY_LENGTH or not key.isprintable():
                _refuse("a name in it is no text that can be printed")
            if key in self._stack[-1]:
                _refuse(f"the name {shown(key)} stands in it twice")
            self._stack[-1][key] = value

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push_named(module, name)

    def _stack_global(self, _argument: object) -> None:
        module, name = self._pop(2)
        if type(module) is not str or type(name) is not str:
            _refuse("its pickle names a global by something else than text")
        self._push_named(module, name)

    def _push_named(self, module: str, name: str) -> None:
        if module in {"torch", "torch.storage"} and name in _STORAGE_DTYPES:
            self._stack.append(_StorageType(_STORAGE_DTYPES[name]))
            return
        if module == "torch" and name.endswith("Storage"):
            _refuse(f"its tensors are a {shown(name)}: save them as float32")
        if (module, name) not in _FUNCTIONS:
            _refuse(
                f"its pickle asks for {shown(f'{module}.{name}')}, and only tensors are read. It"
                " is no plain state dict, or somebody tampered with it: use the released file"
            )
        self._stack.append(_FUNCTIONS[module, name])

    def _persistent(self, _argument: object) -> None:
        match self._pop(1)[0]:
            case ("storage", _StorageType(dtype=dtype), str(key), str(), int(count)) if (
                key.isascii() and key.isalnum()
            ):
                self._stack.append(_Storage(self._archive.storage(key, dtype, count)))
            case _:
                _refuse("its pickle names a storage in an unknown way")

    def _reduce(self, _argument: object) -> None:
        function, arguments = self._pop(2)
        if not isinstance(function, _Function) or type(arguments) is not tuple:
            _refuse("its pickle calls something else than a function")
        self._stack.append(function.call(*arguments))

    def _build(self, _argument: object) -> None:
        """Attributes of an ordered dict, as torch's state dicts have them, tell nothing."""
        self._pop(1)
        if type(self._stack[-1]) is not dict:
            _refuse("its pickle sets attributes of something else than a dict")
