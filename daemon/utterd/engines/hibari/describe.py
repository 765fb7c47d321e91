"""What hibari is, found without loading its model."""

from base64 import urlsafe_b64decode
from hashlib import sha256
from importlib.metadata import distribution, version
from importlib.resources import files

from utterd.engines.protocol import NO_OPTIONS, EngineInfo, EngineOptions, Voice
from utterd.errors import ConfigurationError

VOICE = "heart"
SAMPLE_RATE_HZ = 24_000


def describe(options: EngineOptions = NO_OPTIONS) -> EngineInfo:
    """What hibari is; it has no options.

    Raises:
        ConfigurationError: a bundle is set, which is meant for another engine, or a file of the
            model is not as it was published.
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
    recorded = _recorded_digests()
    for asset in sorted(files("hibari").joinpath("assets").iterdir(), key=lambda file: file.name):
        data = asset.read_bytes()
        found = sha256(data)
        _check(asset.name, len(data), found.digest(), recorded.get(asset.name))
        digest.update(f"{asset.name} {found.hexdigest()}\n".encode())
    return digest.hexdigest()


def _recorded_digests() -> dict[str, bytes]:
    """The digests that the package was published with; empty where its installer kept none."""
    return {
        path.name: urlsafe_b64decode(path.hash.value + "=")
        for path in distribution("hibari-tts").files or ()
        if path.parts[:2] == ("hibari", "assets") and path.hash and path.hash.mode == "sha256"
    }


def _check(name: str, size_bytes: int, found: bytes, recorded: bytes | None) -> None:
    """Find a broken model file before the native code does.

    Raises:
        ConfigurationError: it is not the file that was published.
    """
    if recorded is not None and found != recorded:
        raise ConfigurationError(
            f"hibari's model file {name} is broken: its {size_bytes} bytes have the SHA-256"
            f" {found.hex()[:16]} instead of {recorded.hex()[:16]}. Install the package again:"
            " pip install --force-reinstall --no-deps hibari-tts"
        )
