"""Small batches of work that keep the store in order."""

from middleout_mcp.errors import EmbedderUnavailable
from middleout_mcp.memory.parts import Parts

_BATCH = 64


async def backfill(parts: Parts) -> None:
    """Give a batch of pending memories their vectors and queue the next batch, so that other work comes in between.

    Stops where the embedder cannot be loaded; the next remembered memory tries again.
    """
    if parts.embedder is None:
        return
    rows = await parts.store.search.pending(_BATCH)
    if not rows:
        return
    try:
        vectors = await parts.embedder.embed([row.text for row in rows])
    except EmbedderUnavailable:
        return
    stored = await parts.store.search.add_vectors(list(zip(rows, vectors, strict=True)))
    if stored:  # none stored: every row changed meanwhile or another process was faster; whoever did that goes on
        parts.later.put(lambda: backfill(parts))


async def keep_up(parts: Parts) -> None:
    """What is due every few seconds: overwrite what a reader kept an erase from overwriting, embed what is pending.

    The embedder is not loaded for pending memories alone; they wait for the next call that needs it.
    """
    await parts.store.memories.finish_erasures()
    if parts.embedder is not None and parts.embedder.loaded:
        await backfill(parts)
