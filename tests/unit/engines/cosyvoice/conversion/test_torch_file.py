import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support.cosyvoice import TINY
from support.torch_zip import save_torch
from utterd.engines.cosyvoice.conversion import torch_file
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


def test_a_global_is_named_by_text(tmp_path: Path):
    """Lists of lists by memo are a few bytes, and would be gigabytes in a message."""
    lists = b"]q\x00"
    for level in range(1, 20):
        lists += b"]q" + bytes([level]) + b"(" + (b"h" + bytes([level - 1])) * 10 + b"e"
    pickled = b"\x80\x04" + lists + b"\x8c\x01x\x93."

    with pytest.raises(ConfigurationError, match="something else than text"):
        read_torch_file(write_pickle(tmp_path / "x.pt", pickled))


def test_messages_are_short(tmp_path: Path):
    """What a file calls its globals is not printed to the end."""
    pickled = b"\x80\x02c" + b"m" * 1_000_000 + b"\nx\n."

    with pytest.raises(ConfigurationError) as refused:
        read_torch_file(write_pickle(tmp_path / "x.pt", pickled))

    assert len(str(refused.value)) < 1000


def test_a_name_that_stands_twice_is_refused(tmp_path: Path):
    """Nobody can tell which of the two is meant."""
    pickled = b"\x80\x02}(X\x01\0\0\0aK\x01X\x01\0\0\0aK\x02u."

    with pytest.raises(ConfigurationError, match="the name a stands in it twice"):
        read_torch_file(write_pickle(tmp_path / "x.pt", pickled))


def test_tensors_that_numpy_does_not_have_are_told(tmp_path: Path):
    """That is no reason to suspect the file."""
    pickled = b"\x80\x02ctorch\nBFloat16Storage\n."

    with pytest.raises(ConfigurationError, match="BFloat16Storage: save them as float32"):
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


def unicode(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def integer(number: int) -> bytes:
    return b"\x8a\x10" + number.to_bytes(16, "little", signed=True)


def items(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


STORAGE = items(
    unicode("storage"), b"ctorch\nFloatStorage\n", unicode("0"), unicode("cpu"), integer(4)
)


def tensor(
    storage: bytes, offset: int = 0, shape: tuple[int, ...] = (4,), stride: tuple[int, ...] = (1,)
) -> bytes:
    arguments = items(
        storage, integer(offset), items(*map(integer, shape)), items(*map(integer, stride))
    )
    return b"ctorch._utils\n_rebuild_tensor\n" + arguments + b"R"


def write_storage(path: Path, pickled: bytes, *, byteorder: bytes = b"little") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + pickled + b".")
        archive.writestr("x/byteorder", byteorder)
        archive.writestr("x/data/0", bytes(16))
    return path


def test_a_tensor_of_a_tensor_is_refused(tmp_path: Path):
    """A tensor that claims another as its storage reads no memory."""
    inner = tensor(STORAGE + b"Q", shape=(4,), stride=(0,))
    pickled = tensor(inner, shape=(192,), stride=(10**9,))

    with pytest.raises(ConfigurationError, match="something else than a storage"):
        read_torch_file(write_storage(tmp_path / "x.pt", pickled))


@pytest.mark.parametrize(
    ("offset", "shape", "stride"),
    [
        (0, (2**40,), (0,)),
        (0, (2**20, 2**20), (0, 0)),
        (0, (2,), (2**70,)),
        (2**100, (1,), (1,)),
        (3, (4,), (-1,)),
        (-1, (1,), (1,)),
        (0, (0, 2**100), (1, 1)),
        (0, (1,) * 9, (1,) * 9),
        (0, (4,), (1, 1)),
    ],
)
def test_sizes_are_checked_before_they_are_used(
    tmp_path: Path, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
):
    """Huge, negative and expanded sizes are refused, whatever they multiply to."""
    pickled = tensor(STORAGE + b"Q", offset, shape, stride)

    with pytest.raises(ConfigurationError, match="did not write it"):
        read_torch_file(write_storage(tmp_path / "x.pt", pickled))


@pytest.mark.parametrize(
    "pickled",
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n(N}" + unicode("__defaults__") + b"Nstb",
        b"ctorch\nFloatStorage\n]" + unicode("O") + b"ab",
        tensor(STORAGE + b"Q") + b"}b",
        b"}" + items(integer(1)) + b"Ns",
        b"}" + unicode("\x1b[31m") + b"Ns",
        b"}" + b"X\x03\x00\x00\x00\xed\xa0\x80" + b"Ns",
        b"(" + unicode("x") + b"ios\nsystem\n",
        b"\x8f",
    ],
)
def test_nothing_but_dicts_can_be_changed(tmp_path: Path, pickled: bytes):
    """State of functions, types and tensors, other keys than names and other instructions."""
    with pytest.raises(ConfigurationError, match="is refused"):
        read_torch_file(write_storage(tmp_path / "x.pt", pickled))


def test_attributes_of_a_state_dict_are_left_out(tmp_path: Path):
    """The metadata that torch hangs on a state dict changes nothing of it."""
    pickled = b"ccollections\nOrderedDict\n)R" + unicode("a") + b"Ns}" + unicode("items") + b"Nsb"

    assert read_torch_file(write_storage(tmp_path / "x.pt", pickled)) == {"a": None}


def test_small_members_are_small(tmp_path: Path):
    """A byte order of many bytes is refused and not read."""
    path = write_storage(tmp_path / "x.pt", b"}", byteorder=b"little" * 100)

    with pytest.raises(ConfigurationError, match="byteorder has 600 bytes"):
        read_torch_file(path)


def test_a_far_memo_takes_no_memory(tmp_path: Path):
    """A place in the memo may have any number."""
    path = write_storage(tmp_path / "x.pt", b"}r\xff\xff\xff\xff")

    assert read_torch_file(path) == {}


def test_a_pickle_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """More instructions than a checkpoint has are not followed."""
    monkeypatch.setattr(torch_file, "_MAX_INSTRUCTIONS", 10)

    with pytest.raises(ConfigurationError, match="more instructions"):
        read_torch_file(write_storage(tmp_path / "x.pt", b"]" + b"q\x00" * 10))


def test_a_directory_is_named(tmp_path: Path):
    """A directory in a file's place is told as what it is."""
    with pytest.raises(ConfigurationError, match="can't be read"):
        read_torch_file(tmp_path)
