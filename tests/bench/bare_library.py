"""The bare engine library in a loop; a program of its own, see `throughput.py`.

Each line on standard input is a JSON list of texts; each line on standard output is the audio
that they made, in seconds.
"""

import json
import sys

from hibari import Hibari

from utterd.engines.hibari.describe import SAMPLE_RATE_HZ, VOICE


def main() -> None:
    model = Hibari(voice=VOICE, threads=1)
    model("Ready.")
    _answer(0.0)
    for line in sys.stdin:
        _answer(sum(len(model(text)) for text in json.loads(line)) / SAMPLE_RATE_HZ)


def _answer(audio_s: float) -> None:
    sys.stdout.write(f"{audio_s}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
