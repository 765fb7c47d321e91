"""What hibari is, found without loading its model."""

from base64 import urlsafe_b64decode
from hashlib import sha256
from importlib.metadata import distribution, version
from importlib.resources import files

from utterd.engines.protocol import EngineInfo, Voice
from utterd.errors import ConfigurationError

VOICE = "heart"
SAMPLE_RATE_HZ = 24_000

# Under 400 phonemes, the longest input of the model's training, also for text full of numbers.
MAX_SEGMENT_CHARS = 240


def describe() -> EngineInfo:
    """Who speaks, and in what.

    Raises:
        ConfigurationError: a file of the model is not as it was published.
    """
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
        max_segment_chars=MAX_SEGMENT_CHARS,
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
