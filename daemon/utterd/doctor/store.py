"""Whether the bucket takes, keeps and finds audio."""

from collections.abc import Iterator

from utterd.app import open_store
from utterd.config import StoreSettings
from utterd.doctor.finding import Finding, Findings, fault, ok, warning
from utterd.errors import ConfigurationError, StoreUnavailableError
from utterd.store.protocol import ConditionalPut, StoreCapabilities

_MAX_CONNECT_S = 3.0
_MAX_READ_S = 5.0

_NOTICEABLE_SKEW_S = 30.0
# S3 itself allows 15 minutes; the lesser servers' limit is 5.
_REFUSED_SKEW_S = 300.0

_UNCONDITIONAL = (
    "two daemons may write one object twice; it is the same audio, so this costs traffic only"
)


async def examine_store(settings: StoreSettings) -> Findings:
    """Look for, write and remove an object of a fresh name."""
    # Shorter than a daemon's: calls run in threads, and a thread can't be interrupted.
    limits = {
        "connect_timeout_s": min(settings.connect_timeout_s, _MAX_CONNECT_S),
        "read_timeout_s": min(settings.read_timeout_s, _MAX_READ_S),
    }
    try:
        async with open_store(settings.model_copy(update=limits)) as objects:
            capabilities = await objects.probe()
            where = objects.bucket
    except (StoreUnavailableError, ConfigurationError) as error:
        yield fault("access", str(error))
        return
    yield ok("access", f"{where} takes objects, and tells a missing one from a forbidden one")
    for finding in findings_of(capabilities, settings):
        yield finding


def findings_of(capabilities: StoreCapabilities, settings: StoreSettings) -> Iterator[Finding]:
    """What a store's capabilities mean for a daemon."""
    yield _conditional(capabilities.conditional_put)
    if settings.kind == "s3":
        yield _checksum(etag_is_md5=capabilities.etag_is_md5)
        yield _clock(capabilities.clock_skew_s)
    yield _delete(can_delete=capabilities.can_delete)
    if settings.presign_expires_s is not None and not capabilities.can_presign:
        yield warning("links", "the store makes none: unset store.presign_expires_s")


def _conditional(found: ConditionalPut) -> Finding:
    match found:
        case ConditionalPut.HONOURED:
            return ok("conditional write", "honoured")
        case ConditionalPut.UNANSWERED:
            return warning("conditional write", f"the server is silent: {_UNCONDITIONAL}")
        case _:
            return warning("conditional write", f"{found} by the server: {_UNCONDITIONAL}")


def _checksum(*, etag_is_md5: bool) -> Finding:
    if etag_is_md5:
        return ok("checksum", "Content-MD5 on the way there, and the ETag is compared")
    return ok("checksum", "Content-MD5 on the way there; the server's ETag is none and proves less")


def _clock(skew_s: float | None) -> Finding:
    if skew_s is None:
        return warning("clock", "the server tells no time, so the clocks can't be compared")
    says = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the server's"
    if abs(skew_s) >= _REFUSED_SKEW_S:
        return fault("clock", f"{says}: servers refuse such requests. Set the wrong one by NTP")
    if abs(skew_s) >= _NOTICEABLE_SKEW_S:
        return warning("clock", f"{says}: set the wrong one by NTP before requests are refused")
    return ok("clock", says)


def _delete(*, can_delete: bool) -> Finding:
    if can_delete:
        return ok("delete", "granted")
    return warning(
        "delete",
        "refused: each probe leaves an object of some bytes named utterd-probe-*. Grant"
        " s3:DeleteObject, or let a lifecycle rule remove them",
    )
