"""The engines that utterd knows, by name.

Any installed package can add one: an entry point in the group `utterd.engines` names the engine
and points to a package that offers what `EngineModule` asks for.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import cast

from utterd.engines.protocol import EngineModule
from utterd.errors import ConfigurationError

ENTRY_POINT_GROUP = "utterd.engines"

_BUILT_IN = (
    EntryPoint("hibari", "utterd.engines.hibari", ENTRY_POINT_GROUP),
    EntryPoint("cosyvoice", "utterd.engines.cosyvoice.module", ENTRY_POINT_GROUP),
)

ENGINE_NAMES = tuple(engine.name for engine in _BUILT_IN)
"""The engines that come with utterd."""


def engine_names() -> tuple[str, ...]:
    """The engines that are installed, those of utterd first."""
    return tuple(_installed())


def engine_module(name: str) -> EngineModule:
    """The package of an engine.

    Raises:
        ConfigurationError: no such engine, or a package that it needs is not installed.
    """
    engines = _installed()
    if name not in engines:
        raise ConfigurationError(
            f"unknown engine {name!r}: set engine.name to one of {', '.join(engines)}"
        )
    try:
        return cast("EngineModule", engines[name].load())
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"engine {name!r} needs the Python package {error.name!r}: install it in utterd's"
            " environment with pip"
        ) from error


def _installed() -> dict[str, EntryPoint]:
    found = {engine.name: engine for engine in entry_points(group=ENTRY_POINT_GROUP)}
    built_in = {engine.name: engine for engine in _BUILT_IN}
    # No other package takes the place of a built-in engine.
    return built_in | found | built_in
