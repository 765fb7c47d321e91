import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.cosyvoice import REFERENCE, TINY
from utterd.cli.exit_status import ExitStatus
from utterd.engines.cosyvoice.bundle import open_bundle
from utterd.engines.cosyvoice.conversion import convert

FLOAT32 = ("--precision", "float32")


def test_convert_and_verify(utterd, tmp_path: Path):
    """A converted checkpoint verifies against its reference, each stage on a line."""
    bundle = tmp_path / "bundle"

    made = utterd(
        "bundle", "convert", str(TINY), "-o", str(bundle), "--precision", "float32", "--json"
    )
    verified = utterd("bundle", "verify", str(bundle), "--reference", str(REFERENCE))

    assert made.status == ExitStatus.OK
    assert json.loads(made.out)["precision"] == "float32"
    assert json.loads(made.out)["peak_memory_bytes"] > 0
    assert verified.status == ExitStatus.OK
    assert [line.split()[0] for line in verified.out.splitlines()] == ["ok"] * 9
    assert "logits: differs by at most" in verified.out


def test_verify_fails_above_the_tolerance(utterd, tmp_path: Path):
    """A reference of another checkpoint gives a fault and the status 1."""
    bundle = tmp_path / "bundle"
    utterd("bundle", "convert", str(TINY), "-o", str(bundle), *FLOAT32)
    with np.load(REFERENCE) as reference:
        arrays = dict(reference)
    arrays["lm0_logits"] = arrays["lm0_logits"] + 1
    np.savez(tmp_path / "other.npz", **arrays)

    ran = utterd(
        "bundle", "verify", str(bundle), "--reference", str(tmp_path / "other.npz"), "--json"
    )

    assert ran.status == ExitStatus.FAILED
    checks = [json.loads(line) for line in ran.out.splitlines()]
    assert [check["name"] for check in checks if not check["passed"]] == ["logits"]


def test_a_missing_extra_is_named(utterd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Without onnx, convert says what to install."""
    for name in list(sys.modules):
        if name.startswith("utterd.engines.cosyvoice.conversion"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)

    ran = utterd("bundle", "convert", str(TINY), "-o", str(tmp_path / "bundle"))

    assert ran.status == ExitStatus.CONFIGURATION
    assert "pip install 'utterd[convert]'" in ran.err


def test_a_directory_that_is_no_checkpoint(utterd, tmp_path: Path):
    """An empty directory is refused with the files that it lacks."""
    ran = utterd("bundle", "convert", str(tmp_path), "-o", str(tmp_path / "bundle"))

    assert ran.status == ExitStatus.CONFIGURATION
    assert "lacks cosyvoice.yaml, llm.pt" in ran.err


def test_int8_is_judged(utterd, tmp_path: Path):
    """An int8 bundle is compared with float32, and the comparison is printed and kept."""
    bundle = tmp_path / "bundle"

    made = utterd("bundle", "convert", str(TINY), "-o", str(bundle))

    assert made.status == ExitStatus.OK
    assert "top1_agreement: 0." in made.out
    assert 0 < open_bundle(bundle).manifest.quality.logit_error < 0.05


def test_poor_int8_is_refused(utterd, tmp_path: Path):
    """Above a limit, convert says how far int8 is and what to do, and leaves nothing."""
    bundle = tmp_path / "bundle"
    strict = ("--limit", "mel_error=0.0001", "--limit", "top1_agreement=1")

    ran = utterd("bundle", "convert", str(TINY), "-o", str(bundle), *strict)

    assert ran.status == ExitStatus.CONFIGURATION
    assert "mel_error is" in ran.err
    assert "--limit mel_error=" in ran.err
    assert not bundle.exists()
    advised = re.findall(r"--limit \S+=\S+", ran.err)
    assert len(advised) == 2
    as_advised = utterd(
        *("bundle", "convert", str(TINY), "-o", str(bundle)),
        *(word for limit in advised for word in limit.split()),
    )
    assert as_advised.status == ExitStatus.OK


@pytest.mark.parametrize(
    "limit", ["mel_error=nan", "mel_error=-1", "mel_error", "mel_error=much", "noise=1"]
)
def test_a_limit_that_is_none(utterd, tmp_path: Path, limit: str):
    """A misspelt limit is a usage error, before any work is done."""
    ran = utterd("bundle", "convert", str(TINY), "-o", str(tmp_path / "b"), "--limit", limit)

    assert ran.status == ExitStatus.USAGE
    assert "--limit" in ran.err


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def number(request) -> Iterator[signal.Signals]:
    """A signal that ends a process; whoever runs the tests may have it ignored, as nohup does."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_stopped_conversion_leaves_nothing(
    utterd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
):
    """A signal in the middle of the work takes the scratch directory away."""
    found: list[list[str]] = []

    def stopped(*_arguments: object) -> None:
        found.append([path.name for path in tmp_path.iterdir()])
        signal.raise_signal(number)

    monkeypatch.setattr(convert, "write_voices", stopped)

    ran = utterd("bundle", "convert", str(TINY), "-o", str(tmp_path / "bundle"), *FLOAT32)

    assert ran.status == 128 + number
    assert len(found[0]) == 1
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) is signal.SIG_DFL
