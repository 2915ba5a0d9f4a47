"""A process that does the jobs of a file until it is killed: `python -m tests.jobs.leader HOME HOLDER SECONDS`."""

import sys
from datetime import timedelta
from pathlib import Path

import anyio

from middleout_mcp.app import open_app
from middleout_mcp.jobs.scheduler import Scheduler
from middleout_mcp.jobs.upkeep import JOBS
from middleout_mcp.settings import Settings
from tests.fakes import FakeEmbedder


async def main(home: Path, holder: str, lease: timedelta) -> None:
    app = open_app(Settings(home=home), embedder=FakeEmbedder())
    async with app.running(scheduled=False):
        await Scheduler(await app.parts(), JOBS, holder=holder, lease=lease).run()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], timedelta(seconds=float(sys.argv[3])))
