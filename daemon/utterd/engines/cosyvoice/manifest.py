"""What `manifest.json` of a bundle says: the model's dimensions, its voices, a digest per file."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"


class Precision(StrEnum):
    """In what numbers the large matrices are multiplied."""

    FLOAT32 = "float32"
    INT8 = "int8"
    INT7 = "int7"
    """int8 with weights of 7 bits. Without VNNI, x86-64 adds two products in 16 bits and cuts what
    does not fit; two of a byte and such a weight always do."""

    @property
    def weight_peak(self) -> int:
        """The greatest magnitude of an integer weight; `KeyError` of float32."""
        return {Precision.INT8: 127, Precision.INT7: 63}[self]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class EncoderDims(_Part):
    """One relative-position transformer.

    Attributes:
        layers: number of layers.
        heads: attention heads of a layer.
        width: channels of its inside.
        positions: the longest sequence that its position table covers.
    """

    layers: int
    heads: int
    width: int
    positions: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Sampling(_Part):
    """Repetition-aware sampling as the checkpoint's configuration sets it."""

    top_p: float
    top_k: int
    window: int
    repetition_ratio: float


class LanguageModelDims(EncoderDims):
    """Text encoding and speech tokens to the logits of the next speech token.

    Attributes:
        speech_tokens: how many speech tokens there are; the end-of-speech id is this number.
        cache_bits: of a number in the cache of keys and values.
        sampling: how the next one is drawn.
    """

    speech_tokens: int
    cache_bits: Literal[8, 32]
    sampling: Sampling


class FlowDims(_Part):
    """Speech tokens to mel.

    Attributes:
        encoder: the token encoder.
        mel_bins: channels of the mel.
        token_rate_hz: speech tokens a second.
        guidance_rate: g in `(1 + g) * conditional - g * unconditional`.
    """

    encoder: EncoderDims
    mel_bins: int
    token_rate_hz: int
    guidance_rate: float


class VocoderDims(_Part):
    """Mel to samples: harmonic source, HiFT network, inverse STFT.

    Attributes:
        sample_rate_hz: of the waveform.
        samples_per_frame: of one mel frame.
        fft_size: of the inverse STFT.
        fft_hop: samples between its frames.
        harmonics: sines of the source, the fundamental included.
        sine_amplitude: of each.
        noise_std: of the noise under voiced samples.
        voiced_threshold_hz: f0 above it counts as voiced.
        audio_limit: where the waveform is clipped.
        context_frames: mel frames on either side of its own that a sample depends on at most.
        precision: of the HiFT network, which may be float32 in an int8 bundle.
    """

    sample_rate_hz: int
    samples_per_frame: int
    fft_size: int
    fft_hop: int
    harmonics: int
    sine_amplitude: float
    noise_std: float
    voiced_threshold_hz: float
    audio_limit: float
    context_frames: int
    precision: Precision


# At least zero also means a number, and not NaN.
_Measure = Annotated[float, Field(ge=0)]


class Quality(_Part):
    """How far an int8 or int7 bundle is from the same checkpoint in float32.

    Attributes:
        logit_error: root mean square of the logits' difference over their standard deviation.
        top1_agreement: share of steps whose most likely token is the same.
        mel_error: as logit_error, of the mels of the same tokens and noise.
        waveform_distance: as logit_error, of the log-magnitude spectra of the waveforms of the same
            mel and source.
    """

    logit_error: _Measure
    top1_agreement: _Measure
    mel_error: _Measure
    waveform_distance: _Measure


DEFAULT_LIMITS = Quality(
    logit_error=0.1, top1_agreement=0.85, mel_error=0.15, waveform_distance=0.3
)
"""How far an int8 bundle may be from float32 unless somebody knows better."""


class FileFacts(_Part):
    """One file of the bundle."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int


class Manifest(_Part):
    """The whole of `manifest.json`."""

    format_version: Literal[1]
    model: Literal["CosyVoice-300M-SFT"]
    precision: Precision
    speaker_width: int
    voices: tuple[str, ...]
    text_vocabulary: int
    text_encoder: EncoderDims
    language_model: LanguageModelDims
    flow: FlowDims
    vocoder: VocoderDims
    quality: Quality | None
    files: dict[str, FileFacts]
