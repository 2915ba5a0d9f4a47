"""What a scheduler works with: a real store on a temporary file, and a clock that is told the time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from middleout_mcp.app import App, open_app
from middleout_mcp.memory.parts import Parts
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder


@pytest.fixture
async def app(tmp_path: Path, clock: FakeClock, embedder: FakeEmbedder) -> AsyncIterator[App]:
    """An app whose own scheduler does not run: tests say when there is a tick."""
    opened = open_app(Settings(home=tmp_path), clock=clock, embedder=embedder)
    async with opened.running(scheduled=False):
        yield opened


@pytest.fixture
async def parts(app: App) -> Parts:
    return await app.parts()


@pytest.fixture
async def other(tmp_path: Path, app: App, clock: FakeClock, embedder: FakeEmbedder) -> AsyncIterator[Parts]:
    """The same file in another process, as far as the store can tell."""
    opened = open_app(Settings(home=tmp_path), clock=clock, embedder=embedder)
    async with opened.running(scheduled=False):
        yield await opened.parts()
