"""The stores under contract, each opened on a folder of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from middleout_mcp.ports import Store
from tests.contract.builders import STORES


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new, empty store of each kind, whose embedder is called fake-words and makes eight dimensions."""
    opened = await STORES[request.param](tmp_path)
    yield opened
    await opened.control.close()
