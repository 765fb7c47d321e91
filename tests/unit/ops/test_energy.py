import pytest

from utterd.ops.energy import EnergyCollector


@pytest.fixture
def package(tmp_path):
    """A processor package as the kernel shows it, with a part of it beside."""
    zone = tmp_path / "intel-rapl:0"
    for folder, microjoules in ((zone, 1_000_000), (tmp_path / "intel-rapl:0:0", 7)):
        folder.mkdir()
        (folder / "energy_uj").write_text(f"{microjoules}\n")
        (folder / "max_energy_range_uj").write_text("5000000\n")
    return zone / "energy_uj"


def joules(collector):
    return {
        sample.labels["package"]: sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_only_what_was_used_since_the_start_counts(tmp_path, package):
    """The kernel counts from the machine's start, and a package's parts lie within it."""
    collector = EnergyCollector(tmp_path)
    package.write_text("3500000\n")
    assert joules(collector) == {"0": 2.5}


def test_a_counter_that_wraps_around_goes_on(tmp_path, package):
    """It starts again at zero after its range."""
    collector = EnergyCollector(tmp_path)
    package.write_text("200000\n")
    assert joules(collector) == {"0": pytest.approx(4.2)}


def test_without_a_readable_counter_there_is_no_metric(tmp_path):
    """A zero would look like a measurement."""
    assert list(EnergyCollector(tmp_path).collect()) == []
    assert not EnergyCollector(tmp_path / "absent").is_readable
