"""Keeps the worker processes of one engine, and hands segments to free slots."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from utterd.backoff import FullJitter
from utterd.engines.company import Company
from utterd.engines.line import SegmentLine
from utterd.engines.pace import Pace
from utterd.engines.process import WorkerProcess
from utterd.engines.protocol import NO_OPTIONS, EngineInfo, EngineOptions, Take, Utterance
from utterd.environment import Environment
from utterd.errors import ConfigurationError, NotNowError
from utterd.lifecycle import unless_stopped
from utterd.ops.cpu import WorkerPlan
from utterd.ops.memory import resident_bytes
from utterd.ops.metrics import Metrics

ENVIRONMENT_PART = "engine"
MEMORY_CHECK_INTERVAL_S = 1.0

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Request:
    utterance: Utterance
    pace: Pace
    alone: bool
    outcome: asyncio.Future[Take]
    on_start: Callable[[], None] | None
    is_begun: bool = False


class EngineHost:
    """A pool of worker processes. Use it through `engine_host`.

    Args:
        info: the engine's description.
        plan: how many workers, and their size.
        options: of the engine, for its workers.
        start_timeout_s: how long a worker may take to load its model.
        cancel_grace_s: how long a cancelled utterance may keep its slot.
        max_worker_bytes: resident memory beyond which a worker is replaced; default: what the
            engine allows.
        environment: told when there is no worker to speak.
        metrics: counts the workers that died.
        restart_delays: waits between attempts to replace a worker that died.
    """

    def __init__(  # noqa: PLR0913 - one argument a setting
        self,
        info: EngineInfo,
        plan: WorkerPlan,
        *,
        options: EngineOptions = NO_OPTIONS,
        start_timeout_s: float = 60.0,
        cancel_grace_s: float = 5.0,
        max_worker_bytes: int | None = None,
        environment: Environment | None = None,
        metrics: Metrics | None = None,
        restart_delays: FullJitter | None = None,
    ) -> None:
        self.info = info
        self.plan = plan
        self._options = options
        self._start_timeout_s = start_timeout_s
        self._cancel_grace_s = cancel_grace_s
        self._max_worker_bytes = max_worker_bytes or info.max_worker_bytes
        self._environment = environment or Environment()
        self._metrics = metrics or Metrics()
        self._restart_delays = restart_delays or FullJitter(base_s=0.1, cap_s=30.0)
        self._line: SegmentLine[_Request] = SegmentLine()
        self._workers: dict[int, WorkerProcess] = {}

    @property
    def slots(self) -> int:
        """Segments that can be spoken at once."""
        return self.plan.slots

    @property
    def busy(self) -> int:
        """Slots that speak."""
        return sum(worker.pending for worker in self._workers.values())

    @property
    def waiting(self) -> int:
        """Segments that wait for a slot."""
        return len(self._line)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are up."""
        return tuple(worker.pid for worker in self._workers.values())

    async def speak(
        self,
        utterance: Utterance,
        *,
        pace: Pace | None = None,
        alone: bool = False,
        on_start: Callable[[], None] | None = None,
    ) -> Take:
        """Speak one segment in the next free slot.

        Args:
            utterance: what to say.
            pace: how soon it is wanted; without one, it is not urgent.
            alone: whether nothing else is spoken in the same worker meanwhile.
            on_start: called when a slot takes it.

        Returns:
            Samples at the engine's rate, and what the engine noticed about them.

        Raises:
            JobError: the engine refused or failed, or its process died.
        """
        outcome: asyncio.Future[Take] = asyncio.get_running_loop().create_future()
        pace = pace or Pace()
        self._line.put(_Request(utterance, pace, alone, outcome, on_start), pace)
        return await outcome

    async def keep_worker(self, index: int, first: asyncio.Future[None]) -> None:
        """Run one worker, and its successors when it dies.

        Args:
            index: its number, for the log.
            first: resolved when the first one is loaded, or fails to.
        """
        failures = 0
        while True:
            try:
                worker = await self._start_worker()
            except (ConfigurationError, NotNowError) as error:
                if not first.done():
                    first.set_exception(error)
                    return
                log.warning("worker_not_replaced", index=index, error=str(error))
                if not self._workers:
                    self._environment.report(ENVIRONMENT_PART, str(error))
            else:
                failures = 0
                if not first.done():
                    first.set_result(None)
                await self._use(index, worker)
                log.warning("worker_died", pid=worker.pid, exit_status=worker.exit_status)
                self._metrics.worker_died()
            failures += 1
            await self._restart_delays.wait(failures)

    async def _start_worker(self) -> WorkerProcess:
        worker = await WorkerProcess.start(
            self.info, self.plan, self._options, timeout_s=self._start_timeout_s
        )
        resident = resident_bytes(worker.pid)
        if resident > self._max_worker_bytes:
            # Replacing it would go on for ever.
            await worker.stop()
            raise ConfigurationError(
                f"the {self.info.name} worker has {resident} bytes in memory once its model is"
                f" loaded, and engine.max_worker_bytes is {self._max_worker_bytes}: set it to at"
                f" least {_with_headroom(resident)}, or remove it"
            )
        return worker

    async def _use(self, index: int, worker: WorkerProcess) -> None:
        log.info("worker_started", pid=worker.pid, engine=self.info.name)
        self._workers[index] = worker
        self._environment.clear(ENVIRONMENT_PART)
        company = Company()
        try:
            async with asyncio.TaskGroup() as slots:
                serving = [
                    slots.create_task(
                        self._serve_slot(worker, company), name=f"slot-{index}-{number}"
                    )
                    for number in range(self.plan.concurrency)
                ]
                watching = _limit_memory(worker, self._max_worker_bytes)
                serving.append(slots.create_task(watching, name=f"memory-{index}"))
                await worker.attend()
                # At once, so that no slot hands a request to a process that is gone.
                for task in serving:
                    task.cancel()
        finally:
            del self._workers[index]
            await worker.stop()

    async def _serve_slot(self, worker: WorkerProcess, company: Company) -> None:
        while worker.is_alive:
            request = await self._line.get()
            try:
                async with company.join(alone=request.alone):
                    if worker.is_alive:
                        await self._serve(request, worker)
            finally:
                if not request.is_begun and not request.outcome.done():
                    # The worker died while this one waited for its turn there.
                    self._line.put(request, request.pace)

    async def _serve(self, request: _Request, worker: WorkerProcess) -> None:
        if request.outcome.done():
            return
        request.is_begun = True
        if request.on_start is not None:
            request.on_start()
        number, answer = worker.submit(request.utterance)

        def drop_when_unwanted(outcome: asyncio.Future[Take], number: int = number) -> None:
            if outcome.cancelled():
                worker.cancel(number, grace_s=self._cancel_grace_s)

        # Callbacks, so that the answer arrives also when this slot ends in the same moment.
        request.outcome.add_done_callback(drop_when_unwanted)
        answer.add_done_callback(partial(_pass_on, to=request.outcome))
        await asyncio.wait([answer])


def _with_headroom(resident: int) -> int:
    """A limit that a model of this size does not reach by working."""
    return resident * 3 // 2


async def _limit_memory(worker: WorkerProcess, max_bytes: int) -> None:
    """Kill a worker that has grown too large; its successor starts small."""
    while (resident := resident_bytes(worker.pid)) <= max_bytes:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(MEMORY_CHECK_INTERVAL_S)
    log.warning("worker_killed", pid=worker.pid, reason="too much memory", resident_bytes=resident)
    worker.kill()


def _pass_on(answer: asyncio.Future[Take], *, to: asyncio.Future[Take]) -> None:
    error = answer.exception()
    if to.done():
        return
    if error is not None:
        to.set_exception(error)
    else:
        to.set_result(answer.result())


@asynccontextmanager
async def engine_host(
    host: EngineHost, stop: asyncio.Event | None = None
) -> AsyncIterator[EngineHost]:
    """Run a host's workers for the length of the block, which begins once all have loaded.

    Args:
        host: the workers.
        stop: when set, the block begins at once, so that it can end: a load takes a while.

    Raises:
        ConfigurationError: a worker could not load its model.
        NotNowError: there was no process, memory or time for it.
        Exception: whatever the block raised.
    """
    failure: Exception | None = None
    loop = asyncio.get_running_loop()
    loaded: list[asyncio.Future[None]] = [loop.create_future() for _ in range(host.plan.workers)]
    async with asyncio.TaskGroup() as workers:
        keepers = [
            workers.create_task(host.keep_worker(index, first), name=f"worker-{index}")
            for index, first in enumerate(loaded)
        ]
        try:
            await unless_stopped(stop or asyncio.Event(), _all(loaded))
            yield host
        except Exception as error:  # noqa: BLE001 - raised below, where no task group wraps it
            failure = error
        finally:
            for keeper in keepers:
                keeper.cancel()
    if failure is not None:
        raise failure


async def _all(loaded: Iterable[asyncio.Future[None]]) -> None:
    await asyncio.gather(*loaded)
