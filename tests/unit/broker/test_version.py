"""The broker's version, and what depends on it."""

import pytest

from utterd.broker.version import counts_nacks, parse_version


@pytest.mark.parametrize(
    ("version", "number"),
    [("3.10.8", (3, 10)), ("4.3.0-rc.1", (4, 3)), ("5.0", (5, 0)), ("unknown", None), ("", None)],
)
def test_major_and_minor_count(version, number):
    """Nothing depends on patches, and what is no version is told as such."""
    assert parse_version(version) == number


@pytest.mark.parametrize(
    ("version", "counted"),
    [("3.10.8", True), ("4.0.5", True), ("4.2.9", True), ("4.3.0", False), ("10.0.0", False)],
)
def test_polite_returns_count_before_4_3(version, counted):
    """From then on the broker tells them from failures."""
    assert counts_nacks(version) is counted


def test_an_unknown_version_forgives_nothing():
    """The wait that this may cost is the smaller harm."""
    assert counts_nacks("unknown")
