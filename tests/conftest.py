"""Fixtures that every test may use."""

import pytest

from tests.fakes import FakeClock, FakeEmbedder


@pytest.fixture
def anyio_backend() -> str:
    """All asynchronous tests run on asyncio, as the server does."""
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()
