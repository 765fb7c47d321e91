"""The key: one name for everything that decides how the audio sounds."""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256

from pydantic import JsonValue

from utterd_schemas.audio import AudioFormat


def canonical_json(value: Mapping[str, JsonValue]) -> bytes:
    """JSON with sorted keys, no white space and no escapes beyond the required, as UTF-8."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundIdentity:
    """Every input that changes the sound, and nothing else.

    Attributes:
        script: the text or the SSML, as it came.
        is_ssml: whether the script is SSML.
        voice: `engine/voice`, aliases resolved.
        language: the job's hint.
        speed: speaking rate.
        normalize: whether spoken forms are written out.
        seed: the job's seed, or None when it is derived from the key.
        lexicon: digest of the lexicon in use, or None.
        front_end: version of the text front end.
        bundle: digest of the model bundle.
        format: container and codec.
        sample_rate_hz: of the stored audio.
        bitrate_kbps: for lossy codecs that were asked for one.
    """

    script: str
    is_ssml: bool
    voice: str
    language: str
    speed: float
    normalize: bool
    seed: int | None
    lexicon: str | None
    front_end: str
    bundle: str
    format: AudioFormat
    sample_rate_hz: int
    bitrate_kbps: int | None

    def key(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hex digits."""
        fields = asdict(self)
        fields["script"] = unicodedata.normalize("NFC", self.script)
        fields["speed"] = float(self.speed)
        return sha256(canonical_json(fields)).hexdigest()


def seed_of(key: str) -> int:
    """The seed of a request that names none: its own key's first 32 bits."""
    return int(key[:8], 16)
