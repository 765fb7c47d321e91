"""Measures one process that speaks with a CosyVoice bundle; prints its figures as JSON.

python tests/bench/cosyvoice_streams.py BUNDLE STREAMS EULER_STEPS ROUNDS

What a segment costs does not depend on the weights, so they are random and its number of speech
tokens is fixed.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from utterd.engines.cosyvoice.bundle import open_bundle
from utterd.engines.cosyvoice.engine import CosyVoiceEngine
from utterd.engines.protocol import CancelToken, EngineOptions, Utterance
from utterd.ops.cpu import usable_cores
from utterd.ops.memory import resident_bytes

SPEECH_TOKENS = 200
"""Four seconds."""

TEXT, VOICE = "今天的天气非常好，我们一起出去玩吧。", "中文女"


class FixedLengthEngine(CosyVoiceEngine):
    """Speaks every text in the same number of tokens."""

    def token_limits(self, text_tokens: int) -> tuple[int, int]:  # noqa: ARG002 - that is the point
        return SPEECH_TOKENS, SPEECH_TOKENS


def speak(engine: CosyVoiceEngine, seed: int) -> float:
    """Seconds of audio that one segment became."""
    utterance = Utterance(text=TEXT, voice=VOICE, language="zh", speed=1.0, seed=seed)
    return engine.speak(utterance, CancelToken()).pcm.size / 22_050


def main(directory: str, streams: str, euler_steps: str, rounds: str) -> None:
    options = EngineOptions(bundle=Path(directory), euler_steps=int(euler_steps))
    started_s = time.perf_counter()
    engine = FixedLengthEngine(
        open_bundle(Path(directory)), options, threads=max(1, int(usable_cores()))
    )
    loaded_s = time.perf_counter() - started_s
    engine.warm_up()
    warm_s = time.perf_counter() - started_s
    segments = int(streams) * int(rounds)
    started_s, processor_s = time.perf_counter(), time.process_time()
    # Streams that are busy all the time, so that decoding goes on beside the sound.
    with ThreadPoolExecutor(int(streams)) as threads:
        audio_s = sum(threads.map(lambda seed: speak(engine, seed), range(segments)))
    json.dump(
        {
            "load_s": loaded_s,
            "warm_s": warm_s,
            "audio_s": audio_s,
            "wall_s": time.perf_counter() - started_s,
            "processor_s": time.process_time() - processor_s,
            "resident_bytes": resident_bytes(os.getpid()),
        },
        sys.stdout,
    )
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
