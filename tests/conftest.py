from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.servers import running_sandbox
from utterd.engines.telemetry import disable_telemetry
from utterd.sandbox import Sandbox

disable_telemetry()

# A slow machine is no fault of the code; tests that measure say so themselves.
settings.register_profile("utterd", deadline=None)
settings.load_profile("utterd")


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One RabbitMQ node and S3 server for the whole session; take own queues and keys."""
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox
