"""What the engine is, found in its bundle's manifest without loading a model."""

from collections.abc import Iterator
from hashlib import sha256

from utterd.engines.cosyvoice.bundle import Bundle, open_bundle
from utterd.engines.cosyvoice.front_end import FRONT_END_VERSION
from utterd.engines.cosyvoice.manifest import Precision
from utterd.engines.cosyvoice.presets import PRESETS
from utterd.engines.cosyvoice.tokenizer import VOCABULARY_SIZE, vocabulary_digest
from utterd.engines.protocol import GIB, EngineInfo, EngineOptions, Voice
from utterd.errors import ConfigurationError
from utterd.ops.cpu import saturates_int8_products

ENGINE_VERSION = "1"
"""Part of the digest: it changes when the same bundle would sound different."""

LANGUAGES = ("zh", "en", "ja", "yue", "ko")


def describe(options: EngineOptions) -> EngineInfo:
    """What the engine is with this bundle.

    Raises:
        ConfigurationError: there is no bundle, or it is of another format.
    """
    if options.bundle is None:
        raise ConfigurationError(
            "the engine cosyvoice needs a bundle: make one with `utterd bundle convert` and set"
            " engine.bundle to its directory"
        )
    bundle = open_bundle(options.bundle)
    if bundle.manifest.text_vocabulary != VOCABULARY_SIZE:
        raise ConfigurationError(
            f"{options.bundle} reads {bundle.manifest.text_vocabulary} text tokens, and"
            f" CosyVoice-300M-SFT has {VOCABULARY_SIZE}: convert the released checkpoint"
        )
    return EngineInfo(
        name="cosyvoice",
        version=ENGINE_VERSION,
        bundle=_digest(bundle, options),
        sample_rate_hz=bundle.manifest.vocoder.sample_rate_hz,
        voices=_voices(bundle.manifest.voices),
        concurrency=options.rows,
        max_worker_bytes=_max_worker_bytes(bundle, options),
        caveats=tuple(_caveats(bundle.manifest.precision)),
    )


def _caveats(precision: Precision) -> Iterator[str]:
    if precision is Precision.INT8 and saturates_int8_products():
        yield (
            "this processor has no VNNI and cuts sums of int8 products that are too large, so the"
            " bundle sounds worse here than where it was judged: convert the checkpoint with"
            " --precision int7"
        )


def _digest(bundle: Bundle, options: EngineOptions) -> str:
    """One digest of all that decides the sound, beside a job's own wishes."""
    parts = (
        f"bundle {bundle.digest}",
        f"engine {ENGINE_VERSION}",
        f"front end {FRONT_END_VERSION}",
        f"vocabulary {vocabulary_digest()}",
        f"euler steps {options.euler_steps}",
        # Where speech is cut that finds no end.
        f"cache tokens {options.cache_tokens}",
    )
    return sha256("\n".join(parts).encode()).hexdigest()


def _voices(names: tuple[str, ...]) -> tuple[Voice, ...]:
    """The presets in the order of their numbers, and then what else the checkpoint has."""
    presets = [
        Voice(
            name=name,
            languages=(own, *(language for language in LANGUAGES if language != own)),
            description=ascii_name.replace("_", ", ").capitalize(),
            aliases=(str(number), ascii_name, name),
        )
        for number, (name, ascii_name, own) in enumerate(PRESETS)
        if name in names
    ]
    known = {voice.name for voice in presets}
    others = [
        Voice(name=name, languages=LANGUAGES, description="of this checkpoint", aliases=(name,))
        for name in names
        if name not in known
    ]
    return (*presets, *others)


def _max_worker_bytes(bundle: Bundle, options: EngineOptions) -> int:
    """The weights twice, for what is packed anew at load, a full cache, and room to work."""
    weights = sum(facts.size_bytes for facts in bundle.manifest.files.values())
    dims = bundle.manifest.language_model
    keys_and_values_bytes = 2 * dims.layers * dims.width * dims.cache_bits // 8
    cache = options.rows * options.cache_tokens * keys_and_values_bytes
    return 2 * weights + cache + GIB
