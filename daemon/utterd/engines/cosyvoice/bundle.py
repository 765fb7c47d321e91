"""A bundle: a directory of graphs, tables, tokenizer and voices, described by its manifest.

Everything that decides how the voice sounds is in the manifest by its SHA-256, so the manifest's
own digest stands for the bundle. That one lies beside it, as `sha256sum` writes it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from utterd.engines.cosyvoice.manifest import FORMAT_VERSION, MANIFEST_NAME, Manifest
from utterd.errors import ConfigurationError

TOKENIZER_NAME = "multilingual.tiktoken"
_SEAL_NAME = f"{MANIFEST_NAME}.sha256"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoicePrompt:
    """A voice: a speaker embedding, and for a zero-shot voice what its recording said.

    Attributes:
        speaker: float32, shape (192,).
        text_tokens: int64, shape (n,), the recording's text.
        speech_tokens: int64, shape (p,), the recording's speech tokens.
        mel: float32, shape (m, mel bins), the recording's mel.
    """

    speaker: NDArray[np.float32]
    text_tokens: NDArray[np.int64]
    speech_tokens: NDArray[np.int64]
    mel: NDArray[np.float32]


@dataclass(frozen=True)
class Bundle:
    """An opened bundle; its files are read when they are asked for.

    Attributes:
        directory: where it lies.
        manifest: what it says of itself.
        digest: SHA-256 of the manifest.
    """

    directory: Path
    manifest: Manifest
    digest: str

    def graph(self, name: str) -> Path:
        """The file of one ONNX graph."""
        return self._file(f"{name}.onnx")

    def table(self, name: str) -> NDArray[Any]:
        """One array, mapped: only the pages that are used take memory."""
        path = self._file(f"{name}.npy")
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, SyntaxError, TokenError) as error:
            raise ConfigurationError(
                f"{path} is cut or no array ({error}): convert the bundle again"
            ) from error
        # A slice of numpy's own class for it costs ten times as much.
        return np.asarray(mapped)

    @property
    def tokenizer(self) -> Path:
        """The ranks of the text tokenizer, as tiktoken writes them."""
        return self._file(TOKENIZER_NAME)

    @cached_property
    def voices(self) -> dict[str, VoicePrompt]:
        """The preset voices by name."""
        embeddings = np.array(self.table("voices"), dtype=np.float32)
        return {
            name: preset_voice(embedding, self.manifest.flow.mel_bins)
            for name, embedding in zip(self.manifest.voices, embeddings, strict=True)
        }

    def _file(self, name: str) -> Path:
        path = self.directory / name
        if name not in self.manifest.files or not path.is_file():
            raise ConfigurationError(f"{path} is missing: convert the bundle again")
        return path


def preset_voice(speaker: NDArray[np.float32], mel_bins: int) -> VoicePrompt:
    """A voice that is an embedding alone, as the checkpoint's presets are."""
    return VoicePrompt(
        speaker=speaker,
        text_tokens=np.empty(0, np.int64),
        speech_tokens=np.empty(0, np.int64),
        mel=np.empty((0, mel_bins), np.float32),
    )


def require_utf8_path(directory: Path) -> None:
    """Raise `ConfigurationError` if onnxruntime can't open files there."""
    try:
        os.fspath(directory).encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{os.fspath(directory)!a} is not UTF-8, and onnxruntime opens nothing there: name"
            " another place"
        ) from error


def open_bundle(directory: Path) -> Bundle:
    """Read a bundle's manifest. Digests of files are left to `verify_files`, for they take time.

    Raises:
        ConfigurationError: there is no bundle, another release of utterd made it, or its manifest
            was changed.
    """
    require_utf8_path(directory)
    path, seal = directory / MANIFEST_NAME, directory / _SEAL_NAME
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{directory} is no bundle, {MANIFEST_NAME} can't be read ({error.strerror}): make one"
            " with `utterd bundle convert`"
        ) from error
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigurationError(
            f"{path} is not of format {FORMAT_VERSION} ({place}: {first['msg']}): convert the"
            " checkpoint again with this release"
        ) from error
    digest = sha256(text).hexdigest()
    try:
        is_sealed = seal.read_text(encoding="utf-8") == _seal_of(digest)
    except (OSError, UnicodeDecodeError):
        is_sealed = False
    if not is_sealed:
        raise ConfigurationError(
            f"{path} is not what {seal.name} tells of: copy both files again, or convert the"
            " checkpoint again"
        )
    return Bundle(directory, manifest, digest)


def write_manifest(directory: Path, manifest: Manifest) -> Bundle:
    """Make a bundle of a directory that holds all its files."""
    text = manifest.model_dump_json(indent=2).encode()
    (directory / MANIFEST_NAME).write_bytes(text)
    (directory / _SEAL_NAME).write_text(_seal_of(sha256(text).hexdigest()), encoding="utf-8")
    return open_bundle(directory)


def _seal_of(digest: str) -> str:
    return f"{digest}  {MANIFEST_NAME}\n"


def verify_files(bundle: Bundle) -> Iterator[tuple[str, str | None]]:
    """Compare every file with its digest: its name, and what is wrong with it or None."""
    for name, facts in bundle.manifest.files.items():
        path = bundle.directory / name
        try:
            size = path.stat().st_size
            if size != facts.size_bytes:
                yield name, f"has {size} bytes, not {facts.size_bytes}: convert the bundle again"
                continue
            with path.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            yield name, f"can't be read ({error.strerror}): convert the bundle again"
            continue
        yield (
            name,
            None if digest == facts.sha256 else "was changed after conversion: convert it again",
        )
