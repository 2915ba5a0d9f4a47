"""The FTS5 table, and queries for it.

The table keeps its own copy of the text, which costs as much disk as the text itself: a row is then removed by its
number alone, whatever the tokenizer or the pairs of CJK characters looked like when it was written. Measured with
secure-delete on: own, external and no content leave nothing behind, `contentless_delete` leaves the terms.
"""

from collections.abc import Sequence

from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.records import Memory
from middleout_mcp.words import cjk_bigrams


def searchable(memory: Memory) -> str:
    """What is found by: the text, then tags, key, value and scope."""
    extras = (*memory.tags, memory.key, memory.value, memory.scope)
    return "\n".join([memory.text, *(extra for extra in extras if extra)])


def put(connection: Connection, n: int, memory: Memory) -> None:
    """Index the memory, in place of what was indexed under its number."""
    words = searchable(memory).replace("\0", " ")
    drop(connection, n)
    connection.execute(
        "INSERT INTO full_text (rowid, words, cjk) VALUES (?, ?, ?)", (n, words, " ".join(cjk_bigrams(words)))
    )


def drop(connection: Connection, n: int) -> None:
    """Remove the memory from the index."""
    connection.execute("DELETE FROM full_text WHERE rowid = ?", (n,))


def expression(terms: Sequence[str]) -> str | None:
    """An FTS5 query for any of the terms, every one quoted; None where nothing could match."""
    clean = dict.fromkeys(filter(None, map(_clean, terms)))
    pairs = dict.fromkeys(pair for term in clean for pair in cjk_bigrams(term))
    parts = [
        f"{column} : ({' OR '.join(map(_quoted, words))})"
        for column, words in (("words", clean), ("cjk", pairs))
        if words
    ]
    return " OR ".join(parts) or None


def _clean(term: str) -> str:
    return term.replace("\0", " ").encode("utf-8", "replace").decode().strip()


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
