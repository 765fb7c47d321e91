import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support.cosyvoice import TINY
from support.torch_zip import save_torch
from utterd.engines.cosyvoice.conversion.torch_file import read_torch_file
from utterd.errors import ConfigurationError


class Hostile:
    """Runs a command when an ordinary unpickler meets it."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> object:
        return os.system, (self._command,)


def write_pickle(path: Path, pickled: bytes, *, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x/data.pkl", pickled)
        archive.writestr("x/byteorder", "little")
    return path


def test_tensors_come_back_as_they_were(tmp_path: Path):
    """A saved structure is read with the same names, shapes and numbers."""
    saved = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": {"c": np.ones(1), "n": 3}}
    save_torch(tmp_path / "x.pt", saved)

    read = read_torch_file(tmp_path / "x.pt")

    assert isinstance(read, dict)
    assert np.array_equal(read["a"], saved["a"])
    assert read["b"]["n"] == 3
    assert not read["a"].flags.writeable


def test_a_real_file_of_torch_is_read():
    """A file that torch itself wrote has its voices and their embeddings."""
    voices = read_torch_file(TINY / "spk2info.pt")

    assert isinstance(voices, dict)
    assert len(voices) == 7
    assert voices["中文女"]["embedding"].shape == (1, 192)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path):
    """A pickle that names anything but tensors is refused before it is called."""
    witness = tmp_path / "witness"
    path = write_pickle(tmp_path / "x.pt", pickle.dumps(Hostile(f"touch {witness}"), protocol=2))

    with pytest.raises(ConfigurationError, match=r"posix\.system.*use the released file"):
        read_torch_file(path)

    assert not witness.exists()


@pytest.mark.parametrize(
    "name", ["builtins eval", "torch._utils _import_dotted_name", "torch load", "numpy.core x"]
)
def test_other_globals_are_refused(tmp_path: Path, name: str):
    """Globals near to the allowed ones are refused by their name."""
    module, _, attribute = name.partition(" ")
    pickled = b"\x80\x02c" + f"{module}\n{attribute}\n".encode() + b"."

    with pytest.raises(ConfigurationError, match=f"{module}.{attribute}"):
        read_torch_file(write_pickle(tmp_path / "x.pt", pickled))


def test_a_tensor_past_its_storage_is_refused(tmp_path: Path):
    """A shape larger than the storage reads no memory beyond it."""
    path = tmp_path / "x.pt"
    save_torch(path, {"a": np.zeros(4, np.float32)})
    with zipfile.ZipFile(path) as archive:
        pickled = archive.read("x/data.pkl")
    # The shape (4,) and the stride (1,) follow each other; the shape becomes (200,).
    changed = pickled.replace(b"K\x04\x85", b"K\xc8\x85")
    assert changed != pickled
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", changed)
        archive.writestr("x/data/0", bytes(16))

    with pytest.raises(ConfigurationError, match="past its storage"):
        read_torch_file(path)


def test_a_missing_file_is_named(tmp_path: Path):
    """The error of a missing file names it."""
    with pytest.raises(ConfigurationError, match=r"llm\.pt is missing"):
        read_torch_file(tmp_path / "llm.pt")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_cut_file_is_named(tmp_path: Path, share: float):
    """A truncated file is refused by its name, wherever it was cut."""
    whole = (TINY / "spk2info.pt").read_bytes()
    path = tmp_path / "spk2info.pt"
    path.write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(ConfigurationError, match=r"spk2info\.pt is cut"):
        read_torch_file(path)


def test_compressed_storages_are_refused(tmp_path: Path):
    """A storage that would be inflated is refused, for torch writes none."""
    path = tmp_path / "x.pt"
    save_torch(path, {"a": np.zeros(64, np.float32)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)

    with pytest.raises(ConfigurationError, match="compressed"):
        read_torch_file(path)


def test_bytes_that_are_no_archive_are_refused(tmp_path: Path):
    """A bare pickle, as old releases of torch wrote, is refused with the way out."""
    path = tmp_path / "x.pt"
    path.write_bytes(pickle.dumps({"a": 1}))

    with pytest.raises(ConfigurationError, match=r"torch 1\.6 or newer"):
        read_torch_file(path)
