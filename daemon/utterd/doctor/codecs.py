"""Whether every format can be written."""

import numpy as np

from utterd.audio.encode import encode
from utterd.audio.formats import resolve_output
from utterd.doctor.finding import Finding, Findings, fault, ok
from utterd.errors import JobError
from utterd.offload import Offload
from utterd_schemas.audio import AudioFormat

_RATE_HZ = 24_000
_SAMPLES = _RATE_HZ // 10


async def examine_codecs() -> Findings:
    """Encode a tenth of a second in each format."""
    async with Offload("doctor", threads=1) as thread:
        for audio_format in AudioFormat:
            yield await thread.run(_encoded, audio_format)


def _encoded(audio_format: AudioFormat) -> Finding:
    tone = 0.5 * np.sin(2 * np.pi * 440.0 * np.arange(_SAMPLES, dtype=np.float32) / _RATE_HZ)
    spec = resolve_output(
        audio_format, sample_rate_hz=None, bitrate_kbps=None, native_rate_hz=_RATE_HZ
    )
    try:
        encoded = encode(tone.astype(np.float32), _RATE_HZ, spec)
    except (JobError, RuntimeError, OSError) as error:
        return fault(
            audio_format,
            f"can't be encoded ({type(error).__name__}): install soundfile and soxr again with"
            " pip install --force-reinstall",
        )
    return ok(audio_format, f"{len(encoded.data)} bytes for {encoded.duration_s:.2f} s")
