"""The tensors of one checkpoint file, each taken once and by its exact name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.conversion.torch_file import read_torch_file
from utterd.errors import ConfigurationError

Array = NDArray[np.float32]

_WRAPPERS = ("generator.", "module.")
# The old and the new spelling of torch's weight norm: magnitude, direction.
_WEIGHT_NORMS = (
    (".weight_g", ".weight_v"),
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
)
_LISTED_NAMES = 8


class Weights:
    """Tensors by name. What was asked for and is missing, and what nobody asked for, is told."""

    def __init__(self, path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._path = path
        self._tensors = dict(tensors)
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def count(self, pattern: str) -> int:
        """How many consecutive numbers from 0 fill `{}` of a pattern so that a name begins so."""
        number = 0
        while any(name.startswith(pattern.format(number)) for name in self._tensors):
            number += 1
        return number

    def take(self, name: str, *shape: int | None) -> Array:
        """One tensor as float32.

        Args:
            name: its key in the state dict.
            shape: what its shape must be; None fits any size, no shape at all fits anything.

        Raises:
            ConfigurationError: it is missing, has another shape, or holds NaN or infinity.
        """
        if name not in self._tensors:
            raise ConfigurationError(
                f"{self._path}: the tensor {name} is missing. The file is not of CosyVoice-300M-SFT"
                " or was cut: copy it again"
            )
        tensor = self._tensors[name]
        fits = len(tensor.shape) == len(shape) and all(
            wanted in {None, size} for wanted, size in zip(shape, tensor.shape, strict=True)
        )
        if shape and not fits:
            expected = tuple("any" if size is None else size for size in shape)
            raise ConfigurationError(
                f"{self._path}: the tensor {name} has the shape {tensor.shape}, not {expected}."
                " The file does not fit to the others: copy all of them again"
            )
        array: Array = np.ascontiguousarray(tensor, dtype=np.float32).reshape(tensor.shape)
        if not np.isfinite(array).all():
            raise ConfigurationError(
                f"{self._path}: the tensor {name} holds NaN or infinity: copy the file again"
            )
        self._taken.add(name)
        return array

    def take_normed(self, name: str, *shape: int | None) -> Array:
        """A weight under weight norm, in either spelling, or a plain one: g * v / |v|.

        The norm is over all axes but the first.
        """
        for magnitude_suffix, direction_suffix in _WEIGHT_NORMS:
            if name + direction_suffix in self._tensors:
                direction = self.take(name + direction_suffix, *shape)
                axes = tuple(range(1, direction.ndim))
                magnitude = self.take(name + magnitude_suffix, len(direction), *(1 for _ in axes))
                norm = np.sqrt(np.square(direction, dtype=np.float64).sum(axes, keepdims=True))
                with np.errstate(all="ignore"):
                    normed = np.asarray(magnitude * direction / norm, np.float32)
                if not np.isfinite(normed).all():
                    raise ConfigurationError(
                        f"{self._path}: the tensors of {name} make NaN or infinity under weight"
                        " norm: copy the file again"
                    )
                return normed
        return self.take(f"{name}.weight", *shape)

    def refuse_leftovers(self) -> None:
        """Raise `ConfigurationError` if a tensor was not used: the model would sound otherwise."""
        left = sorted(self._tensors.keys() - self._taken)
        if left:
            more = f" and {len(left) - _LISTED_NAMES} more" if len(left) > _LISTED_NAMES else ""
            raise ConfigurationError(
                f"{self._path}: unknown tensors: {', '.join(left[:_LISTED_NAMES])}{more}. The file"
                " is of another model: only the layout of CosyVoice-300M-SFT is read"
            )


@contextmanager
def open_weights(path: Path, *, partly: bool = False) -> Iterator[Weights]:
    """The tensors of a state dict; at the end, all must have been taken unless `partly` is set.

    Raises:
        ConfigurationError: the file can't be read, or holds something else.
    """
    saved = read_torch_file(path)
    if not isinstance(saved, dict):
        raise ConfigurationError(f"{path} holds no state dict: use the released file")
    tensors = {}
    for name, tensor in saved.items():
        if not isinstance(name, str) or not isinstance(tensor, np.ndarray):
            # Released checkpoints of later epochs carry counters beside the tensors.
            if isinstance(tensor, int | float):
                continue
            raise ConfigurationError(f"{path}: the entry {name!r} is no tensor")
        bare = reduce(str.removeprefix, _WRAPPERS, name)
        if bare in tensors:
            raise ConfigurationError(
                f"{path} has the tensor {bare} twice, with and without a prefix: use the released"
                " file"
            )
        tensors[bare] = tensor
    weights = Weights(path, tensors)
    yield weights
    if not partly:
        weights.refuse_leftovers()
