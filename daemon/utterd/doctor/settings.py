"""Whether the settings make sense together."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from utterd.app import make_planner
from utterd.config import Settings
from utterd.doctor.finding import Finding, Findings, fault, ok, warning
from utterd.errors import ConfigurationError


async def examine_settings(settings: Settings) -> Findings:
    """Names that must exist, limits that depend on each other, and secrets on the wire."""
    yield _voices(settings)
    yield _time_limits(settings)
    yield _wire("broker.url", settings.broker.url.get_secret_value(), "amqp", "amqps")
    if settings.store.kind == "s3" and settings.store.endpoint_url:
        yield _wire("store.endpoint_url", settings.store.endpoint_url, "http", "https")


def _voices(settings: Settings) -> Finding:
    try:
        planner = make_planner(settings)
    except ConfigurationError as error:
        return fault("voices", str(error))
    return ok("voices", f"{planner.default_voice} and {len(planner.aliases)} aliases are there")


def _time_limits(settings: Settings) -> Finding:
    job_s, whole_s = settings.speech.job_timeout_s, settings.broker.limits.work_timeout_s
    if job_s >= whole_s:
        return fault(
            "time limits",
            f"slots may work on a job for {job_s:g} s, but after {whole_s:g} s in all it ends, so"
            " that the broker does not take it away: set speech.job_timeout_s below four fifths of"
            " broker.limits.consumer_timeout_s",
        )
    return ok("time limits", f"slots have {job_s:g} s for a job, the whole of it {whole_s:g} s")


def _wire(setting: str, url: str, plain: str, encrypted: str) -> Finding:
    parts = urlsplit(url)
    if parts.scheme == plain and not _is_loopback(parts.hostname or ""):
        return warning(
            setting,
            f"{plain}:// sends everything in clear over the network: use {encrypted}://, or be"
            " sure of the network",
        )
    return ok(setting, "encrypted" if parts.scheme == encrypted else "stays on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
