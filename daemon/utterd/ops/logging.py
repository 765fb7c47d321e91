"""Sets structlog up: one line an event, on standard error, never a job's text."""

import logging
import sys
import traceback
from collections.abc import Iterator, Mapping

import structlog
from structlog.typing import EventDict, Processor

from utterd.config import LogSettings

_OURS = "utterd"


def configure_logging(settings: LogSettings) -> None:
    """Send all logs, structlog's and the standard library's, through one renderer."""
    as_json = settings.format == "json" or (settings.format == "auto" and not sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _where_it_was_raised,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    _set_levels(settings.levels)
    # They log each frame and each request, and their debug lines hold bodies and signatures.
    for library in ("aio_pika", "aiormq", "boto3", "botocore", "urllib3", "s3transfer", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # It logs what it raises.
    logging.getLogger("aiormq.connection").setLevel(logging.CRITICAL)


def _set_levels(levels: Mapping[str, str]) -> None:
    """Give parts of utterd levels of their own, and take those that they had."""
    for name in [*logging.root.manager.loggerDict]:
        if name == _OURS or name.startswith(f"{_OURS}."):
            logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.upper())


def _where_it_was_raised(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its types and the lines that it came through.

    Neither messages nor local variables: those of a foreign exception may hold a job's text.
    """
    error = event.pop("exc_info", None)
    if isinstance(error, tuple):
        error = error[1]
    elif error is True:
        error = sys.exception()
    if isinstance(error, BaseException):
        event["exception"] = "\n".join(_chain(error))
    return event


def _chain(error: BaseException) -> Iterator[str]:
    """One block for an exception, and one for each that led to it, the first cause first."""
    if led_to_it := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        yield from _chain(led_to_it)
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _chain(member)
    yield type(error).__qualname__
    for frame in traceback.extract_tb(error.__traceback__):
        yield f"  {frame.filename}:{frame.lineno} {frame.name}"
