"""What a CosyVoice process holds while it speaks thousands of segments of all lengths.

    PYTHONPATH=tests python tests/bench/cosyvoice_memory.py [BUNDLE [SEGMENTS]]

Eight streams, one Euler step, since memory does not depend on their number. The exit status is 1
when the process holds more in the last quarter than it did at most in the first.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cosyvoice_stages import random_bundle
from cosyvoice_streams import TEXT, VOICE, WORKER

from utterd.engines.cosyvoice.bundle import Bundle, open_bundle
from utterd.engines.cosyvoice.engine import CosyVoiceEngine
from utterd.engines.protocol import CancelToken, EngineOptions, Utterance
from utterd.engines.worker_environment import worker_environment
from utterd.ops.memory import resident_bytes

_SEGMENTS = 2000
_STREAMS = 8
_REPORTS = 20
_SHORTEST_TOKENS, _LONGEST_TOKENS = 8, 500
"""A sixth of a second, and ten seconds."""
_SLACK = 1.1
"""Which segments are long at the same time is chance."""


class RandomLengthEngine(CosyVoiceEngine):
    """Speaks every segment in another number of tokens, short ones more often."""

    _random = np.random.default_rng(0)

    def token_limits(self, text_tokens: int) -> tuple[int, int]:  # noqa: ARG002 - that is the point
        low, high = np.log([_SHORTEST_TOKENS, _LONGEST_TOKENS])
        count = int(np.exp(self._random.uniform(low, high)))
        return count, count


def speak(engine: CosyVoiceEngine, seed: int) -> int:
    """Speak one segment; what the process holds then, in bytes."""
    utterance = Utterance(text=TEXT, voice=VOICE, language="zh", speed=1.0, seed=seed)
    engine.speak(utterance, CancelToken())
    return resident_bytes(os.getpid())


def held(bundle: Bundle, segments: int) -> list[int]:
    """Bytes after each segment."""
    options = EngineOptions(bundle=bundle.directory, euler_steps=1)
    engine = RandomLengthEngine(bundle, options, threads=WORKER.threads)
    engine.warm_up()
    sizes: list[int] = []
    every = max(1, segments // _REPORTS)
    with ThreadPoolExecutor(_STREAMS) as threads:
        for size in threads.map(lambda seed: speak(engine, seed), range(segments)):
            sizes.append(size)
            if len(sizes) % every == 0:
                peak = max(sizes[-every:])
                sys.stdout.write(f"{len(sizes)} segments: at most {peak / 1e6:.0f} MB\n")
                sys.stdout.flush()
    engine.close()
    return sizes


def be_a_worker() -> None:
    """Begin anew with a worker's environment, unless it is there: it is read at the start."""
    environment = worker_environment(WORKER)
    if environment != os.environ:
        os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - ourselves


def main(bundle: str | None = None, segments: str = str(_SEGMENTS)) -> None:
    with TemporaryDirectory() as directory:
        opened = open_bundle(Path(bundle)) if bundle else random_bundle(Path(directory))
        sizes = held(opened, int(segments))
    quarter = len(sizes) // 4
    first, last = max(sizes[:quarter]), max(sizes[-quarter:])
    sys.stdout.write(
        f"at most {first / 1e6:.0f} MB in the first quarter, {last / 1e6:.0f} MB in the last\n"
    )
    if last > first * _SLACK:
        raise SystemExit(1)


if __name__ == "__main__":
    be_a_worker()
    main(*sys.argv[1:])
