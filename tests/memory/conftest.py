"""A real app over a real temporary file; only the embedder and the clock are stand-ins."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from middleout_mcp.app import App, open_app
from middleout_mcp.records import Caller
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder


@pytest.fixture
async def app(tmp_path: Path, clock: FakeClock, embedder: FakeEmbedder) -> AsyncIterator[App]:
    opened = open_app(Settings(home=tmp_path), clock=clock, embedder=embedder)
    async with opened.running(scheduled=False):
        yield opened


@pytest.fixture
def caller(app: App) -> Caller:
    return app.caller("test-client", "process-1")
