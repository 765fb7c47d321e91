"""The settings tree: every name, its default and its limits."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AmqpDsn,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    SecretStr,
    TypeAdapter,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict
from yarl import URL

from utterd.engines.registry import engine_names
from utterd.store.keys import validate_prefix
from utterd_schemas.audio import AudioFormat

ENV_PREFIX = "UTTERD_"
ENV_DELIMITER = "__"

# Timers of the broker and of sockets overflow at different numbers, a socket's after 24 days.
_WEEK_S = 7 * 24 * 3600
# More at once than any machine of today has cores for.
_MAX_PARALLEL = 1024

Seconds = Annotated[float, Field(gt=0, le=_WEEK_S)]
WholeSeconds = Annotated[int, Field(ge=1, le=_WEEK_S)]
Parallel = Annotated[int, Field(ge=1, le=_MAX_PARALLEL)]


class Section(BaseModel):
    """A part of the tree. A name that is not listed is an error, not a comment."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*")
    @classmethod
    def _is_printable(cls, value: object) -> object:
        """Refuse what no file, no header and no event can hold.

        The name of a file may be any bytes without a NUL, and a secret is its reader's matter.
        """
        if isinstance(value, str) and not value.isprintable():
            raise ValueError("must not hold line breaks or other control characters")
        if isinstance(value, Path) and "\0" in str(value):
            raise ValueError("must not hold a NUL")
        return value


def _can_be_looked_up(host: str) -> bool:
    """Whether the resolver takes a name; what it does not take raises no OSError."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


class Lane(StrEnum):
    """The two ways into the daemon; work in the first goes before work in the second."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


class ExchangeNames(Section):
    """The exchanges' names."""

    jobs: str = "tts.jobs"
    """Where publishers send jobs (topic)."""
    unrouted: str = "tts.unrouted"
    """Where jobs go whose routing key fits no lane (fanout)."""
    events: str = "tts.events"
    """Where the daemon sends events (topic)."""
    retry: str = "tts.retry"
    """Where jobs wait for their next attempt (direct)."""
    dead: str = "tts.dead"
    """Where jobs go that can't be finished (direct)."""
    control: str = "tts.control"
    """Where orders to all daemons go (fanout)."""


class QueueNames(Section):
    """The queues' names."""

    interactive: str = "tts.jobs.interactive"
    """Jobs that somebody waits for."""
    batch: str = "tts.jobs.batch"
    """Jobs that can wait."""
    retry_prefix: str = "tts.retry."
    """Followed by the delay, such as `10s`."""
    lapsed: str = "tts.lapsed"
    """Jobs that the broker itself gave up, until a daemon has told of them."""
    dead: str = "tts.dead"
    """Jobs that could not be finished, each with its reason."""

    def of_delay(self, delay_s: int) -> str:
        return f"{self.retry_prefix}{delay_s}s"

    def of_lane(self, lane: Lane) -> str:
        return self.interactive if lane is Lane.INTERACTIVE else self.batch


class QueueLimits(Section):
    """Arguments of the job queues."""

    delivery_limit: int = Field(default=64, ge=1, le=1_000_000)
    """Deliveries after which the broker itself gives a job up: a fence against jobs that kill
    the whole daemon."""
    max_length: int = Field(default=100_000, ge=1, le=1_000_000_000)
    """Jobs in a lane, beyond which publishers are refused."""
    consumer_timeout_s: int = Field(default=1800, ge=60, le=_WEEK_S)
    """How long the broker lets a delivery go unsettled."""
    retry_delays_s: tuple[WholeSeconds, ...] = (10, 60, 600)
    """Waits before further attempts, one queue each."""

    @property
    def work_timeout_s(self) -> float:
        """How long a delivery may be worked on; the rest of the broker's time is for settling."""
        return self.consumer_timeout_s * 0.8


class BrokerSettings(Section):
    """RabbitMQ."""

    url: SecretStr = SecretStr("amqp://guest:guest@127.0.0.1:5672/")
    """`amqp://` or `amqps://`, with user, password and virtual host, percent-encoded."""
    tls_ca_file: Path | None = None
    """Certificates (PEM) of the authorities that the broker's own is checked by, for `amqps://`;
    default: the system's."""
    tls_certificate_file: Path | None = None
    """A client certificate (PEM), with its chain, for a broker that asks for one."""
    tls_key_file: Path | None = None
    """The key (PEM, not encrypted) of the client certificate; unset, it stands in the same file."""
    heartbeat_s: int = Field(default=20, ge=1, le=65_535)
    """After about three silent ones, a connection counts as lost."""
    connect_timeout_s: Seconds = 10.0
    """For one attempt to connect and log in."""
    publish_timeout_s: Seconds = 10.0
    """How long the broker may take to confirm one message."""
    reconnect_cap_s: Seconds = 30.0
    """The longest wait between two attempts to connect."""
    declare_topology: bool = True
    """Whether `utterd run` declares exchanges and queues; without it, it only checks them."""
    exchanges: ExchangeNames = ExchangeNames()
    """Names of the exchanges."""
    queues: QueueNames = QueueNames()
    """Names of the queues."""
    limits: QueueLimits = QueueLimits()
    """Limits of the queues; a change needs the queues to be deleted first."""

    @property
    def watched_queues(self) -> tuple[str, ...]:
        """The queues whose depth tells how the daemons fare."""
        queues = self.queues
        delays = map(queues.of_delay, self.limits.retry_delays_s)
        return queues.interactive, queues.batch, *delays, queues.lapsed, queues.dead

    @field_validator("url")
    @classmethod
    def _is_amqp(cls, url: SecretStr) -> SecretStr:
        TypeAdapter(AmqpDsn).validate_python(url.get_secret_value())
        try:
            # What parses it in the end is stricter, and quotes the password in its error.
            host = URL(url.get_secret_value()).host
        except ValueError:
            host = None
        if not host or not _can_be_looked_up(host):
            raise ValueError(
                "must name a host; in user, password and virtual host, anything but letters and"
                " digits must be percent-encoded"
            )
        return url


class StoreSettings(Section):
    """Where audio is kept."""

    kind: Literal["s3", "filesystem"] = "s3"
    """A bucket, or a directory."""
    bucket: str = Field(default="utterances", min_length=1)
    """The bucket's name."""
    prefix: str = ""
    """What every object's name begins with, such as `speech/`."""
    endpoint_url: str | None = None
    """For S3-compatible servers other than AWS."""
    tls_ca_file: Path | None = None
    """Certificates (PEM) of the authorities that the server's own is checked by; default: those
    that come with boto3."""
    region: str | None = "us-east-1"
    """The bucket's region."""
    access_key_id: str | None = None
    """Default: boto3's own chain of credentials."""
    secret_access_key: SecretStr | None = None
    """Belongs to `access_key_id`."""
    session_token: SecretStr | None = None
    """For temporary credentials."""
    connect_timeout_s: Seconds = 3.0
    """For one attempt to connect."""
    read_timeout_s: Seconds = 15.0
    """How long the server may be silent."""
    upload_threads: Parallel = 4
    """Calls to the store at once."""
    directory: Path = Path("utterances")
    """Root of a filesystem store."""
    durable: bool = True
    """Whether a filesystem store waits until the disk has the object."""
    spool_directory: Path | None = None
    """Where finished audio waits while the bucket can't take it. Default: `spool` in the state
    directory that systemd made, else in `~/.local/state/utterd`."""
    spool_max_bytes: int = Field(default=512 * 1024 * 1024, ge=0)
    """What does not fit is spoken again later."""
    presign_expires_s: int | None = Field(default=None, ge=1, le=_WEEK_S)
    """Lifetime of the link in `completed` events; unset, they carry none."""

    @field_validator("endpoint_url")
    @classmethod
    def _is_http_without_password(cls, endpoint_url: str | None) -> str | None:
        if endpoint_url is None:
            return None
        url = TypeAdapter(HttpUrl).validate_python(endpoint_url)
        if url.username or url.password:
            raise ValueError("must not hold credentials: set access_key_id and secret_access_key")
        return endpoint_url

    @field_validator("prefix")
    @classmethod
    def _is_prefix(cls, prefix: str) -> str:
        return validate_prefix(prefix)


class EngineSettings(Section):
    """The engine, and how much of the machine it gets."""

    name: str = "hibari"
    """Which engine speaks."""
    bundle: Path | None = None
    """Directory of the model that `utterd bundle convert` made, for engines that carry none."""
    rows: int = Field(default=8, ge=1, le=8)
    """cosyvoice: segments that are spoken at once."""
    euler_steps: int = Field(default=10, ge=1, le=100)
    """cosyvoice: steps from noise to a spectrum. Fewer are faster and change the sound."""
    cache_tokens: int = Field(default=2048, ge=512, le=8192)
    """cosyvoice: text and speech tokens of a segment, 50 of which are a second. More memory is
    taken for more of them, at full size in int8 29 kB a row and token; longer speech is cut, and
    every segment has room for two speech tokens a text token."""
    workers: Parallel | None = None
    """Worker processes; default: one a usable core, and one in all for cosyvoice."""
    threads: Parallel | None = None
    """Cores that one worker may keep busy; default: 1, and all of them for cosyvoice."""
    start_timeout_s: Seconds = 60.0
    """How long a worker may take to load its model."""
    max_worker_bytes: int | None = Field(default=None, ge=64 * 1024 * 1024)
    """A worker whose resident memory grows beyond this is replaced; default: 1 GiB, and for
    cosyvoice by the size of its bundle and cache."""
    cancel_grace_s: Seconds = 5.0
    """How long a cancelled synthesis may hold its slot before its worker is replaced."""

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in engine_names():
            raise ValueError(f"must be one of {', '.join(engine_names())}")
        return name


class SpeechSettings(Section):
    """What a job gets that does not say otherwise, and what no job may exceed."""

    voice: str | None = None
    """The voice of jobs that name none; default: the engine's first."""
    aliases: dict[str, str] = Field(default_factory=dict)
    """Other names for voices, beside the engine's own and `default`, the voice of jobs that name
    none."""
    format: AudioFormat = AudioFormat.WAV
    """The format of jobs that name none."""
    lexicon: Path | None = None
    """A file with spoken forms of words: TOML (`"SQL" = "sequel"`) or PLS. It is part of every
    key."""
    max_text_chars: int = Field(default=10_000, ge=1, le=100_000_000)
    """The longest text or SSML of a job."""
    max_pauses_s: Seconds = 600.0
    """How long the pauses of a job may be in all: SSML can ask for hours in a few bytes."""
    max_message_bytes: int = Field(default=2 * 1024 * 1024, ge=1024, le=512 * 1024 * 1024)
    """The largest message body, compressed or not."""
    job_timeout_s: Seconds = 600.0
    """How long slots may work on one attempt at a job; its wait for a slot does not count. In all,
    an attempt has four fifths of `broker.limits.consumer_timeout_s`: stay below that."""


class EventSettings(Section):
    """Events."""

    source: str = "/utterd"
    """The CloudEvents `source`; the same for all daemons of a fleet."""
    progress: bool = False
    """Whether each finished segment of a long text is announced."""


class LifecycleSettings(Section):
    """Start and stop."""

    drain_timeout_s: Seconds = 60.0
    """How long jobs in hand may take to finish after SIGTERM; what is left goes back."""


class TracingSettings(Section):
    """Distributed traces; needs the extra `tracing`: `pip install '.[tracing]'`."""

    enabled: bool = False
    """Whether spans are made and sent by OTLP over HTTP, where OpenTelemetry's own variables say,
    such as `OTEL_EXPORTER_OTLP_ENDPOINT`. A job's `traceparent` is passed on in any case."""


class HealthSettings(Section):
    """The HTTP server for health, metrics and the status page. It holds no job's text."""

    enabled: bool = True
    """Whether it runs."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """The address that it listens at. It asks nobody who they are: leave it on loopback, or on an
    address that only those who watch can reach."""
    port: int = Field(default=9464, ge=0, le=65_535)
    """The port; 0 takes a free one, which the log tells. Each instance on a host needs its own."""

    @field_validator("host")
    @classmethod
    def _is_host(cls, host: str) -> str:
        if not _can_be_looked_up(host):
            raise ValueError("must be an address or the name of a host")
        return host


LogLevel = Literal["debug", "info", "warning", "error"]


class LogSettings(Section):
    """Logs, on standard error."""

    level: LogLevel = "info"
    """The least severe events that are shown."""
    levels: dict[str, LogLevel] = Field(default_factory=dict)
    """Other levels for parts of utterd, by the name in a line's `logger`, such as
    `{"utterd.broker": "debug"}`; the longest name that fits counts."""
    format: Literal["auto", "json", "console"] = "auto"
    """`auto` is console on a terminal and JSON elsewhere."""


class Settings(BaseSettings):
    """All settings. Sources, first wins: environment, credentials, TOML file, defaults."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    broker: BrokerSettings = BrokerSettings()
    """RabbitMQ."""
    store: StoreSettings = StoreSettings()
    """Where audio is kept."""
    engine: EngineSettings = EngineSettings()
    """The engine."""
    speech: SpeechSettings = SpeechSettings()
    """Defaults and limits of jobs."""
    events: EventSettings = EventSettings()
    """Events."""
    lifecycle: LifecycleSettings = LifecycleSettings()
    """Start and stop."""
    health: HealthSettings = HealthSettings()
    """Health, metrics and the status page."""
    tracing: TracingSettings = TracingSettings()
    """Traces."""
    log: LogSettings = LogSettings()
    """Logs."""
