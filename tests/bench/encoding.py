"""What the formats cost beside the synthesis that they follow."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
from report import Section
from texts import announcements

from utterd.audio.encode import encode
from utterd.audio.formats import resolve_output
from utterd.engines.hibari import describe, load
from utterd.engines.protocol import PCM, CancelToken, Utterance
from utterd_schemas.audio import AudioFormat

_REPEATS = 7
_TEXTS = 3

METHOD = f"""\
One thread, {{audio_s:.0f}} s of hibari's speech in one piece, median of {_REPEATS} encodes with the
defaults of each format: resampling where the codec needs another rate, encoding, the SHA-256 of the
file. hibari spends {{synthesis_ms:.1f}} ms on a second of speech, in one thread too. Encodes run in
threads of their own, as many as there are workers."""

HEADINGS = ("format", "rate", "kbit/s", "ms a second of audio", "share of synthesis")


def measure_encoding() -> Section:
    """Time each format on real speech."""
    pcm, rate_hz, synthesis_s = _speech()
    audio_s = pcm.size / rate_hz
    lines = []
    for audio_format in AudioFormat:
        output = resolve_output(
            audio_format, sample_rate_hz=None, bitrate_kbps=None, native_rate_hz=rate_hz
        )
        encoded = encode(pcm, rate_hz, output)
        cost_s = _median_s(partial(encode, pcm, rate_hz, output))
        lines.append(
            (
                f"`{audio_format}`",
                f"{output.sample_rate_hz} Hz",
                f"{len(encoded.data) * 8 / encoded.duration_s / 1000:.0f}",
                f"{cost_s / audio_s * 1000:.2f}",
                f"{cost_s / synthesis_s:.0%}",
            )
        )
    return Section(
        title="Encoding",
        method=METHOD.format(audio_s=audio_s, synthesis_ms=synthesis_s / audio_s * 1000),
        headings=HEADINGS,
        table=tuple(lines),
    )


def _speech() -> tuple[PCM, int, float]:
    """Samples, their rate in Hz, and how many seconds their synthesis took."""
    info = describe()
    engine = load(threads=1)
    utterances = [
        Utterance(text=text, voice=info.voices[0].name, language="en", speed=1.0, seed=1)
        for text in announcements(_TEXTS)
    ]

    def speak() -> PCM:
        return np.concatenate([engine.speak(one, CancelToken()).pcm for one in utterances])

    return speak(), info.sample_rate_hz, _median_s(speak)


def _median_s(work: Callable[[], object]) -> float:
    durations_s = []
    for _ in range(_REPEATS):
        started_s = time.perf_counter()
        work()
        durations_s.append(time.perf_counter() - started_s)
    return median(durations_s)
