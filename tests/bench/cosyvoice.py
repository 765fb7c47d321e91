"""Measure CosyVoice at full size on random weights, and write its part of `docs/performance.md`.

PYTHONPATH=tests python tests/bench/cosyvoice.py [BUNDLE]

Without a bundle, one is made, which takes some minutes and 4 GB of disk.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise, starmap
from pathlib import Path
from tempfile import TemporaryDirectory

from cosyvoice_probes import Probes, mean_of, probe
from cosyvoice_stages import random_bundle
from cosyvoice_streams import SPEECH_TOKENS, WORKER
from limits import floor
from report import Row, Section, replace_section
from run import DOCUMENT

from utterd.engines.cosyvoice.bundle import open_bundle
from utterd.engines.cosyvoice.manifest import Manifest
from utterd.engines.worker_environment import worker_environment
from utterd.ops.cpu import usable_cores

TITLE = "CosyVoice"
METHOD = """\
`make bench-cosyvoice` makes a checkpoint of the release's shapes with random weights, converts it
to int8 and speaks segments of 200 speech tokens, 4 s, in processes of their own: a figure's cost
does not depend on the weights. One stream speaks a segment after the other; of eight streams, each
begins its next segment when it has one finished. A round of all streams before the measured ones
and one after them are not counted, for in these some streams have nothing to do. Figures are wall
seconds for each second of audio. The floor is what this machine could do at best, from probes
before and after each: all products with weights of the estimator and of HiFT at the rate of a
product of int8 matrices, those of attention at that of float32 ones, on all cores, and the language
model's weights read from memory once a step. The load is that of a worker's model; its warm-up
speaks a little. On a shared host, figures and floors change together, here by a quarter from hour
to hour: the ratio of the two says more.

Around the eight streams: {cores:g} cores, each with {int8:.0f} billion int8 and {float32:.0f}
billion float32 products a second; together they read {bytes:.1f} GB a second; load average
{load:.1f}. A second of eight streams' audio took {processor:.2f} seconds of processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one process found."""

    load_s: float
    warm_s: float
    audio_s: float
    wall_s: float
    processor_s: float
    resident_bytes: int

    @property
    def real_time_factor(self) -> float:
        return self.wall_s / self.audio_s


def measure(bundle: Path, *, streams: int, euler_steps: int, rounds: int) -> Measured:
    script = Path(__file__).with_name("cosyvoice_streams.py")
    arguments = map(str, (script, bundle, streams, euler_steps, rounds))
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=worker_environment(WORKER),
    )
    return Measured(**json.loads(done.stdout))


def section(bundle: Path) -> Section:
    """Make every measurement."""
    load_average = os.getloadavg()[0]
    manifest = open_bundle(bundle).manifest
    probes = [probe()]

    def measured(streams: int, euler_steps: int, rounds: int) -> Measured:
        found = measure(bundle, streams=streams, euler_steps=euler_steps, rounds=rounds)
        probes.append(probe())
        return found

    one, eight, fast = measured(1, 10, 2), measured(8, 10, 4), measured(8, 5, 4)
    # A machine that is shared is not the same all the time.
    around_one, around_eight, around_fast = starmap(mean_of, pairwise(probes))
    return Section(
        title=TITLE,
        method=METHOD.format(
            cores=usable_cores(),
            int8=around_eight.int8_macs_per_s / 1e9,
            float32=around_eight.float32_macs_per_s / 1e9,
            bytes=around_eight.shared_read_bytes_per_s / 1e9,
            load=load_average,
            processor=eight.processor_s / eight.audio_s,
        ),
        rows=(
            _speed("one stream, 10 Euler steps", one, 1.25, around_one, manifest, rows=1),
            _speed("eight streams, 10 Euler steps", eight, 0.62, around_eight, manifest, rows=8),
            _speed(
                "eight streams, 5 Euler steps",
                fast,
                0.40,
                around_fast,
                manifest,
                rows=8,
                euler_steps=5,
            ),
            Row(
                name=f"load with the files in the page cache; {one.warm_s:.2f} s with warm-up",
                figure=f"{one.load_s:.2f} s",
                target="≤ 1.5 s",
                is_met=one.load_s <= 1.5,
            ),
            Row(
                name="resident memory after eight streams",
                figure=f"{eight.resident_bytes / 1e9:.2f} GB",
                target="≤ 1.3 GB",
                is_met=eight.resident_bytes <= 1.3e9,
            ),
        ),
    )


def _speed(
    name: str,
    measured: Measured,
    target: float,
    probes: Probes,
    manifest: Manifest,
    *,
    rows: int,
    euler_steps: int = 10,
) -> Row:
    lowest = floor(
        probes,
        manifest,
        rows=rows,
        euler_steps=euler_steps,
        segment_s=SPEECH_TOKENS / manifest.flow.token_rate_hz,
    )
    factor = measured.real_time_factor
    return Row(
        name=f"{name}: real-time factor",
        # Processor time tells the cost also where others keep the machine busy.
        figure=f"{factor:.2f}, {measured.processor_s / measured.audio_s:.2f} of processor time",
        baseline=f"{lowest:.2f} floor",
        ratio=factor / lowest,
        target=f"≤ {target:g}",
        is_met=factor <= target,
    )


def main(bundle: str | None = None) -> None:
    with TemporaryDirectory() as directory:
        found = section(Path(bundle) if bundle else random_bundle(Path(directory)).directory)
    for row in found.rows:
        sys.stdout.write(f"  {'  '.join(filter(None, row.cells()))}\n")
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(replace_section(text, found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
