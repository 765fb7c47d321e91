"""What `cosyvoice.yaml` must say: all that the tensors don't tell.

Literal types are the variants that the graphs implement; another value is refused by its name.
"""

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from utterd.engines.cosyvoice.conversion.hyperpyyaml import read_hyperpyyaml
from utterd.errors import ConfigurationError

# The original's flow has the frame rate of the mel as a number: 22050 / 256.
_SAMPLES_PER_FRAME = 256
_MAX_SIZE = 65_536

_Size = Annotated[int, Field(gt=0, le=_MAX_SIZE)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Amplitude = Annotated[float, Field(ge=0, le=10)]
_Dilations = Annotated[tuple[_Size, ...], Field(min_length=1, max_length=64)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class _Encoder(_Section):
    attention_heads: _Size
    num_blocks: _Size
    pos_enc_layer_type: Literal["rel_pos_espnet"]
    selfattention_layer_type: Literal["rel_selfattn"]
    normalize_before: Literal[True] = True


class _Conformer(_Encoder):
    input_layer: Literal["linear"]
    use_cnn_module: Literal[False]
    macaron_style: Literal[False]


class _CausalConformer(_Conformer):
    static_chunk_size: Literal[1]


class _FullConformer(_Conformer):
    static_chunk_size: Literal[0] = 0


class _CausalTransformer(_Encoder):
    input_layer: Literal["linear_legacy"]
    static_chunk_size: Literal[1]


class _Sampling(_Section):
    top_p: float = Field(gt=0, le=1)
    top_k: _Size
    win_size: _Size
    tau_r: _Share


class _LanguageModel(_Section):
    text_encoder: _CausalConformer
    llm: _CausalTransformer
    sampling: _Sampling


class _FlowMatching(_Section):
    solver: Literal["euler"]
    t_scheduler: Literal["cosine"]
    inference_cfg_rate: float = Field(ge=0, le=100)


class _FlowMatchingContent(_Section):
    content: _FlowMatching


class _Estimator(_Section):
    num_heads: _Size
    num_mid_blocks: _Size
    n_blocks: _Size
    act_fn: Literal["gelu"]


class _Decoder(_Section):
    cfm_params: _FlowMatchingContent
    estimator: _Estimator


class _Regulator(_Section):
    sampling_ratios: tuple[Literal[1], ...] = Field(max_length=64)


class _Flow(_Section):
    # A token has a frame of the mel at least.
    input_frame_rate: int = Field(gt=0, le=22_050 // _SAMPLES_PER_FRAME)
    encoder: _FullConformer
    length_regulator: _Regulator
    decoder: _Decoder


class _InverseStft(_Section):
    n_fft: int = Field(gt=0, le=_MAX_SIZE, multiple_of=2)
    hop_len: _Size


class _Hift(_Section):
    # Another rate makes the original choose another sine generator.
    sampling_rate: Literal[22050]
    nb_harmonics: int = Field(ge=0, le=256)
    nsf_alpha: _Amplitude
    nsf_sigma: _Amplitude
    nsf_voiced_threshold: float = Field(ge=0, le=22_050)
    upsample_rates: tuple[_Size, ...] = Field(min_length=1, max_length=16)
    istft_params: _InverseStft
    resblock_dilation_sizes: tuple[_Dilations, ...] = Field(min_length=1, max_length=64)
    source_resblock_dilation_sizes: tuple[_Dilations, ...] = Field(max_length=64)
    lrelu_slope: _Share
    audio_limit: float = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _overlapping(self) -> Self:
        if self.istft_params.n_fft % self.istft_params.hop_len:
            raise ValueError("istft_params: n_fft must be a multiple of hop_len")
        if math.prod(self.upsample_rates) * self.istft_params.hop_len != _SAMPLES_PER_FRAME:
            raise ValueError(
                f"upsample_rates times istft_params.hop_len must be {_SAMPLES_PER_FRAME}"
            )
        if len(self.source_resblock_dilation_sizes) != len(self.upsample_rates):
            raise ValueError("source_resblock_dilation_sizes must be as many as upsample_rates")
        return self


class CheckpointSettings(_Section):
    """The sections of `cosyvoice.yaml` that decide how the tensors are used."""

    llm: _LanguageModel
    flow: _Flow
    hift: _Hift


def read_settings(path: Path) -> CheckpointSettings:
    """Read `cosyvoice.yaml`.

    Raises:
        ConfigurationError: it is missing or no YAML, lacks a setting, or describes another model.
    """
    try:
        return CheckpointSettings.model_validate(read_hyperpyyaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"{path}: {place}: {first['msg']}. Only the layout of CosyVoice-300M-SFT is read: use"
            " the released file"
        ) from error
