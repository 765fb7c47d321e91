import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.cosyvoice import DATA, PRESETS, TINY, Dims, flow_shapes, hift_shapes, llm_shapes
from support.torch_zip import save_torch
from utterd.engines.cosyvoice.bundle import Bundle, open_bundle, verify_files
from utterd.engines.cosyvoice.conversion.convert import CHECKPOINT_FILES, convert
from utterd.engines.cosyvoice.conversion.torch_file import read_torch_file
from utterd.engines.cosyvoice.manifest import Precision
from utterd.engines.cosyvoice.verification import verify
from utterd.errors import ConfigurationError


def attempt(
    checkpoint: Path,
    out: Path,
    precision: Precision = Precision.FLOAT32,
    vocoder: Precision | None = None,
) -> Bundle:
    return convert(
        checkpoint, out, precision=precision, vocoder=vocoder, report=lambda _step: None
    ).bundle


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may damage."""
    return Path(shutil.copytree(TINY, tmp_path / "checkpoint"))


def test_a_bundle_has_all_that_speaks(tiny: Bundle):
    """A bundle holds the presets, the tokenizer and the licences, each with its digest."""
    assert tuple(tiny.voices) == PRESETS
    assert tiny.tokenizer.stat().st_size > 100_000
    assert {"LICENSE", "NOTICE", "multilingual.tiktoken.LICENSE"} <= tiny.manifest.files.keys()
    assert all(fault is None for _, fault in verify_files(tiny))


def test_the_same_checkpoint_gives_the_same_bundle(tiny: Bundle, tmp_path: Path):
    """The digest depends on the checkpoint alone, so stored audio is found again."""
    assert attempt(TINY, tmp_path / "again").digest == tiny.digest


@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_a_missing_file_is_named(checkpoint: Path, tmp_path: Path, name: str):
    """Each file of the checkpoint is asked for by its name."""
    (checkpoint / name).unlink()

    with pytest.raises(ConfigurationError, match=f"lacks {name}"):
        attempt(checkpoint, tmp_path / "bundle")


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "hift.pt", "spk2info.pt"])
def test_a_cut_file_is_named(checkpoint: Path, tmp_path: Path, name: str):
    """A truncated file is named, and no half of a bundle is left."""
    whole = (checkpoint / name).read_bytes()
    (checkpoint / name).write_bytes(whole[: len(whole) // 2])

    with pytest.raises(ConfigurationError, match=f"{name} is cut"):
        attempt(checkpoint, tmp_path / "bundle")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_swapped_files_are_found(checkpoint: Path, tmp_path: Path):
    """A file under another's name is refused by the first tensor that it lacks."""
    shutil.copyfile(checkpoint / "hift.pt", checkpoint / "llm.pt")

    with pytest.raises(ConfigurationError, match=r"llm\.pt: the tensor .* is missing"):
        attempt(checkpoint, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("act_fn: 'gelu'", "act_fn: 'snake'", "act_fn"),
        ("t_scheduler: 'cosine'", "t_scheduler: 'linear'", "t_scheduler"),
        ("top_p: 0.8", "top_q: 0.8", "llm.sampling.top_p"),
        ("'linear_legacy'", "'embed'", "llm.llm.input_layer"),
        ("top_p: 0.8", "top_p: .nan", "llm.sampling.top_p"),
        ("top_k: 25", "top_k: 0", "llm.sampling.top_k"),
        ("win_size: 10", "win_size: -5", "llm.sampling.win_size"),
        ("inference_cfg_rate: 0.7", "inference_cfg_rate: .inf", "inference_cfg_rate"),
        ("input_frame_rate: 50", "input_frame_rate: 100000", "flow.input_frame_rate"),
        (
            "            num_heads: 2",
            "            num_heads: 7",
            "flow.decoder.estimator.num_heads",
        ),
        ("upsample_rates: [8, 8]", "upsample_rates: [0, 0]", "hift.upsample_rates"),
        ("upsample_rates: [8, 8]", "upsample_rates: [-8, -8]", "hift.upsample_rates"),
        ("upsample_rates: [8, 8]", "upsample_rates: [4, 16]", "hift.upsample_rates"),
        ("hop_len: 4", "hop_len: 8", "hop_len"),
        ("lrelu_slope: 0.1", "lrelu_slope: .nan", "hift.lrelu_slope"),
        ("nsf_alpha: 0.1", "nsf_alpha: .inf", "hift.nsf_alpha"),
        ("nb_harmonics: 8", "nb_harmonics: -1", "hift.nb_harmonics"),
        ("audio_limit: 0.99", "audio_limit: -1.0", "hift.audio_limit"),
        ("[[1, 3, 5], [1, 3, 5]]\n    lrelu", "[[1, 3, 5]]\n    lrelu", "source_resblock_dilation"),
        ("_sizes: [[1, 3, 5], ", "_sizes: [[0, 3, 5], ", "resblock_dilation_sizes"),
    ],
)
def test_another_model_is_refused(checkpoint: Path, tmp_path: Path, old: str, new: str, place: str):
    """Settings that the graphs don't implement are refused by their place."""
    settings = checkpoint / "cosyvoice.yaml"
    text = settings.read_text(encoding="utf-8")
    assert old in text
    settings.write_text(text.replace(old, new), encoding="utf-8")

    with pytest.raises(ConfigurationError, match=place):
        attempt(checkpoint, tmp_path / "bundle")


def test_the_vocoder_may_stay_exact(tmp_path: Path):
    """An int8 bundle with a float32 vocoder makes the very waveform of float32."""
    bundle = attempt(TINY, tmp_path / "bundle", Precision.INT8, vocoder=Precision.FLOAT32)

    assert bundle.manifest.vocoder.precision is Precision.FLOAT32
    assert bundle.manifest.quality is not None
    assert bundle.manifest.quality.waveform_distance == 0
    assert bundle.manifest.quality.logit_error > 0


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.INT8])
@pytest.mark.parametrize(
    ("name", "tensor", "what"),
    [
        ("llm.pt", "llm.encoders.0.self_attn.linear_pos.weight", "logits"),
        ("llm.pt", "llm_decoder.weight", "logits"),
        ("flow.pt", "decoder.estimator.final_proj.bias", "mel"),
        ("hift.pt", "f0_predictor.condnet.0.bias", "f0"),
        ("hift.pt", "ups.0.bias", "waveform"),
    ],
)
def test_weights_that_overflow_are_told(
    checkpoint: Path, tmp_path: Path, name: str, tensor: str, what: str, precision: Precision
):
    """A bundle that can't speak is not made, and the file that is the cause is named."""
    tensors = dict(read_torch_file(TINY / name))
    tensors[tensor] = np.full_like(tensors[tensor], 3e38)
    save_torch(checkpoint / name, tensors)

    with pytest.raises(ConfigurationError, match=f"{what} in float32 holds .*: {name} is damaged"):
        attempt(checkpoint, tmp_path / "bundle", precision)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_a_float32_bundle_has_a_float32_vocoder(tmp_path: Path):
    """A wish that can't be had is not left out in silence."""
    with pytest.raises(ConfigurationError, match="a float32 bundle has a float32 vocoder"):
        attempt(TINY, tmp_path / "bundle", vocoder=Precision.INT8)


def test_a_flipped_bit_is_found(checkpoint: Path, tmp_path: Path):
    """The archive has a checksum of every storage, and no comparison with float32 would show it."""
    content = bytearray((checkpoint / "flow.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / "flow.pt").write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"flow\.pt is cut.*has not the bytes"):
        attempt(checkpoint, tmp_path / "bundle")


def test_a_path_that_is_not_utf8_is_refused_before_the_work(tmp_path: Path):
    """Onnxruntime would open nothing there."""
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        attempt(TINY, tmp_path / os.fsdecode(b"\xff"))


@pytest.mark.parametrize("place", ["a" * 300, "b" * 250 + "/c" * 10, "d" * 300 + "/e"])
def test_names_that_are_too_long_are_told(tmp_path: Path, place: str):
    """With what helps, which is not more room."""
    (tmp_path / ("b" * 250)).touch()
    with pytest.raises(ConfigurationError, match=r"can't be written.*: name another place$"):
        attempt(TINY, tmp_path / place)


def test_a_checkpoint_whose_name_is_too_long_is_told(tmp_path: Path):
    """As every file that can't be read."""
    with pytest.raises(ConfigurationError, match="can't be read"):
        attempt(tmp_path / ("a" * 300), tmp_path / "bundle")


def test_no_pair_of_products_of_an_int7_bundle_exceeds_16_bits(tiny_int7: Bundle):
    """Wherever a byte is multiplied, so that processors without VNNI cut nothing."""
    peaks = {
        path.stem: int(np.abs(numpy_helper.to_array(tensor).astype(int)).max())
        for path in tiny_int7.directory.glob("*.onnx")
        for tensor in onnx.load(path).graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1
    }
    assert peaks.keys() == {"text_encoder", "language_model", "flow_encoder", "estimator", "hift"}
    assert all(2 * 255 * peak < 2**15 for peak in peaks.values())


def test_an_existing_directory_is_kept(checkpoint: Path, tmp_path: Path):
    """Conversion never writes over anything."""
    (tmp_path / "bundle").mkdir()

    with pytest.raises(ConfigurationError, match="exists"):
        attempt(checkpoint, tmp_path / "bundle")


def test_a_changed_file_is_found(tiny: Bundle, tmp_path: Path):
    """One changed byte of a table, a missing file and a longer one are told by name."""
    directory = Path(shutil.copytree(tiny.directory, tmp_path / "bundle"))
    table = directory / "voices.npy"
    content = bytearray(table.read_bytes())
    content[-1] ^= 1
    table.write_bytes(content)
    (directory / "hift.onnx").unlink()
    with (directory / "NOTICE").open("a") as file:
        file.write("more")

    checks = list(verify(open_bundle(directory)))

    assert {check.name for check in checks} == {"file voices.npy", "file hift.onnx", "file NOTICE"}
    assert not any(check.passed for check in checks)


@pytest.mark.parametrize("text", ["", "{}", '{"format_version": 2}'])
def test_a_manifest_of_another_release_is_refused(tmp_path: Path, text: str):
    """A manifest that this release can't read is refused with the way out."""
    (tmp_path / "manifest.json").write_text(text)

    with pytest.raises(ConfigurationError, match="convert the checkpoint again"):
        open_bundle(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("manifest.json", b'"heads": 4', b'"heads": 0'),
        ("manifest.json", b'"layers": 2', b'"layers": 9999999999'),
        ("manifest.json.sha256", b"", b"\xff"),
        ("manifest.json.sha256", b"manifest.json", b"other.json"),
    ],
)
def test_a_changed_manifest_is_refused(
    tiny: Bundle, tmp_path: Path, name: str, old: bytes, new: bytes
):
    """No dimension is believed that is not the conversion's."""
    directory = Path(shutil.copytree(tiny.directory, tmp_path / "bundle"))
    content = (directory / name).read_bytes()
    assert old in content
    (directory / name).write_bytes(content.replace(old, new, 1))

    with pytest.raises(ConfigurationError, match=r"is not what manifest\.json\.sha256 tells of"):
        open_bundle(directory)


def test_a_directory_without_a_manifest_is_no_bundle(tmp_path: Path):
    """The error says how to make one."""
    with pytest.raises(ConfigurationError, match="utterd bundle convert"):
        open_bundle(tmp_path)


@pytest.mark.parametrize(
    ("name", "shapes"), [("llm.pt", llm_shapes), ("flow.pt", flow_shapes), ("hift.pt", hift_shapes)]
)
def test_our_checkpoints_have_the_released_layout(name: str, shapes):
    """The maker of random checkpoints names every tensor of the release, with its shape."""
    released = json.loads((DATA / "full-size-shapes.json").read_text(encoding="utf-8"))[name]

    assert {key: list(shape) for key, shape in shapes(Dims()).items()} == released


@pytest.mark.parametrize(
    "name", ["", " ", "a/b", "a\\b", "..\\x", "x" * 129, "0", "english_male", "default"]
)
def test_a_voice_needs_a_name(checkpoint: Path, tmp_path: Path, name: str):
    """A voice whose name can't be typed, would be a path or means a preset is refused."""
    save_torch(checkpoint / "spk2info.pt", {name: {"embedding": np.ones((1, 192))}})

    with pytest.raises(ConfigurationError, match=r"spk2info\.pt: a voice can't have the name"):
        attempt(checkpoint, tmp_path / "bundle")


@pytest.mark.parametrize("name", ["\n", "\x1b[31m", "\u202e"])
def test_a_name_with_control_characters_is_refused(checkpoint: Path, tmp_path: Path, name: str):
    """Nothing in the file reaches a terminal as a control sequence."""
    save_torch(checkpoint / "spk2info.pt", {name: {"embedding": np.ones((1, 192))}})

    with pytest.raises(ConfigurationError, match=r"spk2info\.pt is refused") as refused:
        attempt(checkpoint, tmp_path / "bundle")

    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (np.full((1, 192), np.nan), "holds NaN, infinity"),
        (np.full((1, 192), np.inf), "holds NaN, infinity"),
        (np.full((1, 192), 3e38), "numbers beyond measure"),
        (np.ones((1, 191)), "no embedding of 192"),
        ("x" * 192, "no embedding of 192"),
    ],
)
def test_a_voice_needs_an_embedding(
    checkpoint: Path, tmp_path: Path, embedding: object, message: str
):
    """An embedding that is not finite, of another size or none at all is refused."""
    save_torch(checkpoint / "spk2info.pt", {"x": {"embedding": embedding}})

    with pytest.raises(ConfigurationError, match=message):
        attempt(checkpoint, tmp_path / "bundle")


def test_a_dangling_link_is_refused_before_the_work(checkpoint: Path, tmp_path: Path):
    """A link that leads nowhere is not written through, and nothing is computed first."""
    (tmp_path / "bundle").symlink_to(tmp_path / "nowhere")
    steps: list[str] = []

    with pytest.raises(ConfigurationError, match="exists"):
        convert(checkpoint, tmp_path / "bundle", precision=Precision.FLOAT32, report=steps.append)

    assert steps == []


def test_a_full_disk_is_told(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file that was being written is named with the cause, and nothing of it is left."""
    save = np.save

    def full(file: Path, *arguments: object) -> None:
        if file.name == "flow_tokens.npy":
            file.write_bytes(b"half")
            raise OSError("1024 requested and 0 written")
        save(file, *arguments)

    monkeypatch.setattr(np, "save", full)

    with pytest.raises(ConfigurationError, match=r"flow_tokens\.npy can't be written \(1024 requ"):
        attempt(checkpoint, tmp_path / "bundle")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_a_place_that_is_no_directory_is_told(checkpoint: Path, tmp_path: Path):
    """An output below a file is refused with the cause."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="can't be written"):
        attempt(checkpoint, tmp_path / "file" / "bundle")
