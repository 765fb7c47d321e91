"""What versions of RabbitMQ mean, by the version that each gives when one connects."""

import pytest

from utterd.config import QueueLimits
from utterd.doctor.broker_version import version_finding
from utterd.doctor.finding import Verdict


@pytest.mark.parametrize("version", ["3.10.8", "3.13.7", "4.0.5", "4.3.0", "4.10.0-rc.1", "5.0.0"])
def test_the_default_limits_work_everywhere(version):
    """From Debian 12's on."""
    assert version_finding(version, QueueLimits()).verdict is Verdict.OK


@pytest.mark.parametrize("version", ["3.9.13", "2.8.7"])
def test_what_can_lose_jobs_is_a_fault(version):
    """At-least-once dead-lettering came with 3.10."""
    finding = version_finding(version, QueueLimits())
    assert finding.verdict is Verdict.FAULT
    assert "3.10 or newer" in finding.message


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("3.10.8", Verdict.WARNING), ("3.11.28", Verdict.WARNING), ("3.12.0", Verdict.OK)],
)
def test_old_brokers_do_not_obey_a_queues_consumer_timeout(version, verdict):
    """It matters where the setting is not the node's own default."""
    finding = version_finding(version, QueueLimits(consumer_timeout_s=7200))
    assert finding.verdict is verdict
    assert ("consumer_timeout = 7200000" in finding.message) == (verdict is Verdict.WARNING)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("3.13.7", Verdict.WARNING), ("4.2.1", Verdict.WARNING), ("4.3.0", Verdict.OK)],
)
def test_polite_returns_count_before_4_3(version, verdict):
    """It matters where few deliveries are allowed."""
    assert version_finding(version, QueueLimits(delivery_limit=3)).verdict is verdict


@pytest.mark.parametrize("version", ["unknown", "", "latest"])
def test_a_version_that_is_none_is_a_warning(version):
    """Some other broker may do as well."""
    assert version_finding(version, QueueLimits()).verdict is Verdict.WARNING
