"""What `cosyvoice.yaml` must say: all that the tensors don't tell.

Literal types are the variants that the graphs implement; another value is refused by its name.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from utterd.engines.cosyvoice.conversion.hyperpyyaml import read_hyperpyyaml
from utterd.errors import ConfigurationError


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Encoder(_Section):
    attention_heads: int = Field(gt=0)
    num_blocks: int = Field(gt=0)
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
    top_p: float
    top_k: int
    win_size: int
    tau_r: float


class _LanguageModel(_Section):
    text_encoder: _CausalConformer
    llm: _CausalTransformer
    sampling: _Sampling


class _FlowMatching(_Section):
    solver: Literal["euler"]
    t_scheduler: Literal["cosine"]
    inference_cfg_rate: float


class _FlowMatchingContent(_Section):
    content: _FlowMatching


class _Estimator(_Section):
    num_heads: int = Field(gt=0)
    num_mid_blocks: int
    n_blocks: int
    act_fn: Literal["gelu"]


class _Decoder(_Section):
    cfm_params: _FlowMatchingContent
    estimator: _Estimator


class _Regulator(_Section):
    sampling_ratios: tuple[Literal[1], ...]


class _Flow(_Section):
    input_frame_rate: int = Field(gt=0)
    encoder: _FullConformer
    length_regulator: _Regulator
    decoder: _Decoder


class _InverseStft(_Section):
    n_fft: int = Field(gt=0)
    hop_len: int = Field(gt=0)


class _Hift(_Section):
    # Another rate makes the original choose another sine generator.
    sampling_rate: Literal[22050]
    nb_harmonics: int
    nsf_alpha: float
    nsf_sigma: float
    nsf_voiced_threshold: float
    upsample_rates: tuple[int, ...] = Field(min_length=1)
    istft_params: _InverseStft
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    source_resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    lrelu_slope: float
    audio_limit: float

    @model_validator(mode="after")
    def _overlapping(self) -> Self:
        if self.istft_params.n_fft % self.istft_params.hop_len:
            raise ValueError("n_fft must be a multiple of hop_len")
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
