"""What hibari is, found without loading its model."""

from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files

from utterd.engines.protocol import EngineInfo, Voice

VOICE = "heart"
SAMPLE_RATE_HZ = 24_000

# Under 400 phonemes, the longest input of the model's training, also for text full of numbers.
MAX_SEGMENT_CHARS = 240


def describe() -> EngineInfo:
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
    for asset in sorted(files("hibari").joinpath("assets").iterdir(), key=lambda file: file.name):
        digest.update(f"{asset.name} {sha256(asset.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
