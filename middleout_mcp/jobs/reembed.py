"""Changing the embedding model: new vectors beside the old ones, resumable, switched to when none is missing."""

from collections.abc import Callable

from middleout_mcp.errors import InvalidInput
from middleout_mcp.jobs.upkeep import backfill
from middleout_mcp.memory.parts import Parts
from middleout_mcp.records import EmbeddingState

_BATCH = 64


async def reembed(parts: Parts, progress: Callable[[int, int], None]) -> EmbeddingState:
    """Give every memory a vector of the configured embedder. Interrupted, it goes on where it stopped.

    Raises InvalidInput where no embedder is set, EmbedderUnavailable where it cannot be loaded.
    """
    if parts.embedder is None:
        raise InvalidInput("no embedder is set; set MIDDLEOUT_EMBEDDER to a model first")
    await parts.embedder.embed(["dimension"])  # loads the model, or says why not, before anything is begun
    state = await parts.store.search.begin_reembed(parts.embedder.name, parts.embedder.dimension)
    progress(state.done, state.total)
    while state.target_name is not None:
        rows = await parts.store.search.reembed_batch(_BATCH)
        vectors = await parts.embedder.embed([row.text for row in rows]) if rows else []
        state = await parts.store.search.add_reembedded(list(zip(rows, vectors, strict=True)))
        progress(state.done, state.total)
    await backfill(parts)  # where the model is the one in use already, what is still pending is all there is to do
    await parts.later.drain()
    return state
