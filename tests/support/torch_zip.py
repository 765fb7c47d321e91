"""Writes files as `torch.save` does, without torch."""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Storage:
    """Stands in a pickle for the raw bytes of one member."""

    def __init__(self, key: str, count: int) -> None:
        self.key = key
        self.count = count


class _Tensor:
    def __init__(self, storage: _Storage, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
        hooks: OrderedDict[str, Any] = OrderedDict()
        self.arguments = (storage, 0, shape, stride, False, hooks)


class _Named:
    """A global that the pickle names and that need not exist here."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


_REBUILD = _Named("torch._utils", "_rebuild_tensor_v2")
_FLOAT = _Named("torch", "FloatStorage")


class _Pickler(pickle._Pickler):  # noqa: SLF001 - the C version can't write a name without its object
    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012, SLF001 - as its parent has it

    def persistent_id(self, value: object) -> object:
        if isinstance(value, _Storage):
            return ("storage", _FLOAT, value.key, "cpu", value.count)
        return None

    def save_named(self, value: _Named) -> None:
        self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())

    def save_tensor(self, value: _Tensor) -> None:
        self.save(_REBUILD)
        self.save(value.arguments)
        self.write(pickle.REDUCE)

    dispatch[_Named] = save_named
    dispatch[_Tensor] = save_tensor


def save_torch(path: Path, value: object) -> None:
    """Write dicts, lists, numbers and float32 arrays; each array gets a storage of its own."""
    storages: list[NDArray[np.float32]] = []

    def convert(item: object) -> object:
        match item:
            case np.ndarray():
                array = np.ascontiguousarray(item, "<f4")
                storages.append(array)
                stride = tuple(step // array.itemsize for step in array.strides)
                return _Tensor(_Storage(str(len(storages) - 1), array.size), array.shape, stride)
            case Mapping():
                return OrderedDict((key, convert(part)) for key, part in item.items())
        return item

    buffer = io.BytesIO()
    _Pickler(buffer, protocol=2).dump(convert(value))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{path.stem}/data.pkl", buffer.getvalue())
        archive.writestr(f"{path.stem}/byteorder", "little")
        for number, array in enumerate(storages):
            archive.writestr(f"{path.stem}/data/{number}", array.data.cast("B"))
