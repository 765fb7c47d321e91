"""The engine host with real worker processes."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from utterd.backoff import FullJitter
from utterd.engines import hibari
from utterd.engines.host import ENVIRONMENT_PART, EngineHost, engine_host
from utterd.engines.pace import Pace
from utterd.engines.protocol import NO_OPTIONS, EngineOptions, Take, Utterance
from utterd.engines.registry import engine_module
from utterd.environment import Environment
from utterd.errors import (
    ConfigurationError,
    EngineFailedError,
    NotNowError,
    UnknownVoiceError,
    WorkerDiedError,
)
from utterd.ops.cpu import WorkerPlan
from utterd.ops.memory import OOM_HANDICAP

HERE = Path(__file__).parent
GROWTH_BYTES = 300_000_000
"""More than a worker of the rogue engine has before it grows."""
NO_DELAY = FullJitter(base_s=0.0, cap_s=0.0)

RogueHost = Callable[..., AbstractAsyncContextManager[EngineHost]]
Pipe = Callable[[], Path]


@pytest.fixture
def rogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RogueHost:
    """Runs the rogue engine, installed as any third-party engine is."""
    info = tmp_path / "site" / "rogue_engine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rogue-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[utterd.engines]\nrogue = rogue_engine\n")
    for path in (HERE, info.parent):
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", str(info.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)

    def run(
        *,
        workers: int = 1,
        concurrency: int = 1,
        start_timeout_s: float = 20.0,
        cancel_grace_s: float = 20.0,
        max_worker_bytes: int | None = None,
        environment: Environment | None = None,
        options: EngineOptions = NO_OPTIONS,
        stop: asyncio.Event | None = None,
    ) -> AbstractAsyncContextManager[EngineHost]:
        host = EngineHost(
            engine_module("rogue").describe(),
            WorkerPlan(workers=workers, concurrency=concurrency, threads=1),
            start_timeout_s=start_timeout_s,
            cancel_grace_s=cancel_grace_s,
            max_worker_bytes=max_worker_bytes,
            environment=environment,
            options=options,
            restart_delays=NO_DELAY,
        )
        return engine_host(host, stop)

    return run


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    """Makes named pipes, by which a worker and the test wait for each other."""
    numbers = iter(range(100))

    def make() -> Path:
        path = tmp_path / f"pipe-{next(numbers)}"
        os.mkfifo(path)
        return path

    return make


def said(text: str) -> Utterance:
    return Utterance(text=text, voice="heart", language="en", speed=1.0, seed=7)


async def pid_of(begun: Path) -> int:
    """The worker that has begun the request."""
    return int(await asyncio.to_thread(begun.read_text, "ascii"))


async def let_end(release: Path) -> None:
    await asyncio.to_thread(release.write_text, "go", "ascii")


def speaking(host: EngineHost, text: str) -> asyncio.Task[Take]:
    return asyncio.create_task(host.speak(said(text)), name=text)


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text("ascii"))


async def test_parallel_speech_equals_serial_speech():
    """Two workers give the samples that one gives, whatever runs beside (P-25)."""
    sentences = ("The rain stopped at noon.", "Nobody knew the old baker's name.")
    info = hibari.describe()
    async with engine_host(EngineHost(info, WorkerPlan(1, 1, 1))) as host:
        serial = [(await host.speak(said(text))).pcm for text in sentences]
    async with engine_host(EngineHost(info, WorkerPlan(2, 1, 1))) as host:
        parallel = await asyncio.gather(*(host.speak(said(text)) for text in sentences * 4))
    assert serial[0].dtype == np.float32
    for expected, take in zip(serial * 4, parallel, strict=True):
        np.testing.assert_array_equal(take.pcm, expected)


async def test_a_killed_worker_fails_its_own_request_alone(rogue: RogueHost, pipe: Pipe):
    """The request beside it and those in the line are served, and a new worker takes its place."""
    begun, other_begun, release = pipe(), pipe(), pipe()
    async with rogue(workers=2) as host:
        doomed = speaking(host, f"ignore {begun}")
        beside = speaking(host, f"hold {other_begun} {release}")
        victim, survivor = await asyncio.gather(pid_of(begun), pid_of(other_begun))
        in_line = [speaking(host, "pid") for _ in range(3)]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="status -9"):
            await doomed
        pids = {int(take.pcm[0]) for take in await asyncio.gather(*in_line)}
        await let_end(release)
        await beside
    assert len(pids) == 1
    assert not pids & {victim, survivor}


async def test_cancelling_frees_the_slot(rogue: RogueHost, pipe: Pipe):
    """An engine that obeys keeps its process."""
    begun = pipe()
    async with rogue() as host:
        task = speaking(host, f"obey {begun}")
        worker = await pid_of(begun)
        task.cancel()
        assert int((await host.speak(said("pid"))).pcm[0]) == worker
    assert task.cancelled()


async def test_a_worker_that_ignores_a_cancel_is_killed(rogue: RogueHost, pipe: Pipe):
    """After the grace period the slot goes to a new process."""
    begun = pipe()
    async with rogue(cancel_grace_s=0.05) as host:
        task = speaking(host, f"ignore {begun}")
        worker = await pid_of(begun)
        task.cancel()
        assert int((await host.speak(said("pid"))).pcm[0]) != worker


async def test_a_cancelled_request_in_the_line_is_never_spoken(rogue: RogueHost, pipe: Pipe):
    """It takes no slot, and the next one comes at once."""
    begun, release = pipe(), pipe()
    async with rogue() as host:
        first = speaking(host, f"hold {begun} {release}")
        await pid_of(begun)
        dropped, last = speaking(host, "count"), speaking(host, "count")
        await asyncio.wait({dropped}, timeout=0)
        dropped.cancel()
        await let_end(release)
        await first
        assert (await last).pcm[0] == 1.0


async def test_urgent_requests_go_first(rogue: RogueHost, pipe: Pipe):
    """They pass those that wait, but not for ever."""
    begun, release = pipe(), pipe()
    order: list[str] = []

    async def speak(host: EngineHost, name: str) -> None:
        await host.speak(said("count"), pace=Pace(urgent=name.startswith("u")))
        order.append(name)

    async with rogue() as host:
        first = speaking(host, f"hold {begun} {release}")
        await pid_of(begun)
        async with asyncio.TaskGroup() as group:
            for name in ("p0", "p1", "u0", "u1", "u2", "u3", "u4"):
                group.create_task(speak(host, name), name=name)
            await let_end(release)
        await first
    assert order == ["u0", "u1", "u2", "u3", "p0", "u4", "p1"]


@pytest.mark.parametrize("misdeed", ["raise", "exit", "unfit", "nothing"])
async def test_an_engine_s_own_exception_stays_in_the_worker(rogue: RogueHost, misdeed: str):
    """The caller learns its type, never its message, which may quote the text."""
    async with rogue() as host:
        (worker,) = host.pids
        with pytest.raises(EngineFailedError, match="the engine raised") as failure:
            await host.speak(said(f"{misdeed} /dev/null my-secret"))
        assert host.pids == (worker,)
        assert (await host.speak(said("count"))).pcm[0] == 1.0
    assert "my-secret" not in failure.value.info().model_dump_json()


async def test_an_engine_s_job_error_arrives_whole(rogue: RogueHost):
    """Class, message and detail are those that the engine gave."""
    async with rogue() as host:
        with pytest.raises(UnknownVoiceError, match="no such voice") as refusal:
            await host.speak(said("refuse"))
    assert refusal.value.detail == {"voices": ["a"]}


async def test_what_an_engine_prints_goes_to_standard_error(
    rogue: RogueHost, capfd: pytest.CaptureFixture[str]
):
    """Neither the frames nor the output of utterd's commands are disturbed."""
    async with rogue() as host:
        pcm = (await host.speak(said("print"))).pcm
    out, err = capfd.readouterr()
    assert (pcm.dtype, pcm.size) == (np.float32, 1)
    assert "engine\n" not in out
    assert "printed by the engine\nwritten by a C library\n" in err


async def test_signals_to_the_group_leave_a_worker_alone(rogue: RogueHost, pipe: Pipe):
    """Work in hand ends when the daemon says so."""
    begun, release = pipe(), pipe()
    async with rogue() as host:
        task = speaking(host, f"hold {begun} {release}")
        worker = await pid_of(begun)
        assert os.getpgid(worker) == worker
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.killpg(worker, number)
        await let_end(release)
        await task
        assert host.pids == (worker,)


async def test_a_model_that_does_not_load_is_a_configuration_error(
    rogue: RogueHost, monkeypatch: pytest.MonkeyPatch
):
    """The block is not entered, and the error comes bare."""
    monkeypatch.setenv("ROGUE_LOAD", "exit")
    with pytest.raises(ConfigurationError, match="exit status 3"):
        async with rogue(workers=2):
            pytest.fail("entered")


@pytest.mark.parametrize(
    ("misdeed", "message"), [("perish", "for want of memory"), ("hang", r"within 0\.2 s")]
)
async def test_a_model_that_finds_no_memory_or_no_time_can_load_later(
    rogue: RogueHost, monkeypatch: pytest.MonkeyPatch, misdeed: str, message: str
):
    """A machine may be busy while it boots, and a configuration error is for good."""
    monkeypatch.setenv("ROGUE_LOAD", misdeed)
    with pytest.raises(NotNowError, match=message):
        async with rogue(workers=2, start_timeout_s=0.2 if misdeed == "hang" else 20.0):
            pytest.fail("entered")


async def test_the_kernel_takes_a_worker_s_memory_before_the_daemon_s(rogue: RogueHost):
    """A worker costs an attempt at one job, the daemon all jobs in hand."""
    async with rogue() as host:
        assert oom_score(host.pids[0]) == min(oom_score(os.getpid()) + OOM_HANDICAP, 1000)


async def test_a_stop_does_not_wait_for_a_model(rogue: RogueHost, monkeypatch: pytest.MonkeyPatch):
    """Large ones take long; the process that loads is ended with the block."""
    monkeypatch.setenv("ROGUE_LOAD", "hang")
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(stop.set)
    async with asyncio.timeout(20), rogue(start_timeout_s=60.0, stop=stop) as host:
        assert host.pids == ()


async def test_an_engine_whose_files_have_changed_is_not_spoken_with():
    """Its audio would be kept under the key of what the files were."""
    info = replace(hibari.describe(NO_OPTIONS), bundle="0" * 64)
    host = EngineHost(info, WorkerPlan(workers=1, concurrency=1, threads=1))
    with pytest.raises(ConfigurationError, match="have changed since the daemon started"):
        async with engine_host(host):
            pass


async def test_a_system_that_starts_no_process_may_start_one_later(
    rogue: RogueHost, monkeypatch: pytest.MonkeyPatch
):
    """The message says what to look at, and nothing is left open."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(NotNowError, match="the system starts no worker of rogue"):
        async with rogue():
            pytest.fail("entered")


async def test_a_worker_that_grows_too_large_is_replaced(rogue: RogueHost, until):
    """Its request fails, the one beside it is served, and the new worker is small again."""
    async with rogue(workers=2, max_worker_bytes=GROWTH_BYTES) as host:
        before = set(host.pids)
        with pytest.raises(WorkerDiedError, match="status -9"):
            await host.speak(said("grow"))
        assert int((await host.speak(said("pid"))).pcm[0]) in before
        await until(lambda: len(host.pids) == 2 and set(host.pids) != before)
        assert len(before & set(host.pids)) == 1


async def test_a_limit_below_the_loaded_model_is_a_configuration_error(rogue: RogueHost):
    """The block is not entered: a worker in its place would be killed as well, for ever."""
    with pytest.raises(ConfigurationError, match=r"engine\.max_worker_bytes is 1000: set it to at"):
        async with rogue(max_worker_bytes=1000):
            pytest.fail("entered")


async def test_what_an_engine_noticed_comes_with_its_samples(rogue: RogueHost):
    """The parent gets the faults that the engine found in its own take."""
    async with rogue() as host:
        assert (await host.speak(said("count"))).faults == ()
        assert (await host.speak(said("ramble"))).faults == ("runaway",)


async def test_a_worker_is_told_the_options(rogue: RogueHost):
    """What the settings say about the model reaches the process that loads it."""
    options = EngineOptions(bundle=Path("/models/one"), euler_steps=5)
    async with rogue(options=options) as host:
        assert (await host.speak(said("steps"))).pcm[0] == 5.0


@pytest.mark.parametrize(
    ("misdeed", "reason"),
    [
        ("exit", "the rogue worker did not load its model"),
        ("perish", "the rogue worker was killed while it loaded its model"),
        ("refuse", "the model is another one: put it back"),
    ],
)
async def test_without_any_worker_no_jobs_are_taken(
    rogue: RogueHost, monkeypatch: pytest.MonkeyPatch, misdeed: str, reason: str
):
    """The environment tells why, and is sound again with the first worker that loads."""
    environment = Environment()
    async with rogue(environment=environment) as host:
        assert environment.sound.is_set()
        monkeypatch.setenv("ROGUE_LOAD", misdeed)
        os.kill(host.pids[0], signal.SIGKILL)
        await environment.troubled.wait()
        assert reason in environment.faults[ENVIRONMENT_PART]
        waiting = speaking(host, "count")
        monkeypatch.delenv("ROGUE_LOAD")
        await environment.sound.wait()
        assert (await waiting).pcm[0] == 1.0


async def test_one_worker_that_is_left_is_enough(
    rogue: RogueHost, monkeypatch: pytest.MonkeyPatch, until
):
    """Jobs go on while another worker can't be replaced, only slower."""
    environment = Environment()
    async with rogue(workers=2, environment=environment) as host:
        monkeypatch.setenv("ROGUE_LOAD", "exit")
        victim, survivor = host.pids
        os.kill(victim, signal.SIGKILL)
        await until(lambda: host.pids == (survivor,))
        assert int((await host.speak(said("pid"))).pcm[0]) == survivor
        assert environment.sound.is_set()


async def test_the_start_is_told_when_a_slot_takes_the_request(rogue: RogueHost, pipe: Pipe):
    """What waits in the line has not begun."""
    begun, release = pipe(), pipe()
    started: list[str] = []
    async with rogue() as host:
        first = speaking(host, f"hold {begun} {release}")
        await pid_of(begun)
        second = asyncio.create_task(
            host.speak(said("count"), on_start=lambda: started.append("second"))
        )
        await asyncio.wait({second}, timeout=0)
        assert started == []
        await let_end(release)
        await first
        await second
    assert started == ["second"]


async def test_the_block_s_own_error_comes_out_bare(rogue: RogueHost):
    """No exception group hides what the caller raised."""
    with pytest.raises(ZeroDivisionError):
        async with rogue():
            raise ZeroDivisionError


async def test_stopping_leaves_no_process(rogue: RogueHost, pipe: Pipe):
    """Also workers in the middle of a request end, and the request fails."""
    begun = pipe()
    async with rogue(workers=2) as host:
        pidfds = [os.pidfd_open(pid) for pid in host.pids]
        task = speaking(host, f"ignore {begun}")
        await pid_of(begun)
    assert host.pids == ()
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], 0)[0]
        os.close(pidfd)
    with pytest.raises(WorkerDiedError):
        await task


DAEMON = """
import asyncio, rogue_engine
from utterd.engines.host import EngineHost, Utterance, WorkerPlan, engine_host

async def main():
    async with engine_host(EngineHost(rogue_engine.describe(), WorkerPlan(1, 1, 1))) as host:
        await host.speak(Utterance(text="ignore {}", voice="", language="", speed=1.0, seed=0))

asyncio.run(main())
"""


async def test_a_worker_ends_with_its_daemon(rogue: RogueHost, pipe: Pipe):
    """A daemon that is killed leaves no worker behind, not even a busy one."""
    del rogue
    begun = pipe()
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON.format(begun))
    pidfd = os.pidfd_open(await pid_of(begun))
    daemon.kill()
    await daemon.wait()
    ended, _, _ = await asyncio.to_thread(select.select, [pidfd], [], [], 10.0)
    os.close(pidfd)
    assert ended


async def test_files_in_the_working_directory_are_not_imported(
    rogue: RogueHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`utterd say` works beside a user's own `numpy.py`."""
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    async with rogue() as host:
        assert (await host.speak(said("count"))).pcm[0] == 1.0


async def test_libraries_start_no_more_threads_than_planned(rogue: RogueHost):
    """Many workers on many cores don't multiply their thread pools (P-13)."""
    async with rogue() as host:
        assert (await host.speak(said("threads"))).pcm[0] == 1.0


async def test_requests_that_died_together_are_tried_one_at_a_time(rogue: RogueHost, pipe: Pipe):
    """So the guilty one is known, and its neighbour lives."""
    async with asyncio.timeout(60), rogue(concurrency=2) as host:
        (pid,) = host.pids
        begun = [pipe(), pipe()]
        speaking = [asyncio.create_task(host.speak(said(f"ignore {path}"))) for path in begun]
        for path in begun:
            await asyncio.to_thread(path.read_text)
        os.kill(pid, signal.SIGKILL)
        died = await asyncio.gather(*speaking, return_exceptions=True)
        assert [type(error) for error in died] == [WorkerDiedError, WorkerDiedError]
        begun_again, end = pipe(), pipe()
        alone = asyncio.create_task(host.speak(said(f"hold {begun_again} {end}"), alone=True))
        await asyncio.to_thread(begun_again.read_text)
        neighbour = asyncio.create_task(host.speak(said("pid"), alone=True))
        await asyncio.sleep(0)
        assert host.busy == 1
        assert not neighbour.done()
        await asyncio.to_thread(end.write_text, "end")
        await alone
        assert (await neighbour).pcm.size == 1


async def test_a_request_that_waited_in_a_dead_worker_is_spoken_in_the_next(
    rogue: RogueHost, pipe: Pipe
):
    """Its turn there never came, so nothing is held against it."""
    async with asyncio.timeout(60), rogue(concurrency=2) as host:
        (pid,) = host.pids
        begun = pipe()
        guilty = asyncio.create_task(host.speak(said(f"ignore {begun}"), alone=True))
        await asyncio.to_thread(begun.read_text)
        waiting = asyncio.create_task(host.speak(said("pid")))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            await guilty
        assert (await waiting).pcm[0] != pid
