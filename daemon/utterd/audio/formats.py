"""The table of output formats, and the choice of what a job's audio is stored as."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from utterd.errors import UnsupportedOutputError
from utterd_schemas.audio import AudioFormat

MIN_SAMPLE_RATE_HZ: Final = 8_000
MAX_SAMPLE_RATE_HZ: Final = 48_000

# MPEG-1, MPEG-2 and MPEG-2.5 layer III carry these rates and no others.
MP3_SAMPLE_RATES_HZ: Final = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
MPEG1_MIN_RATE_HZ: Final = 32_000
MPEG2_MIN_RATE_HZ: Final = 16_000
# The layer III bitrate tables without what LAME can't hold within 5 % on speech:
# 8 kbit/s anywhere, and 32 kbit/s in MPEG-1.
_MPEG1_KBPS: Final = (40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2_KBPS: Final = (16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MPEG25_KBPS: Final = (16, 24, 32, 40, 48, 56, 64)

# libopus takes these rates; each file plays at 48 kHz all the same (RFC 7845, section 5.1).
OPUS_SAMPLE_RATES_HZ: Final = (8_000, 12_000, 16_000, 24_000, 48_000)
_OPUS_KBPS: Final = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256)
# libopus changes between its speech and its music coder just there: 42 or 55, never 48 kbit/s.
_OPUS_GAPS_KBPS: Final = MappingProxyType({16_000: frozenset({48})})

# Legal in both codecs at every rate, met in one pass, and more than mono speech needs.
_DEFAULT_KBPS: Final = 64


@dataclass(frozen=True, slots=True)
class FormatTraits:
    """What is true of a format whatever the job asks.

    Attributes:
        extension: of the object's name, without the dot.
        content_type: of the object; `{rate}` stands for the sample rate in headerless formats.
        headerless: whether the bytes are samples and nothing else.
        lossy: whether the decoded samples differ from the encoded ones.
        sample_rates_hz: the legal rates in rising order; None where every rate from
            `MIN_SAMPLE_RATE_HZ` to `MAX_SAMPLE_RATE_HZ` is legal.
        has_bitrate: whether a job may choose the bitrate.
    """

    extension: str
    content_type: str
    headerless: bool = False
    lossy: bool = False
    sample_rates_hz: tuple[int, ...] | None = None
    has_bitrate: bool = False


FORMATS: Final[Mapping[AudioFormat, FormatTraits]] = MappingProxyType(
    {
        AudioFormat.WAV: FormatTraits("wav", "audio/wav"),
        AudioFormat.FLAC: FormatTraits("flac", "audio/flac"),
        AudioFormat.MP3: FormatTraits(
            "mp3",
            "audio/mpeg",
            lossy=True,
            sample_rates_hz=MP3_SAMPLE_RATES_HZ,
            has_bitrate=True,
        ),
        AudioFormat.OPUS: FormatTraits(
            "opus",
            "audio/ogg; codecs=opus",
            lossy=True,
            sample_rates_hz=OPUS_SAMPLE_RATES_HZ,
            has_bitrate=True,
        ),
        AudioFormat.VORBIS: FormatTraits("ogg", "audio/ogg; codecs=vorbis", lossy=True),
        # Not audio/L16, which RFC 2586 defines as big-endian.
        AudioFormat.PCM: FormatTraits(
            "pcm",
            "audio/pcm; rate={rate}; channels=1; bits=16; endian=little",
            headerless=True,
        ),
        AudioFormat.ULAW: FormatTraits(
            "ulaw", "audio/PCMU; rate={rate}", headerless=True, lossy=True
        ),
        AudioFormat.ALAW: FormatTraits(
            "alaw", "audio/PCMA; rate={rate}", headerless=True, lossy=True
        ),
    }
)


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """How a job's audio is stored; `resolve_output` makes only legal ones.

    Attributes:
        format: container and codec.
        sample_rate_hz: of the stored audio.
        bitrate_kbps: of the stored audio in kbit/s; None for formats without a choice of it.
    """

    format: AudioFormat
    sample_rate_hz: int
    bitrate_kbps: int | None

    @property
    def traits(self) -> FormatTraits:
        return FORMATS[self.format]

    @property
    def content_type(self) -> str:
        return self.traits.content_type.format(rate=self.sample_rate_hz)


def legal_bitrates_kbps(audio_format: AudioFormat, sample_rate_hz: int) -> tuple[int, ...]:
    """List the bitrates that are met within 5 % over ten seconds of speech.

    Args:
        audio_format: container and codec.
        sample_rate_hz: a legal rate of the format.

    Returns:
        Bitrates in kbit/s in rising order; empty for formats without a choice of bitrate.
    """
    match audio_format:
        case AudioFormat.MP3 if sample_rate_hz >= MPEG1_MIN_RATE_HZ:
            return _MPEG1_KBPS
        case AudioFormat.MP3 if sample_rate_hz >= MPEG2_MIN_RATE_HZ:
            return _MPEG2_KBPS
        case AudioFormat.MP3:
            return _MPEG25_KBPS
        case AudioFormat.OPUS:
            gaps = _OPUS_GAPS_KBPS.get(sample_rate_hz, frozenset())
            return tuple(kbps for kbps in _OPUS_KBPS if kbps not in gaps)
        case _:
            return ()


def resolve_output(
    audio_format: AudioFormat,
    *,
    sample_rate_hz: int | None,
    bitrate_kbps: int | None,
    native_rate_hz: int,
) -> OutputSpec:
    """Settle a job's output from what it asks and what the engine speaks.

    Args:
        audio_format: container and codec.
        sample_rate_hz: the rate that the job asks for; None takes the engine's own rate, or
            the next legal one above it, or the highest legal one.
        bitrate_kbps: the bitrate that the job asks for in kbit/s; None takes the default.
        native_rate_hz: the rate of the engine's samples.

    Raises:
        UnsupportedOutputError: the format can't carry the rate or the bitrate; message and
            detail list what is legal.
    """
    rate_hz = _resolve_rate(audio_format, sample_rate_hz, native_rate_hz)
    return OutputSpec(audio_format, rate_hz, _resolve_bitrate(audio_format, rate_hz, bitrate_kbps))


def _resolve_rate(audio_format: AudioFormat, asked_hz: int | None, native_hz: int) -> int:
    legal_hz = FORMATS[audio_format].sample_rates_hz
    if legal_hz is None:
        if asked_hz is None:
            return min(max(native_hz, MIN_SAMPLE_RATE_HZ), MAX_SAMPLE_RATE_HZ)
        if MIN_SAMPLE_RATE_HZ <= asked_hz <= MAX_SAMPLE_RATE_HZ:
            return asked_hz
        raise UnsupportedOutputError(
            f"{audio_format} can't be made at {asked_hz} Hz: ask for a sample_rate_hz from "
            f"{MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ}, or leave it out.",
            min_sample_rate_hz=MIN_SAMPLE_RATE_HZ,
            max_sample_rate_hz=MAX_SAMPLE_RATE_HZ,
        )
    if asked_hz is None:
        return next((rate_hz for rate_hz in legal_hz if rate_hz >= native_hz), legal_hz[-1])
    if asked_hz in legal_hz:
        return asked_hz
    raise UnsupportedOutputError(
        f"{audio_format} can't be made at {asked_hz} Hz: ask for a sample_rate_hz of "
        f"{_either(legal_hz)}, or leave it out.",
        legal_sample_rates_hz=list(legal_hz),
    )


def _resolve_bitrate(
    audio_format: AudioFormat, sample_rate_hz: int, asked_kbps: int | None
) -> int | None:
    has_bitrate = FORMATS[audio_format].has_bitrate
    if asked_kbps is None:
        return _DEFAULT_KBPS if has_bitrate else None
    if not has_bitrate:
        takers = [name.value for name, traits in FORMATS.items() if traits.has_bitrate]
        raise UnsupportedOutputError(
            f"{audio_format} has no choice of bitrate: leave bitrate_kbps out, or ask for a "
            f"format of {_either(takers)}.",
            formats_with_bitrate=[*takers],
        )
    legal_kbps = legal_bitrates_kbps(audio_format, sample_rate_hz)
    if asked_kbps in legal_kbps:
        return asked_kbps
    raise UnsupportedOutputError(
        f"{audio_format} at {sample_rate_hz} Hz can't hold {asked_kbps} kbit/s: ask for a "
        f"bitrate_kbps of {_either(legal_kbps)}, or leave it out.",
        legal_bitrates_kbps=list(legal_kbps),
    )


def _either(choices: tuple[int, ...] | list[str]) -> str:
    *most, last = (str(choice) for choice in choices)
    return f"{', '.join(most)} or {last}"
