"""Writes the float32 or int8 graphs and the tables of one checkpoint into a directory.

Each part reads one file of the checkpoint, so that memory holds one of them at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.conversion.encoder import (
    TextEncoderHead,
    embedded,
    take_encoder,
    take_pair,
    write_flow_encoder,
    write_text_encoder,
)
from utterd.engines.cosyvoice.conversion.estimator import EstimatorWriter
from utterd.engines.cosyvoice.conversion.language_model import LanguageModelWriter, input_rows
from utterd.engines.cosyvoice.conversion.length_regulator import write_length_regulator
from utterd.engines.cosyvoice.conversion.receptive_field import context_frames
from utterd.engines.cosyvoice.conversion.settings import CheckpointSettings
from utterd.engines.cosyvoice.conversion.static_quantization import LayerRange
from utterd.engines.cosyvoice.conversion.torch_file import read_torch_file
from utterd.engines.cosyvoice.conversion.vocoder import HiftShape, HiftWriter, write_f0_predictor
from utterd.engines.cosyvoice.conversion.weights import Array, open_weights
from utterd.engines.cosyvoice.manifest import (
    EncoderDims,
    FlowDims,
    LanguageModelDims,
    Precision,
    Sampling,
    VocoderDims,
)
from utterd.engines.cosyvoice.presets import RESERVED_NAMES
from utterd.errors import ConfigurationError

# Position tables are made once, and no sequence may be longer. A segment has at most 80 text
# tokens and 20 speech tokens for each; the rest is for the prompt of a zero-shot voice.
_TEXT_POSITIONS = 1024
_SPEECH_POSITIONS = 4096
_MAX_VOICE_NAME = 128


@dataclass(frozen=True, slots=True)
class LanguageModelPart:
    """What `llm.pt` told."""

    speaker_width: int
    text_vocabulary: int
    text_encoder: EncoderDims
    language_model: LanguageModelDims


def write_llm(
    checkpoint: Path,
    settings: CheckpointSettings,
    precision: Precision,
    cache_peaks: Array | None,
    out: Path,
) -> LanguageModelPart:
    """`llm.pt`: text encoder, language model, and the tables that feed them.

    With the peaks of keys and values, their cache is int8.
    """
    with open_weights(checkpoint / "llm.pt") as weights:
        text = take_encoder(weights, "text_encoder", ("norm_mha", "norm_ff"))
        model = take_encoder(weights, "llm", ("norm1", "norm2"))
        width = model.embed[0].shape[1]
        affine = take_pair(weights, "text_encoder_affine_layer", width, text.width)
        decoder = take_pair(weights, "llm_decoder", None, model.width)
        write_text_encoder(
            text,
            TextEncoderHead(affine, model),
            precision,
            out / "text_encoder.onnx",
        )
        LanguageModelWriter(model, decoder, precision, cache_peaks).write(
            out / "language_model.onnx"
        )
        embedding = weights.take("text_embedding.weight", None, text.embed[0].shape[1])
        speech = weights.take("speech_embedding.weight", len(decoder[1]) - 1, width)
        speaker = take_pair(weights, "spk_embed_affine_layer", width, None)
        # The speaker's affine layer and the linear part of the LM's input layer are one matrix.
        joined = np.concatenate(
            [model.embed[0] @ speaker[0], (model.embed[0] @ speaker[1] + model.embed[1])[:, None]],
            axis=1,
        )
        _save_tables(
            out,
            {
                "text_embedding": embedding,
                "text_positions": text.positions(_TEXT_POSITIONS - 1, 0),
                "speech_rows": input_rows(model, speech),
                "special_rows": input_rows(model, weights.take("llm_embedding.weight", 2, width)),
                "speaker_projection": joined,
                "speaker_norm": np.stack(model.embed_norm),
                "language_model_positions": model.positions(_SPEECH_POSITIONS - 1, 0),
            },
        )
    sampling = settings.llm.sampling
    return LanguageModelPart(
        speaker_width=speaker[0].shape[1],
        text_vocabulary=len(embedding),
        text_encoder=text.dims(_TEXT_POSITIONS),
        language_model=LanguageModelDims(
            **model.dims(_SPEECH_POSITIONS).model_dump(),
            speech_tokens=len(speech),
            cache_bits=32 if cache_peaks is None else 8,
            sampling=Sampling(
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                window=sampling.win_size,
                repetition_ratio=sampling.tau_r,
            ),
        ),
    )


def write_flow(
    checkpoint: Path, settings: CheckpointSettings, precision: Precision, out: Path
) -> FlowDims:
    """`flow.pt`: token encoder, length regulator, estimator, and their tables."""
    with open_weights(checkpoint / "flow.pt") as weights:
        encoder = take_encoder(weights, "encoder", ("norm_mha", "norm_ff"))
        projection = take_pair(weights, "encoder_proj", None, encoder.width)
        mel_bins = projection[0].shape[0]
        write_flow_encoder(encoder, projection, precision, out / "flow_encoder.onnx")
        tokens = weights.take("input_embedding.weight", None, encoder.embed[0].shape[1])
        speaker = take_pair(weights, "spk_embed_affine_layer", mel_bins, None)
        _save_tables(
            out,
            {
                "flow_tokens": embedded(tokens, encoder),
                "flow_positions": encoder.positions(_SPEECH_POSITIONS - 1, 1 - _SPEECH_POSITIONS),
                "flow_speaker": np.concatenate([speaker[0], speaker[1][:, None]], axis=1),
            },
        )
        stages = len(settings.flow.length_regulator.sampling_ratios)
        write_length_regulator(weights, stages, out / "length_regulator.onnx")
        heads = settings.flow.decoder.estimator.num_heads
        EstimatorWriter(weights, heads, mel_bins, precision).write(
            out / "estimator.onnx", out / "time_features.onnx"
        )
    return FlowDims(
        encoder=encoder.dims(_SPEECH_POSITIONS),
        mel_bins=mel_bins,
        token_rate_hz=settings.flow.input_frame_rate,
        guidance_rate=settings.flow.decoder.cfm_params.content.inference_cfg_rate,
    )


def write_hift(
    checkpoint: Path,
    settings: CheckpointSettings,
    precision: Precision,
    ranges: Mapping[str, LayerRange] | None,
    out: Path,
) -> VocoderDims:
    """`hift.pt`: f0 predictor, generator and the source's mixing weights.

    A generator that is not float32 needs the ranges of its convolutions.
    """
    hift = settings.hift
    harmonics = hift.nb_harmonics + 1
    with open_weights(checkpoint / "hift.pt") as weights:
        write_f0_predictor(weights, out / "f0.onnx")
        shape = hift_shape(settings)
        HiftWriter(weights, shape, precision, ranges).write(out / "hift.onnx")
        context = context_frames(weights, shape)
        merge = take_pair(weights, "m_source.l_linear", 1, harmonics)
        _save_tables(out, {"source_merge": np.append(merge[0][0], merge[1])})
    return VocoderDims(
        sample_rate_hz=hift.sampling_rate,
        samples_per_frame=int(np.prod(hift.upsample_rates)) * hift.istft_params.hop_len,
        fft_size=hift.istft_params.n_fft,
        fft_hop=hift.istft_params.hop_len,
        harmonics=harmonics,
        sine_amplitude=hift.nsf_alpha,
        noise_std=hift.nsf_sigma,
        voiced_threshold_hz=hift.nsf_voiced_threshold,
        audio_limit=hift.audio_limit,
        context_frames=context,
        precision=precision,
    )


def hift_shape(settings: CheckpointSettings) -> HiftShape:
    hift = settings.hift
    return HiftShape(
        upsample_rates=hift.upsample_rates,
        dilations=hift.resblock_dilation_sizes,
        source_dilations=hift.source_resblock_dilation_sizes,
        slope=hift.lrelu_slope,
    )


def write_voices(checkpoint: Path, speaker_width: int, out: Path) -> tuple[str, ...]:
    """`spk2info.pt`: the embedding of each preset voice. Returns their names in order.

    Raises:
        ConfigurationError: it holds no voice, or one without a name or a fitting embedding.
    """
    path = checkpoint / "spk2info.pt"
    saved = read_torch_file(path)
    if not isinstance(saved, dict) or not saved:
        raise ConfigurationError(f"{path} holds no voices: use the released file")
    embeddings = []
    for name, entry in saved.items():
        if not _is_voice_name(name):
            raise ConfigurationError(
                f"{path}: a voice can't have the name {name!a}: use the released file, or a name of"
                f" 1 to {_MAX_VOICE_NAME} characters that can be printed, without slashes, which is"
                " no preset's number or ASCII name"
            )
        embedding = entry.get("embedding") if isinstance(entry, dict) else None
        if (
            not isinstance(embedding, np.ndarray)
            or embedding.size != speaker_width
            or embedding.dtype.kind != "f"
        ):
            raise ConfigurationError(
                f"{path}: the voice {name!r} has no embedding of {speaker_width} floating-point"
                " numbers: use the released file"
            )
        flat = embedding.astype(np.float64).reshape(-1)
        # The language model and the flow divide by the length.
        if not np.square(flat).sum() < np.finfo(np.float32).max:
            raise ConfigurationError(
                f"{path}: the embedding of the voice {name!r} holds NaN, infinity or numbers beyond"
                " measure: use the released file"
            )
        embeddings.append(flat.astype(np.float32))
    _save_tables(out, {"voices": np.stack(embeddings)})
    return tuple(map(str, saved))


def _is_voice_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= _MAX_VOICE_NAME
        and name == name.strip()
        and name.isprintable()
        and not {"/", "\\"} & set(name)
        and name not in RESERVED_NAMES
    )


def _save_tables(out: Path, tables: Mapping[str, NDArray[Any] | Array]) -> None:
    for name, table in tables.items():
        np.save(out / f"{name}.npy", np.ascontiguousarray(table, np.float32))
