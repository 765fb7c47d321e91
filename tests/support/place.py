"""A corner of a sandbox that belongs to one test."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from utterd.config import ENV_PREFIX, BrokerSettings, QueueLimits, StoreSettings
from utterd.sandbox import Sandbox
from utterd.settings_sources import CONFIG_VARIABLE, environment_name
from utterd.testing.broker import with_own_names

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """Names of its own on the sandbox, for the daemons and commands of one test module."""

    broker: BrokerSettings
    store: StoreSettings
    directory: Path

    @classmethod
    def make(cls, sandbox: Sandbox, directory: Path, limits: QueueLimits | None = None) -> "Place":
        name = f"place-{uuid4().hex[:8]}"
        prefix = environment_name("store.")
        store = {
            variable.removeprefix(prefix).lower(): value
            for variable, value in sandbox.environ().items()
            if variable.startswith(prefix)
        }
        broker = BrokerSettings(url=sandbox.amqp_url, limits=limits or QueueLimits())
        return cls(
            with_own_names(broker, name),
            StoreSettings(**store | {"prefix": f"{name}/"}),
            directory,
        )

    @property
    def temporary(self) -> Path:
        return self.directory / "tmp"

    @property
    def spool(self) -> Path:
        return self.directory / "spool"

    def last_words(self) -> str:
        """The end of each daemon's log, for whoever waited in vain."""
        logs = (path.read_text().splitlines()[-20:] for path in self.directory.glob("*.log"))
        return "\n".join(line for log in logs for line in log)

    def environ(self) -> dict[str, str]:
        """For a process that is to work here, and knows no other settings."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
        store = self.store.model_dump(mode="json", exclude_unset=True)
        store["secret_access_key"] = self.store.secret_access_key.get_secret_value()
        return own | {
            CONFIG_VARIABLE: os.devnull,
            "TMPDIR": str(self.temporary),
            "UTTERD_BROKER__URL": self.broker.url.get_secret_value(),
            "UTTERD_BROKER__EXCHANGES": self.broker.exchanges.model_dump_json(),
            "UTTERD_BROKER__QUEUES": self.broker.queues.model_dump_json(),
            "UTTERD_BROKER__LIMITS": self.broker.limits.model_dump_json(),
            "UTTERD_STORE__SPOOL_DIRECTORY": str(self.spool),
            "UTTERD_LOG__FORMAT": "json",
            # A free one: several daemons work here at once.
            "UTTERD_HEALTH__PORT": "0",
            **{environment_name(f"store.{name}"): str(value) for name, value in store.items()},
        }

    def utterd(
        self, *arguments: str, stdin: str = "", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with further settings by variable."""
        return subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "utterd", *arguments],
            env=self.environ() | settings,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
