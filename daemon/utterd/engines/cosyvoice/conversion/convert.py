"""`utterd bundle convert`: an official directory becomes a bundle."""

import resource
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from utterd.engines.cosyvoice.bundle import TOKENIZER_NAME, Bundle, open_bundle
from utterd.engines.cosyvoice.conversion.checkpoint import (
    write_flow,
    write_hift,
    write_llm,
    write_voices,
)
from utterd.engines.cosyvoice.conversion.settings import read_settings
from utterd.engines.cosyvoice.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    FileFacts,
    Manifest,
    Precision,
)
from utterd.errors import ConfigurationError

CHECKPOINT_FILES = ("cosyvoice.yaml", "llm.pt", "flow.pt", "hift.pt", "spk2info.pt")
_ASSETS = (TOKENIZER_NAME, f"{TOKENIZER_NAME}.LICENSE", "NOTICE", "LICENSE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a conversion made and took.

    Attributes:
        bundle: the result.
        duration_s: wall time.
        peak_memory_bytes: the most that the process has held at any time.
    """

    bundle: Bundle
    duration_s: float
    peak_memory_bytes: int


def convert(
    checkpoint: Path,
    out: Path,
    *,
    precision: Precision,
    report: Callable[[str], None],
) -> Conversion:
    """Convert the directory of a checkpoint. `out` appears when all of it has been written.

    Args:
        checkpoint: a directory with `CHECKPOINT_FILES`.
        out: the directory to make; it must not exist.
        precision: of the large matrix products.
        report: called with a few words at the start of each step.

    Raises:
        ConfigurationError: a file is missing, damaged or of another model, or `out` exists.
    """
    started_s = time.monotonic()
    missing = [name for name in CHECKPOINT_FILES if not (checkpoint / name).is_file()]
    if missing:
        raise ConfigurationError(
            f"{checkpoint} lacks {', '.join(missing)}: name the directory of CosyVoice-300M-SFT as"
            " it was released"
        )
    if out.exists():
        raise ConfigurationError(f"{out} exists: name a new directory, or remove it first")
    settings = read_settings(checkpoint / "cosyvoice.yaml")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as made_in:
        staged = Path(made_in) / "bundle"
        staged.mkdir()
        report("language model")
        llm = write_llm(checkpoint, settings, precision, staged)
        report("flow")
        flow = write_flow(checkpoint, settings, precision, staged)
        report("vocoder")
        vocoder = write_hift(checkpoint, settings, staged)
        report("voices")
        voices = write_voices(checkpoint, llm.speaker_width, staged)
        _copy_assets(staged)
        report("digests")
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            model="CosyVoice-300M-SFT",
            precision=precision,
            speaker_width=llm.speaker_width,
            voices=voices,
            text_vocabulary=llm.text_vocabulary,
            text_encoder=llm.text_encoder,
            language_model=llm.language_model,
            flow=flow,
            vocoder=vocoder,
            quality=None,
            files=_facts(staged),
        )
        (staged / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        staged.rename(out)
    return Conversion(
        bundle=open_bundle(out),
        duration_s=time.monotonic() - started_s,
        peak_memory_bytes=_peak_memory_bytes(),
    )


def _copy_assets(out: Path) -> None:
    for name in _ASSETS:
        with as_file(files("utterd.engines.cosyvoice").joinpath("assets", name)) as path:
            shutil.copyfile(path, out / name)


def _facts(directory: Path) -> dict[str, FileFacts]:
    facts = {}
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        facts[path.name] = FileFacts(sha256=digest, size_bytes=path.stat().st_size)
    return facts


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024
