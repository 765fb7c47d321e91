"""Connections to RabbitMQ: how to open one, and how to keep trying."""

import asyncio
import ssl
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import aio_pika
import structlog
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import AMQPException, InvalidFrameError
from yarl import URL

from utterd.backoff import FullJitter
from utterd.broker.lenient_decoding import decode_leniently
from utterd.config import BrokerSettings
from utterd.errors import BrokerUnavailableError, ConfigurationError, UtterdError
from utterd.small_file import read_small_file

log = structlog.get_logger(__name__)

BROKER_ERRORS = (AMQPException, OSError)
"""What aio-pika raises, inside `losses_raised`, when a broker can't be reached, refuses, or
breaks off."""


@contextmanager
def losses_raised() -> Iterator[None]:
    """Raise ConnectionError also where aio-pika tells of a lost connection in other ways.

    A call on a connection that is gone raises RuntimeError, and one that is under way when the
    connection goes raises CancelledError in a task that nobody has cancelled. The other way round,
    a task that somebody has cancelled ends so, also when its connection was lost at the same time
    and aio-pika, as it closes its channel, raises that in the cancellation's place.
    """
    try:
        yield
    except (RuntimeError, asyncio.CancelledError, *BROKER_ERRORS) as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        match error:
            case RuntimeError():
                raise ConnectionError("the connection is closed") from error
            case asyncio.CancelledError():
                raise ConnectionError("the connection was lost") from None
            case _:
                raise


async def connect(settings: BrokerSettings, name: str) -> AbstractConnection:
    """Open one connection.

    aio-pika's plain connection, not its robust one: that one restores consumers and channels
    behind our back, while a lost channel decides here what becomes of the deliveries in hand.

    Args:
        settings: where to.
        name: how the broker's own tools list it.

    Raises:
        BrokerUnavailableError: not reachable or not logged in within the time limit.
        ConfigurationError: the certificates of the settings can't be read.
    """
    decode_leniently()
    url = URL(settings.url.get_secret_value()).update_query(heartbeat=str(settings.heartbeat_s))
    try:
        with losses_raised():
            return await aio_pika.connect(
                url,
                ssl_context=tls_context(settings) if url.scheme == "amqps" else None,
                timeout=settings.connect_timeout_s,
                client_properties={
                    "connection_name": name,
                    "product": "utterd",
                    "version": version("utterd"),
                },
            )
    except BROKER_ERRORS as error:
        # aio-pika's connection closes itself when it is forgotten, for which it needs the loop that
        # now still runs; the traceback would keep it until later.
        traceback.clear_frames(error.__traceback__)
        raise BrokerUnavailableError(
            f"RabbitMQ at {address(settings)} can't be used: {_cause(error)}. Check that it runs,"
            " and that broker.url names the right host, user, password and virtual host"
        ) from error


def tls_context(settings: BrokerSettings) -> ssl.SSLContext:
    """How the broker's certificate is checked, and what it is shown.

    Raises:
        ConfigurationError: a file is not there, or holds no certificate or key that fits.
    """
    try:
        for file in (settings.tls_ca_file, settings.tls_certificate_file, settings.tls_key_file):
            if file is not None:
                # OpenSSL would wait for a pipe.
                read_small_file(file)
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
        if settings.tls_certificate_file is not None:
            context.load_cert_chain(
                settings.tls_certificate_file, settings.tls_key_file, password=_refuse_password
            )
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"broker.tls_…: {reason}. Check that the files are there, readable for the daemon, and"
            " PEM: authorities in tls_ca_file, certificate and key of the client in the others"
        ) from error
    return context


def _refuse_password() -> str:
    """Instead of OpenSSL's own question, which nobody at night would answer."""
    raise ValueError("the key is encrypted")


async def keep_connecting(
    settings: Callable[[], BrokerSettings],
    name: str,
    delays: FullJitter,
    on_failure: Callable[[UtterdError], None] | None = None,
) -> AbstractConnection:
    """Open a connection, however long it takes.

    Args:
        settings: where to; asked before each attempt, for they may change in an outage.
        name: how the broker's own tools list it.
        delays: waits between attempts.
        on_failure: told of each attempt that failed.
    """
    failures = 0
    while True:
        try:
            connection = await connect(settings(), name)
        # Certificates may be missing while somebody exchanges them.
        except (BrokerUnavailableError, ConfigurationError) as error:
            failures += 1
            log.warning("broker_unavailable", connection=name, failures=failures, reason=str(error))
            if on_failure is not None:
                on_failure(error)
            await delays.wait(failures)
        else:
            log.info("broker_connected", connection=name, broker=address(settings()))
            return connection


def check_certificates(settings: BrokerSettings) -> None:
    """Find out whether the files of the settings can be read.

    Raises:
        ConfigurationError: a file is not there, or holds no certificate or key that fits.
    """
    tls_context(settings)


def address(settings: BrokerSettings) -> str:
    """Host and port of the broker, without credentials."""
    url = URL(settings.url.get_secret_value())
    return f"{url.host}:{url.port or (5671 if url.scheme == 'amqps' else 5672)}"


def _cause(error: BaseException) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case InvalidFrameError():
            # The broker's reason is lost here: aiormq expected no refusal at this point.
            return "it refuses the virtual host, or is no RabbitMQ"
        case _:
            return str(error).rstrip(".") or type(error).__name__
