"""Whether settings make sense together."""

import pytest

from utterd.config import Settings
from utterd.doctor.finding import Verdict
from utterd.doctor.settings import examine_settings


async def found(**sections):
    settings = Settings.model_validate(sections)
    return {finding.check: finding async for finding in examine_settings(settings)}


async def test_the_defaults_are_fine():
    """Nothing to say about settings that nobody has changed."""
    findings = await found()
    assert {finding.verdict for finding in findings.values()} == {Verdict.OK}


async def test_a_voice_that_is_not_there_is_a_fault():
    """The daemon would not start; the message names the setting."""
    findings = await found(speech={"voice": "no/body"})
    assert findings["voices"].verdict is Verdict.FAULT
    assert "speech.voice" in findings["voices"].message


async def test_jobs_that_outlive_the_brokers_patience_are_a_fault():
    """The broker would take them away and deliver them again, without end."""
    findings = await found(speech={"job_timeout_s": 1440})
    assert findings["time limits"].verdict is Verdict.FAULT
    assert (
        "below four fifths of broker.limits.consumer_timeout_s" in findings["time limits"].message
    )


@pytest.mark.parametrize(
    ("url", "endpoint", "verdict"),
    [
        ("amqp://user:s3cr3t@rabbit.example/", "http://s3.example", Verdict.WARNING),
        ("amqps://user:s3cr3t@rabbit.example/", "https://s3.example", Verdict.OK),
        ("amqp://user:s3cr3t@localhost/", "http://127.0.0.1:9000", Verdict.OK),
        ("amqp://user:s3cr3t@[::1]/", "http://[::1]:9000", Verdict.OK),
    ],
)
async def test_what_is_sent_in_clear_is_a_warning(url, endpoint, verdict):
    """Only over a network, and without showing what is sent."""
    findings = await found(broker={"url": url}, store={"endpoint_url": endpoint})
    assert findings["broker.url"].verdict is verdict
    assert findings["store.endpoint_url"].verdict is verdict
    assert "s3cr3t" not in str(findings)
