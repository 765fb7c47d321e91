import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.topology import (
    DEAD_ROUTING_KEY,
    LAPSED_ROUTING_KEY,
    retry_tier,
    routing_key,
    topology,
)
from utterd.config import BrokerSettings, Lane, QueueLimits

PLAN = topology(BrokerSettings())
QUEUES = {queue.name: queue.arguments for queue in PLAN.queues}


def bindings_to(queue: str) -> set[tuple[str, str]]:
    return {(one.exchange, one.routing_key) for one in PLAN.bindings if one.queue == queue}


def test_names_are_the_documented_ones():
    """Publishers and operators rely on the names."""
    assert [exchange.name for exchange in PLAN.exchanges] == [
        "tts.unrouted",
        "tts.events",
        "tts.retry",
        "tts.dead",
        "tts.control",
        "tts.jobs",
    ]
    assert list(QUEUES) == [
        "tts.dead",
        "tts.lapsed",
        "tts.jobs.interactive",
        "tts.jobs.batch",
        "tts.retry.10s",
        "tts.retry.60s",
        "tts.retry.600s",
    ]


def test_all_queues_are_quorum_queues():
    """Only those count deliveries, and they are durable by nature."""
    assert all(arguments["x-queue-type"] == "quorum" for arguments in QUEUES.values())


@pytest.mark.parametrize("lane", list(Lane))
def test_a_lane_is_fenced(lane):
    """Length, deliveries and unsettled time are bounded, and nothing is dropped on the way."""
    limits = BrokerSettings().limits
    assert QUEUES[BrokerSettings().queues.of_lane(lane)] == {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "tts.dead",
        "x-dead-letter-routing-key": "lapsed",
        "x-delivery-limit": limits.delivery_limit,
        "x-max-length": limits.max_length,
        "x-consumer-timeout": limits.consumer_timeout_s * 1000,
    }
    assert bindings_to(BrokerSettings().queues.of_lane(lane)) == {
        ("tts.jobs", f"synthesize.{lane}")
    }


def test_what_lapses_again_is_dead():
    """What can't even be told of ends among the dead; nothing goes round in circles."""
    limits = BrokerSettings().limits
    assert QUEUES["tts.lapsed"] == {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "tts.dead",
        "x-dead-letter-routing-key": DEAD_ROUTING_KEY,
        "x-delivery-limit": limits.delivery_limit,
        "x-consumer-timeout": limits.consumer_timeout_s * 1000,
    }
    assert bindings_to("tts.lapsed") == {("tts.dead", LAPSED_ROUTING_KEY)}


def test_a_retry_comes_back_to_its_lane():
    """A retry queue leads to the job exchange after its delay, under the job's own key."""
    assert QUEUES["tts.retry.60s"]["x-message-ttl"] == 60_000
    assert QUEUES["tts.retry.60s"]["x-dead-letter-exchange"] == "tts.jobs"
    assert "x-dead-letter-routing-key" not in QUEUES["tts.retry.60s"]
    assert bindings_to("tts.retry.60s") == {("tts.retry", retry_tier(60))}


def test_the_dead_and_the_unrouted_lie_in_one_queue():
    """A job that fits no lane is kept, not dropped."""
    assert bindings_to("tts.dead") == {("tts.dead", DEAD_ROUTING_KEY), ("tts.unrouted", "")}
    (jobs,) = (exchange for exchange in PLAN.exchanges if exchange.name == "tts.jobs")
    assert jobs.arguments == {"alternate-exchange": "tts.unrouted"}


@given(delays_s=st.lists(st.integers(1, 86_400), unique=True, max_size=6).map(tuple))
def test_everything_bound_is_declared_before(delays_s):
    """Whatever the settings, bindings and arguments name only what the plan declares."""
    limits = QueueLimits(retry_delays_s=delays_s)
    plan = topology(BrokerSettings(limits=limits))
    exchanges = {exchange.name for exchange in plan.exchanges}
    queues = {queue.name for queue in plan.queues}
    assert len(queues) == len(plan.queues) == len(delays_s) + len(Lane) + 2
    assert {binding.exchange for binding in plan.bindings} <= exchanges
    assert {binding.queue for binding in plan.bindings} == queues
    for one in (*plan.exchanges, *plan.queues):
        for name in ("x-dead-letter-exchange", "alternate-exchange"):
            assert one.arguments.get(name, "tts.jobs") in exchanges


@pytest.mark.parametrize("queue", PLAN.queues, ids=lambda queue: queue.name)
def test_at_least_once_needs_reject_publish(queue):
    """RabbitMQ falls back to at-most-once in silence where the pair is broken."""
    if queue.arguments.get("x-dead-letter-strategy") == "at-least-once":
        assert queue.arguments["x-overflow"] == "reject-publish"


def test_routing_keys_name_the_lane():
    """What a publisher chooses between."""
    assert [routing_key(lane) for lane in Lane] == ["synthesize.interactive", "synthesize.batch"]
