"""Reads `cosyvoice.yaml` as plain data.

The file is HyperPyYAML: its tags ask for imports and calls. Here a tagged mapping is a mapping, a
tagged list a list, and `!ref <name>` the value under that name. Nothing is imported or called.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from utterd.errors import ConfigurationError


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
        ConfigurationError: the file is missing or no YAML, or a reference leads nowhere.
    """
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path} is missing: name the directory that holds it, as it was released"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not YAML ({error}): copy it again") from error
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path} holds no mapping: copy it again")
    return cast("dict[str, Any]", _resolve(path, tree, tree, ()))


def _resolve(
    path: Path, root: dict[str, Any], value: object, trail: tuple[_Reference, ...]
) -> object:
    match value:
        case dict():
            return {key: _resolve(path, root, item, trail) for key, item in value.items()}
        case list():
            return [_resolve(path, root, item, trail) for item in value]
        case _Reference():
            if value in trail:
                raise ConfigurationError(f"{path}: <{value.path[0]}> refers to itself")
            target: Any = root
            for name in value.path:
                if not isinstance(target, dict) or name not in target:
                    raise ConfigurationError(f"{path}: <{name}> is not defined: copy it again")
                target = target[name]
            return _resolve(path, root, target, (*trail, value))
    return value
