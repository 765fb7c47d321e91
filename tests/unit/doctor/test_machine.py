"""Whether this machine has room."""

import resource
import tempfile
from pathlib import Path

import pytest

from utterd.config import EngineSettings, Settings, StoreSettings
from utterd.doctor.finding import Verdict
from utterd.doctor.machine import examine_machine


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spool"


async def found(spool: Path, **sections):
    store = StoreSettings(spool_directory=spool, **sections.pop("store", {}))
    settings = Settings().model_copy(update={"store": store, **sections})
    return {finding.check: finding async for finding in examine_machine(settings)}


async def test_a_machine_with_room_is_fine(spool):
    """And nothing is made on it: a spool that is not there yet is no fault."""
    findings = await found(spool, store={"spool_max_bytes": 1024})
    assert {check: one.verdict for check, one in findings.items()} == dict.fromkeys(
        ("processor", "open files", "temporary files", "spool", "spooled audio"), Verdict.OK
    )
    assert not spool.parent.exists()


async def test_more_threads_than_cores_are_a_warning(spool):
    """They only wait for each other."""
    findings = await found(spool, engine=EngineSettings(workers=1024))
    assert findings["processor"].verdict is Verdict.WARNING


@pytest.fixture
def few_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    yield 128
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_too_few_open_files_are_a_fault(spool, few_open_files):
    """The daemon would fail in mid-work."""
    findings = await found(spool)
    assert findings["open files"].verdict is Verdict.FAULT
    assert f"the limit is {few_open_files}" in findings["open files"].message


async def test_a_disk_with_too_little_room_for_the_spool_is_a_warning(spool):
    """It is compared with what the spool may take."""
    findings = await found(spool, store={"spool_max_bytes": 2**62})
    assert findings["spool"].verdict is Verdict.WARNING


async def test_a_spool_in_a_file_is_a_fault(tmp_path):
    """Where a directory can't be made, no audio can wait."""
    (tmp_path / "file").write_bytes(b"")
    findings = await found(tmp_path / "file" / "spool")
    assert findings["spool"].verdict is Verdict.FAULT


async def test_audio_that_waits_is_a_warning(spool):
    """With how much it is, and what becomes of it."""
    (spool / "ab").mkdir(parents=True)
    (spool / "ab" / "one.wav").write_bytes(b"audio")
    (spool / "ab" / ".one.wav.json").write_bytes(b"{}")
    finding = (await found(spool))["spooled audio"]
    assert finding.verdict is Verdict.WARNING
    assert finding.message.startswith("1 files of 5 bytes wait")


async def test_no_place_for_temporary_files_is_a_fault(spool, monkeypatch):
    """Libraries look for one at the worst moment."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    assert (await found(spool))["temporary files"].verdict is Verdict.FAULT


async def test_a_directory_for_audio_is_looked_at_as_well(spool, tmp_path):
    """Only where audio is kept in one."""
    findings = await found(spool, store={"kind": "filesystem", "directory": tmp_path / "audio"})
    assert findings["audio"].verdict is Verdict.OK
