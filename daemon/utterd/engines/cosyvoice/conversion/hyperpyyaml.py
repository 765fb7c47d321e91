"""Reads `cosyvoice.yaml` as plain data.

The file is HyperPyYAML: its tags ask for imports and calls. Here a tagged mapping is a mapping, a
tagged list a list, and `!ref <name>` the value under that name. Nothing is imported or called.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from utterd.engines.cosyvoice.conversion.faults import read_fault, shown
from utterd.errors import ConfigurationError

# The released file has 8 KiB and a few hundred values.
_MAX_BYTES = 256 * 1024
_MAX_NODES = 50_000


@dataclass(frozen=True, slots=True)
class _Reference:
    path: tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """A safe loader that knows no object but keeps what is under unknown tags."""


def _tagged(loader: _Loader, suffix: str, node: yaml.Node) -> object:
    match node:
        case yaml.MappingNode():
            return loader.construct_mapping(node, deep=True)
        case yaml.SequenceNode():
            return loader.construct_sequence(node, deep=True)
        case yaml.ScalarNode() if suffix == "ref" and _is_plain_reference(node.value):
            return _Reference(tuple(node.value.strip()[1:-1].replace("]", "").split("[")))
    return str(node.value)


def _is_plain_reference(text: str) -> bool:
    text = text.strip()
    return text.startswith("<") and text.endswith(">") and text.count("<") == 1


_Loader.add_multi_constructor("!", _tagged)


def read_hyperpyyaml(path: Path) -> dict[str, Any]:
    """The file's tree of mappings, lists and scalars, its references resolved.

    Raises:
        ConfigurationError: the file is missing, no YAML or too large, or a reference leads nowhere.
    """
    try:
        return _read(path)
    except OSError as error:
        raise read_fault(path, error) from error
    except (
        *(yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError),
        *(RecursionError, OverflowError, MemoryError),
    ) as error:
        # Several lines of the parser become one.
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{path} is not YAML ({shown(reason)}): copy it again") from error


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"{path} is larger than {_MAX_BYTES} bytes: copy it again")
    loader = _Loader(content.decode("utf-8"))
    try:
        node = loader.get_single_node()
        if _expanded(path, node, {}) > _MAX_NODES:
            raise _too_large(path)
        tree = None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path} holds no mapping: copy it again")
    return cast("dict[str, Any]", _Resolver(path, tree).resolve(tree, ()))


def _too_large(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path} stands for more than {_MAX_NODES} values: copy it again")


def _expanded(path: Path, node: yaml.Node | None, counts: dict[int, int]) -> int:
    """How many values a node stands for when each alias is written out."""
    if id(node) not in counts:
        # Whoever meets 0 is inside of the node.
        counts[id(node)] = 0
        parts: list[yaml.Node] = []
        match node:
            case yaml.MappingNode():
                _refuse_twins(path, node)
                parts = [part for pair in node.value for part in pair]
            case yaml.SequenceNode():
                parts = node.value
        counts[id(node)] = 1 + sum(_expanded(path, part, counts) for part in parts)
    elif not counts[id(node)]:
        raise ConfigurationError(f"{path}: an alias stands inside of its own anchor: copy it again")
    return counts[id(node)]


def _refuse_twins(path: Path, node: yaml.MappingNode) -> None:
    keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    if twins := [key for key, count in keys.items() if count > 1]:
        raise ConfigurationError(f"{path}: {shown(twins[0])} stands there twice: copy it again")


class _Resolver:
    """Puts what they name in the place of references."""

    def __init__(self, path: Path, root: dict[str, Any]) -> None:
        self._path = path
        self._root = root
        self._count = 0

    def resolve(self, value: object, trail: tuple[_Reference, ...]) -> object:
        self._count += 1
        if self._count > _MAX_NODES:
            raise _too_large(self._path)
        match value:
            case dict():
                return {key: self.resolve(item, trail) for key, item in value.items()}
            case list():
                return [self.resolve(item, trail) for item in value]
            case _Reference():
                if value in trail:
                    raise ConfigurationError(
                        f"{self._path}: <{shown(value.path[0])}> refers to itself: copy it again"
                    )
                return self.resolve(self._target(value), (*trail, value))
        return value

    def _target(self, reference: _Reference) -> object:
        target: Any = self._root
        for name in reference.path:
            if not isinstance(target, dict) or name not in target:
                raise ConfigurationError(
                    f"{self._path}: <{shown(name)}> is not defined: copy it again"
                )
            target = target[name]
        return target
