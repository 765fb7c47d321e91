"""What each stage of CosyVoice costs at full size, in processor seconds of one thread.

    PYTHONPATH=tests python tests/bench/cosyvoice_stages.py [BUNDLE]

Without a bundle, one is made from random weights of the released sizes: cost doesn't depend on
their values. That takes some minutes and 5 GB of disk.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import typer
from cosyvoice_probes import Probes, probe, processor_s

from support.cosyvoice import Dims, write_checkpoint
from utterd.engines.cosyvoice.bundle import Bundle, open_bundle
from utterd.engines.cosyvoice.conversion.convert import convert
from utterd.engines.cosyvoice.manifest import Precision, Quality
from utterd.engines.cosyvoice.model.cache import KeyValueCache
from utterd.engines.cosyvoice.model.language_model import SpeechLM
from utterd.engines.cosyvoice.verification import Stages, load_stages

TEXT_TOKENS = 40
SPEECH_STEPS = 200
EULER_STEPS = 10
MEASURED_EULER_STEPS = 2
ROWS = (1, 2, 4, 8)
FLOW_DURATIONS_S = (2, 4, 10)
VOCODER_DURATION_S = 4
# Random weights tell nothing of how a trained model bears rounding.
ANY_QUALITY = Quality(
    logit_error=np.inf, top1_agreement=0, mel_error=np.inf, waveform_distance=np.inf
)

Costs = Iterator[tuple[str, float, float]]
"""What was measured, its milliseconds, and processor seconds for a second of audio."""


def random_bundle(directory: Path) -> Bundle:
    """An int8 bundle of random weights in the released sizes."""
    # In a process that ends, for the peak of memory is to be the conversion's.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
        checkpoint = writer.submit(write_checkpoint, directory / "checkpoint", Dims()).result()
    conversion = convert(
        checkpoint,
        directory / "bundle",
        precision=Precision.INT8,
        report=lambda step: typer.echo(f"converting: {step}", err=True),
        limits=ANY_QUALITY,
    )
    typer.echo(
        f"conversion: {conversion.duration_s:.0f} s,"
        f" at most {conversion.peak_memory_bytes / 2**30:.2f} GiB of memory;"
        f" {conversion.bundle.manifest.quality}"
    )
    return conversion.bundle


def language_model(stages: Stages) -> Costs:
    random = np.random.default_rng(0)
    manifest, model = stages.bundle.manifest, stages.language_model
    text = random.integers(0, manifest.text_vocabulary, TEXT_TOKENS)
    speaker = next(iter(stages.bundle.voices.values())).speaker
    encode_s = processor_s(partial(stages.text_encoder.encode, text))
    yield f"text encoder, {TEXT_TOKENS} tokens", encode_s * 1000, 0.0
    prompt = model.prompt(stages.text_encoder.encode(text), speaker)
    for rows in ROWS:
        cache = model.new_cache(rows, capacity=len(prompt) + SPEECH_STEPS + 1)
        join_s = sum(processor_s(partial(model.join, cache, row, prompt), 1) for row in range(rows))
        yield f"prompts of {len(prompt)} rows, {rows}", join_s * 1000, 0.0
        step_s = processor_s(partial(step, model, cache, random), SPEECH_STEPS)
        yield f"step, {rows} rows", step_s * 1000, step_s * manifest.flow.token_rate_hz / rows


def step(model: SpeechLM, cache: KeyValueCache, random: np.random.Generator) -> None:
    """One step with tokens whose cost is that of any."""
    tokens = random.integers(0, 1000, len(cache.rows))
    model.step(cache, cache.rows, tokens)


def flow(stages: Stages) -> Costs:
    random = np.random.default_rng(0)
    manifest = stages.bundle.manifest
    speaker = next(iter(stages.bundle.voices.values())).speaker
    for duration_s in FLOW_DURATIONS_S:
        count = duration_s * manifest.flow.token_rate_hz
        tokens = random.integers(0, manifest.language_model.speech_tokens, count)
        shape = (stages.flow.mel_length(count), manifest.flow.mel_bins)
        noise = random.standard_normal(shape, dtype=np.float32)
        few_steps = partial(stages.flow.mel, tokens, speaker, noise, steps=MEASURED_EULER_STEPS)
        step_s = processor_s(few_steps, 3) / MEASURED_EULER_STEPS
        share = step_s * EULER_STEPS / duration_s
        yield f"Euler step, {duration_s} s of audio", step_s * 1000, share


def vocoder(stages: Stages) -> Costs:
    random = np.random.default_rng(0)
    manifest = stages.bundle.manifest
    frames = stages.flow.mel_length(VOCODER_DURATION_S * manifest.flow.token_rate_hz)
    mel = random.standard_normal((frames, manifest.flow.mel_bins), dtype=np.float32)
    spent_s = processor_s(partial(stages.vocoder.synthesize, mel, random), 3)
    yield f"vocoder, {VOCODER_DURATION_S} s", spent_s * 1000, spent_s / VOCODER_DURATION_S


def print_probes(probes: Probes) -> None:
    typer.echo(
        f"one thread here: int8 {probes.int8_macs_per_s / 1e9:.0f} GMAC/s,"
        f" float32 {probes.float32_macs_per_s / 1e9:.0f} GMAC/s,"
        f" memory {probes.read_bytes_per_s / 1e9:.1f} GB/s"
    )


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bundle = open_bundle(Path(arguments[0])) if arguments else random_bundle(Path(directory))
        print_probes(probe())
        started_s = time.perf_counter()
        stages = load_stages(bundle)
        typer.echo(f"load: {time.perf_counter() - started_s:.2f} s")
        typer.echo("stage | ms | processor seconds a second of audio")
        for part in (language_model, flow, vocoder):
            for name, cost_ms, share in part(stages):
                typer.echo(f"{name} | {cost_ms:.1f} | {f'{share:.3f}' if share else ''}")
        print_probes(probe())


if __name__ == "__main__":
    main(sys.argv[1:])
