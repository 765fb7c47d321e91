"""Measures one process that speaks with a CosyVoice bundle; prints its figures as JSON.

python tests/bench/cosyvoice_streams.py BUNDLE STREAMS EULER_STEPS ROUNDS

What a segment costs does not depend on the weights, so they are random and its number of speech
tokens is fixed. Each stream speaks a round more before the clock starts and after it stops, so that
all of them are busy, each with another stage, as long as it runs.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from utterd.engines.cosyvoice.bundle import open_bundle
from utterd.engines.cosyvoice.engine import CosyVoiceEngine
from utterd.engines.protocol import CancelToken, EngineOptions, Utterance
from utterd.ops.cpu import plan_workers, usable_cores
from utterd.ops.memory import resident_bytes

WORKER = plan_workers(usable_cores(), concurrency=8)
"""As a daemon would give its worker."""

SPEECH_TOKENS = 200
"""Four seconds."""

TEXT, VOICE = "今天的天气非常好，我们一起出去玩吧。", "中文女"


class FixedLengthEngine(CosyVoiceEngine):
    """Speaks every text in the same number of tokens."""

    def token_limits(self, text_tokens: int) -> tuple[int, int]:  # noqa: ARG002 - that is the point
        return SPEECH_TOKENS, SPEECH_TOKENS


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a segment.

    Attributes:
        at_s: on the wall's clock.
        processor_s: that the process had spent by then.
        audio_s: that the segment became.
    """

    at_s: float
    processor_s: float
    audio_s: float


def speak(engine: CosyVoiceEngine, seed: int) -> Finish:
    utterance = Utterance(text=TEXT, voice=VOICE, language="zh", speed=1.0, seed=seed)
    audio_s = engine.speak(utterance, CancelToken()).pcm.size / 22_050
    return Finish(time.perf_counter(), time.process_time(), audio_s)


def main(directory: str, streams: str, euler_steps: str, rounds: str) -> None:
    options = EngineOptions(bundle=Path(directory), euler_steps=int(euler_steps))
    started_s = time.perf_counter()
    engine = FixedLengthEngine(open_bundle(Path(directory)), options, threads=WORKER.threads)
    loaded_s = time.perf_counter() - started_s
    engine.warm_up()
    warm_s = time.perf_counter() - started_s
    with ThreadPoolExecutor(int(streams)) as threads:
        segments = range(int(streams) * (int(rounds) + 2))
        finishes = list(threads.map(lambda seed: speak(engine, seed), segments))
    finishes.sort(key=lambda finish: finish.at_s)
    start, *measured = finishes[int(streams) - 1 : -int(streams)]
    json.dump(
        {
            "load_s": loaded_s,
            "warm_s": warm_s,
            "audio_s": sum(finish.audio_s for finish in measured),
            "wall_s": measured[-1].at_s - start.at_s,
            "processor_s": measured[-1].processor_s - start.processor_s,
            "resident_bytes": resident_bytes(os.getpid()),
        },
        sys.stdout,
    )
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
