"""What hibari is, found without loading its model."""

from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files

from utterd.engines.protocol import NO_OPTIONS, EngineInfo, EngineOptions, Voice
from utterd.errors import ConfigurationError

VOICE = "heart"
SAMPLE_RATE_HZ = 24_000


def describe(options: EngineOptions = NO_OPTIONS) -> EngineInfo:
    """What hibari is; it has no options.

    Raises:
        ConfigurationError: a bundle is set, which is meant for another engine.
    """
    if options.bundle is not None:
        raise ConfigurationError(
            "engine.bundle is set, but hibari carries its own model: set engine.name to the engine"
            " that the bundle is for, or remove engine.bundle"
        )
    release = version("hibari-tts")
    return EngineInfo(
        name="hibari",
        version=release,
        bundle=_bundle_digest(release),
        sample_rate_hz=SAMPLE_RATE_HZ,
        voices=(
            Voice(
                name=VOICE,
                languages=("en",),
                description="American English, female, calm",
            ),
        ),
    )


def _bundle_digest(release: str) -> str:
    """One digest of the release (its code reads the text) and of every model file in it."""
    digest = sha256(f"hibari-tts {release}\n".encode())
    for asset in sorted(files("hibari").joinpath("assets").iterdir(), key=lambda file: file.name):
        digest.update(f"{asset.name} {sha256(asset.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
