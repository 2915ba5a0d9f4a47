"""Fixtures that every test may use."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """All asynchronous tests run on asyncio, as the server does."""
    return "asyncio"
