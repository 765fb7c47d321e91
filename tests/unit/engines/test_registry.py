"""Which engines are known."""

from pathlib import Path

import pytest

from utterd.engines import hibari
from utterd.engines.cosyvoice import module as cosyvoice
from utterd.engines.registry import ENGINE_NAMES, engine_module, engine_names
from utterd.errors import ConfigurationError


def install(site: Path, name: str, target: str) -> None:
    """What pip leaves behind of a package that adds an engine."""
    info = site / f"{name}_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[utterd.engines]\n{name} = {target}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_two_engines_come_with_utterd():
    """The embedded default needs no other package, and the production voice needs a bundle."""
    assert ENGINE_NAMES == ("hibari", "cosyvoice")
    assert engine_module("hibari") is hibari
    assert engine_module("cosyvoice") is cosyvoice


def test_an_installed_package_adds_an_engine(site: Path):
    """An entry point names the engine and the package that offers it."""
    (site / "parrot_engine.py").write_text("PARROT = True\n")
    install(site, "parrot", "parrot_engine")
    assert engine_names() == (*ENGINE_NAMES, "parrot")
    assert vars(engine_module("parrot"))["PARROT"] is True


def test_no_package_takes_the_place_of_a_built_in_engine(site: Path):
    """A voice that jobs rely on is not replaced by installing something."""
    install(site, "hibari", "parrot_engine")
    assert engine_names() == ENGINE_NAMES
    assert engine_module("hibari") is hibari


def test_an_unknown_engine_is_a_matter_of_settings(site: Path):
    """The message lists what is installed."""
    install(site, "parrot", "parrot_engine")
    with pytest.raises(ConfigurationError, match="one of hibari, cosyvoice, parrot"):
        engine_module("kakapo")


def test_a_missing_package_is_named(site: Path):
    """An engine that is half installed says what to install."""
    (site / "half_engine.py").write_text("import no_such_runtime\n")
    install(site, "half", "half_engine")
    with pytest.raises(ConfigurationError, match="needs the Python package 'no_such_runtime'"):
        engine_module("half")
