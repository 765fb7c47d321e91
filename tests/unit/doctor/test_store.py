"""What a store's capabilities mean."""

from pathlib import Path

import pytest

from utterd.config import StoreSettings
from utterd.doctor.finding import Verdict
from utterd.doctor.store import examine_store, findings_of
from utterd.store.protocol import ConditionalPut, StoreCapabilities

BEST = {
    "conditional_put": ConditionalPut.HONOURED,
    "etag_is_md5": True,
    "can_delete": True,
    "can_presign": True,
    "clock_skew_s": 0.0,
}


def found(settings=None, **capabilities):
    able = StoreCapabilities(**BEST | capabilities)
    return {one.check: one for one in findings_of(able, settings or StoreSettings())}


def test_a_store_that_can_everything_is_fine():
    """Nothing to do."""
    assert {finding.verdict for finding in found().values()} == {Verdict.OK}


@pytest.mark.parametrize("condition", sorted(set(ConditionalPut) - {ConditionalPut.HONOURED}))
def test_writes_without_a_condition_are_a_warning(condition):
    """They cost traffic, and the message says that they cost no more."""
    finding = found(conditional_put=condition)["conditional write"]
    assert finding.verdict is Verdict.WARNING
    assert "the same audio" in finding.message


@pytest.mark.parametrize(
    ("skew_s", "verdict", "words"),
    [
        (1.0, Verdict.OK, "1 s ahead of"),
        (-29.0, Verdict.OK, "29 s behind"),
        (60.0, Verdict.WARNING, "60 s ahead of"),
        (-400.0, Verdict.FAULT, "400 s behind"),
        (None, Verdict.WARNING, "no time"),
    ],
)
def test_clocks_that_differ_are_reported_before_requests_are_refused(skew_s, verdict, words):
    """From half a minute on, and as a fault from the least limit of the servers."""
    finding = found(clock_skew_s=skew_s)["clock"]
    assert finding.verdict is verdict
    assert words in finding.message


def test_probes_that_stay_are_a_warning():
    """The right to delete is not needed for work."""
    assert found(can_delete=False)["delete"].verdict is Verdict.WARNING


def test_links_that_nobody_makes_are_a_warning():
    """Only where the settings ask for them."""
    settings = StoreSettings(presign_expires_s=60)
    assert found(settings, can_presign=False)["links"].verdict is Verdict.WARNING
    assert "links" not in found(can_presign=False)


async def test_a_directory_is_a_store_without_clock_and_checksum(tmp_path: Path):
    """It is written to, and nothing is left in it."""
    settings = StoreSettings(kind="filesystem", directory=tmp_path / "audio")
    findings = [one async for one in examine_store(settings)]
    assert [(one.check, one.verdict) for one in findings] == [
        ("access", Verdict.OK),
        ("conditional write", Verdict.OK),
        ("delete", Verdict.OK),
    ]
    assert [path.name for path in settings.directory.rglob("*")] == [".lock"]


async def test_a_store_that_is_not_there_is_one_fault():
    """The reason ends the group: nothing else can be tried."""
    settings = StoreSettings(
        endpoint_url="http://127.0.0.1:1", access_key_id="id", secret_access_key="s3cr3t"
    )
    (finding,) = [one async for one in examine_store(settings)]
    assert finding.verdict is Verdict.FAULT
    assert "start the server" in finding.message
    assert "s3cr3t" not in finding.message
