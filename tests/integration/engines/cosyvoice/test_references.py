"""References that are damaged, or of another checkpoint."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.cosyvoice import REFERENCE
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.verification import verify
from utterd.errors import ConfigurationError

Change = Callable[[NDArray[Any]], NDArray[Any]]


def changed(directory: Path, key: str, change: Change) -> Path:
    with np.load(REFERENCE) as reference:
        arrays = dict(reference)
    arrays[key] = change(arrays[key])
    np.savez(directory / "reference.npz", **arrays)
    return directory / "reference.npz"


def first_is(value: float) -> Change:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("key", "change", "name"),
    [
        ("lm0_logits", first_is(np.inf), "logits"),
        ("lm1_logits", first_is(np.nan), "logits"),
        ("hift_wav", lambda _array: np.full((1, 2), np.inf), "waveform"),
        ("hift_wav", first_is(1e9), "waveform"),
        ("flow0_mel", lambda array: array[:, :3], "mel"),
        ("flow0_mel", lambda array: array.astype(np.float64) * 1e300, "mel"),
        ("lm0_logits", lambda array: array.astype(complex), "logits"),
        ("lm0_logits", lambda array: array[:2].astype(str), "logits"),
        ("lm0_text_encoding", lambda array: array[0, 0, 0], "text encoding"),
    ],
)
def test_outputs_that_compare_with_nothing_are_faults(
    tiny_int8: Bundle, tmp_path: Path, key: str, change: Change, name: str
):
    """Infinities, NaN, huge numbers, other shapes and types never pass, however wide int8 is."""
    checks = list(verify(tiny_int8, changed(tmp_path, key, change)))

    assert [check.name for check in checks if not check.passed] == [name]


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("lm0_text_ids", lambda array: array + 60000, "outside of 0 to 51865"),
        ("lm0_text_ids", lambda array: array - 60000, "outside of 0 to 51865"),
        ("lm0_text_ids", lambda array: array.astype(float), "is float64 of shape"),
        ("lm0_text_ids", lambda array: array[:, :0], "has 0 token ids"),
        ("lm0_text_ids", lambda array: array[0], "not token ids of shape"),
        ("lm0_text_ids", lambda _array: np.zeros((1, 2000), int), "has 2000 token ids"),
        ("lm0_forced_tokens", lambda array: array[:0], "has 0 token ids"),
        ("lm0_forced_tokens", lambda array: array + 50000, "outside of 0 to 4095"),
        ("lm0_speaker", lambda _array: np.array("\x1b[31m"), "none of the bundle's voices"),
        ("flow0_tokens", lambda array: array + 50000, "outside of 0 to 4095"),
        ("flow0_noise", lambda array: array[:, :2], r"not float of shape \(1, 51, 80\)"),
        ("flow0_noise", first_is(np.nan), "flow0_noise holds NaN"),
        ("hift_mel", lambda array: array[:, :5], r"not float of shape \(1, 80, any\)"),
        ("hift_phase", lambda array: array[:1], r"not float of shape \(9, 1\)"),
        ("hift_source", lambda array: array[:, :, 0], "hift_source is float32"),
    ],
)
def test_inputs_that_no_stage_takes_are_named(
    tiny: Bundle, tmp_path: Path, key: str, change: Change, message: str
):
    """An input of another shape, type or range is refused by its name before a stage has it."""
    reference = changed(tmp_path, key, change)

    with pytest.raises(ConfigurationError, match=message):
        list(verify(tiny, reference))


def header_of_much() -> bytes:
    file, header = io.BytesIO(), io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    return file.getvalue()


def flipped() -> bytes:
    content = bytearray(REFERENCE.read_bytes())
    content[len(content) // 2] ^= 255
    return bytes(content)


def flipped_lzma() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", bytes(10_000))
    content = bytearray(file.getvalue())
    content[50] ^= 255
    return bytes(content)


def one_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        REFERENCE.read_bytes()[:500_000],
        flipped(),
        flipped_lzma(),
        one_array(),
        header_of_much(),
    ],
)
def test_a_damaged_reference_is_told_in_one_line(tiny: Bundle, tmp_path: Path, content: bytes):
    """A cut, changed or empty file, a lone array and a header that lies are refused by the path."""
    path = tmp_path / "reference.npz"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"reference\.npz is no \.npz") as refused:
        list(verify(tiny, path))

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("path", ["/dev/zero", "/"])
def test_a_reference_is_a_file(tiny: Bundle, path: str):
    """A device would be read to no end."""
    with pytest.raises(ConfigurationError, match="it is no file"):
        list(verify(tiny, Path(path)))
