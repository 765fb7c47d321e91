"""Reads what `torch.save` wrote, without torch and without running anything that it says.

Such a file is a zip archive of uncompressed members: a pickle of the structure, and the raw
bytes of each storage. The pickle may name tensor rebuilding, storages and ordered dicts;
anything else is refused before it is called.
"""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.errors import ConfigurationError

_MAX_PICKLE_BYTES = 64 * 1024 * 1024
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
            return _load(_Archive(path, archive))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path} is missing: name the directory that holds it, as it was released"
        ) from None
    except pickle.UnpicklingError as error:
        raise ConfigurationError(f"{path} is refused: {error}") from error
    except (
        *(zipfile.BadZipFile, NotImplementedError, EOFError, struct.error),
        *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    ) as error:
        raise ConfigurationError(
            f"{path} is cut, or torch.save did not write it ({error}): copy it again, or save it"
            " again with torch 1.6 or newer"
        ) from error


class _Archive:
    """The members of one file: the pickle's bytes and storages as arrays."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        pickles = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"it has {len(pickles)} members data.pkl, not one")
        self._archive = archive
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self._prefix = pickles[0].filename.removesuffix("data.pkl")
        if self._prefix + "byteorder" in archive.namelist():
            order = archive.read(self._prefix + "byteorder").decode("ascii", "replace")
            if order != "little":
                raise ValueError(f"its byte order is {order[:16]!r}, not little")

    def structure(self) -> bytes:
        info = self._archive.getinfo(self._prefix + "data.pkl")
        if info.file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"its pickle has {info.file_size} bytes, more than any checkpoint's")
        return self._archive.read(info)

    def storage(self, key: str, dtype: str, count: int) -> NDArray[Any]:
        """Elements of one storage, shape (count,), a view of the mapped file."""
        info = self._archive.getinfo(f"{self._prefix}data/{key}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"its member {info.filename} is compressed")
        header = self._bytes[info.header_offset :][:_LOCAL_HEADER_BYTES].tobytes()
        name_length, extra_length = struct.unpack_from("<HH", header, 26)
        start = info.header_offset + _LOCAL_HEADER_BYTES + name_length + extra_length
        length = count * np.dtype(dtype).itemsize
        if count < 0 or length > info.file_size or start + length > self._bytes.size:
            raise ValueError(f"its member {info.filename} is shorter than {length} bytes")
        return self._bytes[start : start + length].view(dtype)


@dataclass(frozen=True, slots=True)
class _StorageType:
    """Stands for a storage class that a pickle names."""

    dtype: str


class _RestrictedUnpickler(pickle.Unpickler):
    def __init__(self, archive: _Archive) -> None:
        super().__init__(io.BytesIO(archive.structure()))
        self._archive = archive

    def find_class(self, module: str, name: str) -> object:
        if module in {"torch", "torch.storage"} and name in _STORAGE_DTYPES:
            return _StorageType(_STORAGE_DTYPES[name])
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"its pickle asks for {module}.{name}, and only tensors are read. It is no plain"
                " state dict, or somebody tampered with it: use the released file"
            ) from None

    def persistent_load(self, pid: Any) -> NDArray[Any]:  # noqa: ANN401 - a pickle names anything
        match pid:
            case ("storage", _StorageType(dtype=dtype), str(key), str(), int(count)):
                return self._archive.storage(key, dtype, count)
        raise pickle.UnpicklingError("its pickle names a storage in an unknown way")


def _rebuild_tensor(
    storage: NDArray[Any], offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> NDArray[Any]:
    """One tensor as a view of its storage; the other arguments concern gradients."""
    if len(shape) != len(stride) or min((offset, *shape, *stride), default=0) < 0:
        raise ValueError("a tensor has a negative size")
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if prod(shape) and last >= storage.size:
        raise ValueError("a tensor reaches past its storage")
    return np.lib.stride_tricks.as_strided(
        storage[offset:],
        shape,
        tuple(step * storage.itemsize for step in stride),
        writeable=False,
    )


def _rebuild_parameter(data: NDArray[Any], *_: object) -> NDArray[Any]:
    return data


_ALLOWED: dict[tuple[str, str], Callable[..., object]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
}


def _load(archive: _Archive) -> object:
    return _RestrictedUnpickler(archive).load()
