"""What the broker's version means for a daemon."""

from utterd.broker.version import FORGIVES_NACKS, parse_version
from utterd.config import QueueLimits
from utterd.doctor.finding import Finding, fault, ok, warning

_OLDEST = (3, 10)
_OBEYS_CONSUMER_TIMEOUT = (3, 12)

_NODES_OWN_TIMEOUT_S = 1800
_FEW_DELIVERIES = 20


def version_finding(version: str, limits: QueueLimits) -> Finding:
    """Whether these limits work on this version.

    Args:
        version: such as `3.10.8`.
        limits: arguments of the job queues.
    """
    number = parse_version(version)
    if number is None:
        return warning("version", f"{version} is no version of RabbitMQ that utterd knows")
    if number < _OLDEST:
        return fault(
            "version",
            f"{version} can't dead-letter at least once, and may lose jobs: use 3.10 or newer",
        )
    if number < _OBEYS_CONSUMER_TIMEOUT and limits.consumer_timeout_s != _NODES_OWN_TIMEOUT_S:
        return warning(
            "version",
            f"before 3.12, broker.limits.consumer_timeout_s is not obeyed: set consumer_timeout ="
            f" {limits.consumer_timeout_s * 1000} in rabbitmq.conf",
        )
    if number < FORGIVES_NACKS and limits.delivery_limit < _FEW_DELIVERIES:
        return warning(
            "version",
            "before 4.3, a job that is politely given back has used up one delivery, also at each"
            " pause and stop of a daemon: set broker.limits.delivery_limit to"
            f" {_FEW_DELIVERIES} or more",
        )
    return ok("version", f"{version} does all that these settings need")
