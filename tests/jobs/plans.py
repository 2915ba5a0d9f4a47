"""Jobs that only note what they did, for tests of the scheduler."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from middleout_mcp.jobs.scheduler import Job
from middleout_mcp.memory.parts import Parts
from middleout_mcp.ports import JobState


@dataclass
class Noted:
    """A job with so many steps of work, which come again each time they are done, unless `once`."""

    name: str
    every: timedelta = timedelta(hours=1)
    steps: int = 1
    once: bool = False
    raises: Exception | None = None
    done: list[datetime] = field(default_factory=list)
    looks: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        self.left = self.steps

    def job(self) -> Job:
        """The job for a scheduler."""
        return Job(self.name, self.every, self._waits, self._work)

    async def _waits(self, parts: Parts, data: dict[str, Any], now: datetime) -> bool:
        self.looks += 1
        data["spoilt"] = True  # looking changes nothing, whatever it does
        return self.left > 0

    async def _work(self, parts: Parts, data: dict[str, Any], now: datetime) -> bool:
        if self.raises is not None:
            raise self.raises
        self.done.append(now)
        self.left -= 1
        data["step"] = data.get("step", 0) + 1
        if not self.left and not self.once:
            self.left = self.steps
            return False
        return self.left > 0


async def state(parts: Parts, name: str) -> JobState:
    """What the file knows of the job."""
    return next(job for job in await parts.store.control.jobs() if job.name == name)


async def leases(parts: Parts) -> list[str]:
    """Who holds a lease."""
    return [lease.holder for lease in (await parts.store.control.health())["leases"]]
