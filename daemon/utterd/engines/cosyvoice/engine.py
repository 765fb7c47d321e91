"""CosyVoice in a worker process: many threads ask, one decodes, and the rest make sound."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle, VoicePrompt, open_bundle, verify_files
from utterd.engines.cosyvoice.cores import Cores
from utterd.engines.cosyvoice.decoder import Decoded, Decoder, Request
from utterd.engines.cosyvoice.model.cache import KeyValueCache
from utterd.engines.cosyvoice.model.flow import Flow
from utterd.engines.cosyvoice.model.interpolate import interpolate
from utterd.engines.cosyvoice.model.language_model import SpeechLM
from utterd.engines.cosyvoice.model.text_encoder import TextEncoder
from utterd.engines.cosyvoice.model.vocoder import Vocoder
from utterd.engines.cosyvoice.sampling import (
    MAX_TOKENS_A_TEXT_TOKEN,
    MIN_TOKENS_A_TEXT_TOKEN,
    TokenSampler,
)
from utterd.engines.cosyvoice.tokenizer import Tokenizer, load_tokenizer
from utterd.engines.protocol import PCM, CancelToken, EngineOptions, Take, Utterance
from utterd.errors import ConfigurationError, EngineFailedError, UnknownVoiceError
from utterd.ops.memory import return_freed_memory

# Two short rows, so that both a prefill and a step over several rows have run once.
_WARM_UP_TEXTS = ("你好。", "Hello.")
_WARM_UP_TOKENS = 12

# Two read the weights nearly twice as fast as one; more of them would mostly wait for memory.
_WIDE_THREADS = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Randomness:
    """A segment's random numbers; each stage has its own, so that none shifts another's."""

    tokens: np.random.Generator
    mel: np.random.Generator
    source: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> Self:
        return cls(*map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3)))


class CosyVoiceEngine:
    """A loaded bundle. `speak` may be called from any number of threads.

    Args:
        bundle: opened.
        options: rows, Euler steps and the cache's size.
        threads: cores that may be kept busy.
    """

    def __init__(self, bundle: Bundle, options: EngineOptions, *, threads: int) -> None:
        self._manifest = bundle.manifest
        self._voices: Mapping[str, VoicePrompt] = bundle.voices
        self._euler_steps = options.euler_steps
        self._tokenizer: Tokenizer = load_tokenizer()
        with ThreadPoolExecutor(threads) as openers:
            # The language model first, for it takes the longest.
            model = openers.submit(SpeechLM, bundle, wide_threads=min(threads, _WIDE_THREADS))
            encoder = openers.submit(TextEncoder, bundle)
            flow = openers.submit(Flow, bundle)
            vocoder = openers.submit(Vocoder, bundle)
        self._encoder, self._model = encoder.result(), model.result()
        self._flow, self._vocoder = flow.result(), vocoder.result()
        # A quarter of the resident memory is now what the graphs were read into.
        return_freed_memory()
        self._cores = Cores(threads)
        self._capacity = min(options.cache_tokens, self._manifest.language_model.positions)
        self._decoder: Decoder[KeyValueCache] = Decoder(
            self._model,
            rows=options.rows,
            capacity=self._capacity,
            cores=self._cores,
        )

    def speak(self, utterance: Utterance, cancel: CancelToken) -> Take:
        """Speak one segment.

        The same utterance gives the same tokens, whatever is spoken beside it, as far as rounding
        lets it: products of one row and of several differ in the last bits of a float32, and
        where two tokens are that close, the other one may be drawn.

        Raises:
            UnknownVoiceError: the bundle has no such voice.
            TextTooLongError: the text has more tokens than the model takes.
            EngineFailedError: the model failed.
            CancelledByCallerError: `cancel` was used; it is asked at every step of both loops.
        """
        voice = self._voices.get(utterance.voice)
        if voice is None:
            raise UnknownVoiceError(
                f"the bundle has no such voice: ask for one of {', '.join(self._voices)}",
                voices=[*self._voices],
            )
        random = _Randomness.of(utterance.seed)
        ids = self._tokenizer.encode(utterance.text)
        limits = self.token_limits(ids.size)
        decoded = self._decode(ids, limits, voice, random.tokens, cancel)
        with self._cores.one(cancel):
            pcm = self._sound(decoded.tokens, voice, utterance.speed, random, cancel)
        return Take(pcm, decoded.faults)

    def token_limits(self, text_tokens: int) -> tuple[int, int]:
        """The least and the most speech tokens that so many text tokens may become."""
        return MIN_TOKENS_A_TEXT_TOKEN * text_tokens, MAX_TOKENS_A_TEXT_TOKEN * text_tokens

    def warm_up(self) -> None:
        """Speak a little, so that the first job does not wait for memory and code to be touched."""
        for text in _WARM_UP_TEXTS:
            voice = next(iter(self._voices.values()))
            random, cancel = _Randomness.of(0), CancelToken()
            ids = self._tokenizer.encode(text)
            limits = (_WARM_UP_TOKENS, _WARM_UP_TOKENS)
            decoded = self._decode(ids, limits, voice, random.tokens, cancel)
            self._sound(decoded.tokens, voice, 1.0, random, cancel)

    def close(self) -> None:
        """End the threads."""
        self._decoder.close()
        self._cores.close()

    def _decode(
        self,
        ids: NDArray[np.int64],
        limits: tuple[int, int],
        voice: VoicePrompt,
        generator: np.random.Generator,
        cancel: CancelToken,
    ) -> Decoded:
        min_tokens, max_tokens = limits
        encoding = self._encoder.encode(np.concatenate([voice.text_tokens, ids]))
        prompt = self._model.prompt(encoding, voice.speaker, voice.speech_tokens)
        room = self._capacity - len(prompt)
        if room < min_tokens:
            raise EngineFailedError(
                f"a segment of {ids.size} text tokens leaves no room for its speech: raise"
                f" engine.cache_tokens, which is {self._capacity}"
            )
        dims = self._manifest.language_model
        sampler = TokenSampler(
            dims.sampling,
            end_token=dims.speech_tokens,
            min_tokens=min_tokens,
            generator=generator,
        )
        return self._decoder.decode(Request(prompt, sampler, min(max_tokens, room), cancel))

    def _sound(
        self,
        tokens: NDArray[np.int64],
        voice: VoicePrompt,
        speed: float,
        random: _Randomness,
        cancel: CancelToken,
    ) -> PCM:
        frames = len(voice.mel) + self._flow.mel_length(len(tokens))
        noise = random.mel.standard_normal((frames, self._manifest.flow.mel_bins), dtype=np.float32)
        mel = self._flow.mel(
            tokens,
            voice.speaker,
            noise,
            steps=self._euler_steps,
            should_stop=cancel.raise_if_cancelled,
            pair=self._cores.both,
            prompt_tokens=voice.speech_tokens,
            prompt_mel=voice.mel,
        )
        cancel.raise_if_cancelled()
        if speed != 1.0:
            mel = interpolate(mel, max(1, int(len(mel) / speed)))
        return self._vocoder.synthesize(mel, random.source, pair=self._cores.both)


def load_engine(options: EngineOptions, *, threads: int) -> CosyVoiceEngine:
    """Load a bundle and warm it up.

    Raises:
        ConfigurationError: there is no bundle, or it can't be loaded.
    """
    if options.bundle is None:
        raise ConfigurationError(
            "the engine cosyvoice needs a bundle: make one with `utterd bundle convert` and set"
            " engine.bundle to its directory"
        )
    bundle = open_bundle(options.bundle)
    # Beside the loading, since both take a second at full size.
    with ThreadPoolExecutor(1, thread_name_prefix="verify") as beside:
        verifying = beside.submit(_verify, bundle)
        try:
            engine = CosyVoiceEngine(bundle, options, threads=threads)
        finally:
            # A changed file is told as that, whatever else went wrong because of it.
            verifying.result()
    engine.warm_up()
    return engine


def _verify(bundle: Bundle) -> None:
    """Raise ConfigurationError unless every file is the one that the manifest tells of."""
    for name, fault in verify_files(bundle):
        if fault is not None:
            raise ConfigurationError(f"{bundle.directory / name} {fault}")
