"""Many jobs through a random schedule of every fault.

CHAOS_JOBS and CHAOS_SEED, in the environment, choose their number and the schedule. The same seed
draws the same jobs and the same order of faults.
"""

import os
import random

import pytest

from chaos.ledger import Ledger
from chaos.s3_proxy import S3Proxy
from chaos.schedule import Jobs, Stage, play
from support.management import Management
from utterd.sandbox import Sandbox

JOBS = int(os.environ.get("CHAOS_JOBS", "60"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
JOBS_A_DECK = 100

pytestmark = [pytest.mark.sandbox, pytest.mark.chaos, pytest.mark.timeout(max(120, 2 * JOBS))]


@pytest.mark.usefixtures("lasting_queues")
@pytest.mark.parametrize("seed", [SEED])
async def test_every_job_has_one_effect(
    seed: int,
    ledger: Ledger,
    s3: S3Proxy,
    fragile_sandbox: Sandbox,
    management: Management,
    start,
):
    """One terminal event id a job, every object whole, nothing left, and no wrong one dead."""
    source = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    jobs = Jobs.draw(JOBS, source)

    def start_one():
        return start(store=s3, UTTERD_SPEECH__JOB_TIMEOUT_S="5")

    stage = Stage(fragile_sandbox, management, s3, ledger, start_one, source)
    stage.daemons += [start_one(), start_one()]
    await play(stage, jobs, decks=max(1, JOBS // JOBS_A_DECK))
    await ledger.all_finished()
    for daemon in stage.daemons:
        await daemon.stop()
    await ledger.check(failing=jobs.failing)
