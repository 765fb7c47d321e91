"""What a float32 bundle says of a few sentences: ranges for int8, and what int8 is judged by.

Tokens are drawn from the bundle's own language model and mels made by its own flow, so that both
are such as it will meet.
"""

from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.manifest import Quality
from utterd.engines.cosyvoice.model.flow import Flow
from utterd.engines.cosyvoice.model.language_model import SpeechLM
from utterd.engines.cosyvoice.model.stft import Stft
from utterd.engines.cosyvoice.model.text_encoder import TextEncoder
from utterd.engines.cosyvoice.model.vocoder import Vocoder
from utterd.errors import ConfigurationError

# The beginnings, in tokens of multilingual.tiktoken, of "今天天气很好，我们一起去公园散步吧。",
# "The train to the coast leaves at seven in the morning.", "駅の前に新しい本屋ができました。",
# "我哋聽日去飲茶好唔好呀？", "내일은 비가 올지도 모르니까 우산을 가져가세요."
_SENTENCES = (
    (12074, 6135, 42204, 23801, 171, 120, 234, 15003, 29567, 6734, 13545, 3919, 255, 7017, 96),
    (2278, 3847, 281, 264, 8684, 5510, 412, 3407, 294, 264, 2446, 13),
    (165, 100, 227, 2972, 8945, 4108, 12560, 17121, 8802, 9636, 233, 5142, 43200, 12072, 1543),
    (1654, 3858, 233, 21524, 6890, 6734, 11808, 110, 43499, 2131, 161, 9520, 2131, 15348),
    (25141, 6403, 2124, 10079, 1453, 28603, 39871, 20502, 5690, 14995, 16551, 1638, 36434),
)
_SPEECH_TOKENS = 96
_LIKELIEST = 25
_SPECTRUM_SIZE, _SPECTRUM_HOP = 512, 128
# What is 60 dB below the loudest is not heard beside it.
_SPECTRUM_FLOOR = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One sentence in float32, and what the same path needs to be walked again.

    Attributes:
        text: its tokens.
        speaker: the voice's embedding.
        tokens: the speech tokens that were drawn, shape (n,).
        logits: before each of them, shape (n, speech tokens + 1).
        noise: of the flow.
        mel: of the flow.
        source: of the vocoder.
        waveform: of the vocoder.
    """

    text: NDArray[np.int64]
    speaker: NDArray[np.float32]
    tokens: NDArray[np.int64]
    logits: NDArray[np.float32]
    noise: NDArray[np.float32]
    mel: NDArray[np.float32]
    source: NDArray[np.float32]
    waveform: NDArray[np.float32]


def record(
    bundle: Bundle, *, sentences: int = len(_SENTENCES)
) -> tuple[list[Recording], NDArray[np.float32]]:
    """Speak some sentences, each with another voice. The same bundle gives the same.

    Returns:
        The recordings, and the largest magnitudes of the language model's keys and values in them,
        (layers, 2, heads, head width).

    Raises:
        ConfigurationError: a stage gives NaN or infinity, as damaged weights do.
    """
    spoken, peaks = _spoken(bundle, sentences)
    flow, vocoder = Flow(bundle), Vocoder(bundle)
    recordings = []
    for number, (text, speaker, tokens, logits) in enumerate(spoken):
        random = np.random.default_rng(number)
        frames = flow.mel_length(len(tokens))
        noise = random.standard_normal((frames, bundle.manifest.flow.mel_bins), dtype=np.float32)
        mel = _finite(flow.mel(tokens, speaker, noise), "mel", "flow.pt")
        drawn = vocoder.draw(frames, random)
        f0 = _finite(vocoder.f0(mel), "f0", "hift.pt")
        source = vocoder.source(f0, drawn.phase, drawn.noise)
        waveform = _finite(vocoder.waveform(mel, source), "waveform", "hift.pt")
        recordings.append(Recording(text, speaker, tokens, logits, noise, mel, source, waveform))
    return recordings, peaks


def observe(
    observer: onnxruntime.InferenceSession, bundle: Bundle, recordings: list[Recording]
) -> list[NDArray[np.float32]]:
    """What the observing vocoder graph sees in each recording, (n, 4) each."""
    dims = bundle.manifest.vocoder
    stft = Stft(dims.fft_size, dims.fft_hop)
    return [
        observer.run(
            ["ranges"],
            {
                "mel": np.ascontiguousarray(recording.mel.T)[None],
                "source": stft.forward(recording.source)[None],
            },
        )[0]
        for recording in recordings
    ]


def judge(bundle: Bundle, recordings: list[Recording]) -> Quality:
    """How far a bundle is from recordings of the same checkpoint in float32."""
    logits = list(_forced(bundle, recordings))
    wanted_logits = [recording.logits for recording in recordings]
    agreed = [
        found.argmax(axis=1) == wanted.argmax(axis=1)
        for found, wanted in zip(logits, wanted_logits, strict=True)
    ]
    flow, vocoder = Flow(bundle), Vocoder(bundle)
    mels = [flow.mel(item.tokens, item.speaker, item.noise) for item in recordings]
    spectra = [_log_spectrum(vocoder.waveform(item.mel, item.source)) for item in recordings]
    return Quality(
        logit_error=_relative_error(logits, wanted_logits),
        top1_agreement=float(np.concatenate(agreed).mean()),
        mel_error=_relative_error(mels, [item.mel for item in recordings]),
        waveform_distance=_relative_error(
            spectra, [_log_spectrum(item.waveform) for item in recordings]
        ),
    )


_Spoken = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]


def _spoken(bundle: Bundle, sentences: int) -> tuple[list[_Spoken], NDArray[np.float32]]:
    """Draw speech tokens for each sentence from the likeliest ones, the end left out."""
    dims = bundle.manifest.language_model
    peaks = np.full((dims.layers, 2, dims.heads, dims.head_width), 1e-6, np.float32)
    encoder, model = TextEncoder(bundle), SpeechLM(bundle)
    voices = list(bundle.voices.values())
    spoken = []
    for number, sentence in enumerate(_SENTENCES[:sentences]):
        random = np.random.default_rng(number)
        # A checkpoint with a smaller vocabulary, as tests have it, gets some text as well.
        text = np.array(sentence, np.int64) % bundle.manifest.text_vocabulary
        speaker = voices[number % len(voices)].speaker
        prompt = model.prompt(encoder.encode(text), speaker)
        cache = model.new_cache(rows=1, capacity=len(prompt) + _SPEECH_TOKENS)
        logits = [_finite(model.join(cache, 0, prompt), "logits", "llm.pt")]
        tokens = [_draw(logits[0], random)]
        while len(tokens) < _SPEECH_TOKENS:
            step = model.step(cache, [0], np.array(tokens[-1:]))[0]
            logits.append(_finite(step, "logits", "llm.pt"))
            tokens.append(_draw(step, random))
        spoken.append((text, speaker, np.array(tokens, np.int64), np.stack(logits)))
        for layer in range(dims.layers):
            for kind, memory in enumerate((cache.keys(layer), cache.values(layer))):
                magnitudes = np.abs(memory[0, :, : cache.clock]).max(axis=1)
                peaks[layer, kind] = np.maximum(peaks[layer, kind], magnitudes)
    return spoken, peaks


def _finite(numbers: NDArray[np.float32], what: str, file: str) -> NDArray[np.float32]:
    if not np.isfinite(numbers).all():
        raise ConfigurationError(
            f"the checkpoint's {what} in float32 holds NaN or infinity: {file} is damaged, copy it"
            " again"
        )
    return numbers


def _draw(logits: NDArray[np.float32], random: np.random.Generator) -> int:
    scores = logits[:-1].astype(np.float64)
    likeliest = np.argsort(scores)[-_LIKELIEST:]
    weights = np.exp(scores[likeliest] - scores[likeliest].max())
    return int(random.choice(likeliest, p=weights / weights.sum()))


def _forced(bundle: Bundle, recordings: list[Recording]) -> list[NDArray[np.float32]]:
    """The logits of a bundle when it is given the recorded tokens."""
    encoder, model = TextEncoder(bundle), SpeechLM(bundle)
    forced = []
    for item in recordings:
        prompt = model.prompt(encoder.encode(item.text), item.speaker)
        cache = model.new_cache(rows=1, capacity=len(prompt) + len(item.tokens))
        logits = [model.join(cache, 0, prompt)]
        logits.extend(
            model.step(cache, [0], item.tokens[[step]])[0] for step in range(len(item.tokens) - 1)
        )
        forced.append(np.stack(logits))
    return forced


def _relative_error(found: list[NDArray[np.float32]], wanted: list[NDArray[np.float32]]) -> float:
    """Root mean square of the difference over the standard deviation of what is wanted.

    Infinite when something found is no number.
    """
    difference = np.concatenate(
        [(a - b).reshape(-1) for a, b in zip(found, wanted, strict=True)], dtype=np.float64
    )
    spread = np.concatenate([part.reshape(-1) for part in wanted], dtype=np.float64).std()
    error = float(np.sqrt(np.square(difference).mean()) / max(float(spread), 1e-12))
    return error if np.isfinite(error) else float("inf")


def _log_spectrum(waveform: NDArray[np.float32]) -> NDArray[np.float32]:
    real, imaginary = np.split(Stft(_SPECTRUM_SIZE, _SPECTRUM_HOP).forward(waveform), 2)
    magnitude = np.hypot(real, imaginary)
    floor = magnitude.max() * np.float32(_SPECTRUM_FLOOR)
    return np.asarray(np.log(magnitude + floor), np.float32)
