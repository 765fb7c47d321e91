"""How the facts about a piece of audio travel with its object."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from utterd.store.metadata import decode_text, encode_text
from utterd.store.protocol import StoredObject
from utterd_schemas.audio import AudioFormat

_DIGITS = re.compile(r"[0-9]{1,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FLAGS = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class AudioFacts:
    """All that an event tells about an audio file, so that a cache hit needs no decoding.

    Args:
        duration_s: playing time of the decoded file.
        frames: samples per channel of the decoded file.
        sample_rate_hz: rate of the file.
        channels: 1 for mono.
        format: container and codec.
        engine: name of the engine that spoke.
        voice: the voice's full name, `engine/voice`.
        bundle: digest of the model bundle.
        language: what was spoken, such as `en`.
        size_bytes: length of the file.
        sha256: digest of the file's bytes, 64 lower-case hexadecimal digits. Two encodes
            of the same PCM may differ in it: Ogg files carry a random serial number.
        pcm_sha256: digest of the samples that went into the encoder; same form.
        job_id: the job that had the audio made; any text of up to 128 characters.
        quality: verdict of the quality gates, one short word.
        has_marks: whether a sidecar with timing marks stands beside the object.
    """

    duration_s: float
    frames: int
    sample_rate_hz: int
    channels: int
    format: AudioFormat
    engine: str
    voice: str
    bundle: str
    language: str
    size_bytes: int
    sha256: str
    pcm_sha256: str
    job_id: str
    quality: str
    has_marks: bool

    def to_metadata(self) -> dict[str, str]:
        """Return object metadata: ASCII, and reversible by `from_stored`.

        The longest legal `job_id` takes 700 bytes and everything of fixed form 350, so
        the limit of 2048 holds while the other texts stay below 900 bytes together.
        """
        return {
            "duration-s": repr(self.duration_s),
            "frames": str(self.frames),
            "sample-rate-hz": str(self.sample_rate_hz),
            "channels": str(self.channels),
            "format": self.format.value,
            "engine": encode_text(self.engine),
            "voice": encode_text(self.voice),
            "bundle": encode_text(self.bundle),
            "language": encode_text(self.language),
            "bytes": str(self.size_bytes),
            "sha256": self.sha256,
            "pcm-sha256": self.pcm_sha256,
            "job-id": encode_text(self.job_id),
            "quality": encode_text(self.quality),
            "marks": "yes" if self.has_marks else "no",
        }

    @classmethod
    def from_stored(cls, stored: StoredObject) -> "AudioFacts | None":
        """Read the facts back, or return None where the object can't be used.

        None is a miss: the object is empty, was cut short, was put there by something
        else, or tells facts that can't be read.
        """
        try:
            facts = cls._parse(stored.metadata)
        except (KeyError, ValueError):
            return None
        usable = 0 < stored.size_bytes == facts.size_bytes
        return facts if usable else None

    @classmethod
    def _parse(cls, metadata: Mapping[str, str]) -> "AudioFacts":
        return cls(
            duration_s=_parse_duration(metadata["duration-s"]),
            frames=_parse_count(metadata["frames"]),
            sample_rate_hz=_parse_count(metadata["sample-rate-hz"]),
            channels=_parse_count(metadata["channels"]),
            format=AudioFormat(metadata["format"]),
            engine=decode_text(metadata["engine"]),
            voice=decode_text(metadata["voice"]),
            bundle=decode_text(metadata["bundle"]),
            language=decode_text(metadata["language"]),
            size_bytes=_parse_count(metadata["bytes"]),
            sha256=_parse_sha256(metadata["sha256"]),
            pcm_sha256=_parse_sha256(metadata["pcm-sha256"]),
            job_id=decode_text(metadata["job-id"]),
            quality=decode_text(metadata["quality"]),
            has_marks=_FLAGS[metadata["marks"]],
        )


def _parse_count(text: str) -> int:
    # int() alone would also take a sign, blanks, underscores and foreign digits.
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text!r} is no count")
    return int(text)


def _parse_duration(text: str) -> float:
    duration_s = float(text)
    if not (math.isfinite(duration_s) and duration_s >= 0):
        raise ValueError(f"{text!r} is no duration")
    return duration_s


def _parse_sha256(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise ValueError("not a SHA-256 digest")
    return text
