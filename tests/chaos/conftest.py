"""A sandbox that may be broken, and what watches over its jobs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from chaos.brittle import brittle_settings
from chaos.daemon import ForkedDaemon, fork_server
from chaos.ledger import Ledger
from chaos.s3_proxy import S3Proxy
from support.management import Management
from support.place import Place
from support.servers import running_sandbox
from utterd.config import QueueLimits
from utterd.sandbox import Sandbox

Start = Callable[..., ForkedDaemon]


@pytest.fixture(scope="session")
def fragile_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox whose broker is killed now and then, and so nobody else's."""
    with running_sandbox(tmp_path_factory.mktemp("fragile")) as sandbox:
        yield sandbox


@pytest.fixture
def limits() -> QueueLimits:
    """Of the queues; a test may choose others by parametrizing."""
    return QueueLimits(retry_delays_s=(1, 2, 3))


@pytest.fixture
def place(fragile_sandbox: Sandbox, tmp_path: Path, limits: QueueLimits) -> Place:
    place = Place.make(fragile_sandbox, tmp_path, limits)
    place.temporary.mkdir()
    return place


@pytest.fixture
def management(fragile_sandbox: Sandbox) -> Management:
    return Management(fragile_sandbox.management_url)


@pytest.fixture
async def ledger(place: Place, management: Management) -> AsyncIterator[Ledger]:
    async with Ledger(place, management).opened() as ledger:
        yield ledger


@pytest.fixture
async def lasting_queues(ledger: Ledger, fragile_sandbox: Sandbox) -> None:  # noqa: ARG001 - it declares them
    """Queues that a killed broker still has.

    RabbitMQ writes down within a second where a quorum queue is, and a queue whose node dies before
    has no leader ever after. Once the node has stopped in order, it is on disk for certain.
    """
    await asyncio.to_thread(fragile_sandbox.rabbitmq.restart)


@pytest.fixture
async def s3(fragile_sandbox: Sandbox) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(fragile_sandbox.s3.endpoint_url).serve() as proxy:
        yield proxy


@pytest.fixture
def start(place: Place) -> Iterator[Start]:
    """Start daemons with the brittle engine; none outlives the test.

    They take the step at which to die, a store's endpoint instead of the sandbox's, and further
    settings by variable.
    """
    daemons: list[ForkedDaemon] = []

    def start_one(
        step: str | None = None, store: S3Proxy | None = None, **settings: str
    ) -> ForkedDaemon:
        endpoint = {"UTTERD_STORE__ENDPOINT_URL": store.endpoint_url} if store else {}
        settings = {**brittle_settings(), **endpoint, **settings}
        daemons.append(ForkedDaemon(fork_server(), place, settings, step))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.kill()
