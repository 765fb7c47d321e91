"""Real daemons, each in a process of its own, on the session's sandbox."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from support import secrecy
from support.bus import Bus, open_bus
from support.daemon import Daemon
from support.place import Place
from utterd.sandbox import Sandbox


@pytest.fixture(scope="session")
def make_place(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Place]]:
    """Make places; in the end, no log of theirs may hold a text or a secret."""
    places: list[Place] = []

    def make() -> Place:
        places.append(Place.make(sandbox, tmp_path_factory.mktemp("place")))
        return places[-1]

    yield make
    logs = [log for place in places for log in place.directory.glob("*.log")]
    leaking = {log.name: leaks for log in logs if (leaks := secrecy.leaks(log))}
    assert not leaking, leaking


@pytest.fixture(scope="module")
def place(make_place: Callable[[], Place]) -> Place:
    return make_place()


@pytest.fixture(scope="module")
def start(place: Place) -> Iterator[Callable[..., Daemon]]:
    """Start daemons in the module's place, with settings by variable; none outlives it."""
    daemons: list[Daemon] = []

    def start_one(**settings: str | None) -> Daemon:
        daemons.append(Daemon(place, {"UTTERD_ENGINE__WORKERS": "1"} | settings))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.kill()


@pytest.fixture
def start_alone(start: Callable[..., Daemon]) -> Iterator[Callable[..., Daemon]]:
    """Start daemons that end with their test, and so work on no other test's jobs."""
    started: list[Daemon] = []

    def start_one(**settings: str | None) -> Daemon:
        started.append(start(**settings))
        return started[-1]

    yield start_one
    for daemon in started:
        daemon.kill()


@pytest.fixture(scope="module")
def daemon(start: Callable[..., Daemon]) -> Daemon:
    """The daemon that a module's tests share."""
    return start()


@pytest.fixture
async def bus(place: Place) -> AsyncIterator[Bus]:
    async with open_bus(place) as bus:
        yield bus
