"""Whether every format can be written here."""

from utterd.doctor.codecs import examine_codecs
from utterd.doctor.finding import Verdict
from utterd_schemas.audio import AudioFormat


async def test_each_format_is_tried():
    """All of them work where the project's own libraries are installed."""
    findings = [finding async for finding in examine_codecs()]
    assert [finding.check for finding in findings] == list(AudioFormat)
    assert {finding.verdict for finding in findings} == {Verdict.OK}
