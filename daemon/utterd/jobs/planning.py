"""The seam between the line and whoever plans its jobs."""

from typing import Protocol

from utterd.jobs.plan import Plan, Planner
from utterd_schemas.job import Job


class JobPlanner(Protocol):
    """Decides what a job means."""

    def plan(self, job: Job) -> Plan:
        """Decide everything about a job.

        Raises:
            PermanentError: the job can't be spoken as it stands; its class says why.
        """
        ...


class CurrentPlanner:
    """A planner that can be exchanged while the daemon runs; jobs in hand keep their plans.

    Attributes:
        planner: the one that plans the next job.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def plan(self, job: Job) -> Plan:
        return self.planner.plan(job)
