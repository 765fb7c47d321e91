import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from utterd.broker.hold_off import HoldOff
from utterd.config import Settings
from utterd.environment import Environment
from utterd.interruptions import Interruptions
from utterd.monitor import Monitor
from utterd.ops.metrics import Metrics
from utterd.settings_sources import environment_name, setting_paths
from utterd.supervision import watch_gauges

DOCKER = Path(__file__).parents[3] / "docker"

ENERGY = {"utterd_energy_joules"}
"""Only where the kernel shows its counters."""


class Slots:
    slots, busy, waiting, pids = 1, 0, 0, ()


@pytest.fixture(scope="module")
def metric_names():
    metrics = Metrics()
    monitor = Monitor(
        slots=Slots(),
        environment=Environment(),
        interruptions=Interruptions(),
        stop=asyncio.Event(),
        broker="",
        lanes=(),
        max_work_s=1.0,
        hold_off=HoldOff(),
    )
    watch_gauges(monitor, metrics)
    return {family.name for family in metrics.registry.collect()} | ENERGY


def names_in(expressions):
    found = {name for text in expressions for name in re.findall(r"\butterd_[a-z_]+", text)}
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in found}


def test_alerts_ask_for_metrics_that_there_are(metric_names):
    """An alert on a name that nobody exports stays silent for ever."""
    rules = yaml.safe_load((DOCKER / "prometheus" / "alerts.yaml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert names_in(expressions) <= metric_names
    assert names_in(expressions)


def test_the_dashboard_asks_for_metrics_that_there_are(metric_names):
    """A panel on a name that nobody exports stays empty."""
    dashboard = json.loads((DOCKER / "grafana" / "dashboards" / "utterd.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert names_in(expressions) <= metric_names


def settings_in(path):
    return set(re.findall(r"\b(UTTERD_[A-Z0-9_]+)", path.read_text()))


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "kubernetes/utterd.yaml"])
def test_containers_are_given_settings_that_there_are(name):
    """An unknown name would end the daemon with status 78."""
    known = {environment_name(path) for path in setting_paths(Settings)}
    assert settings_in(DOCKER / name) <= known


def test_the_grace_of_a_pod_is_longer_than_the_drain():
    """Otherwise jobs in hand would be cut off in the middle of their last sentence."""
    documents = list(yaml.safe_load_all((DOCKER / "kubernetes" / "utterd.yaml").read_text()))
    by_kind = {document["kind"]: document for document in documents}
    drain_s = float(by_kind["ConfigMap"]["data"]["UTTERD_LIFECYCLE__DRAIN_TIMEOUT_S"])
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > drain_s
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    grace = compose["services"]["utterd-1"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) > Settings().lifecycle.drain_timeout_s
