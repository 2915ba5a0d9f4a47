"""Every write is one immediate transaction: seen in what SQLite is told, and in how two writers wait for each other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
import apsw
import pytest

from middleout_mcp.adapters.sqlite import connection, open_store
from middleout_mcp.ports import Store
from tests.contract.builders import LIVE, found, memory, put
from tests.server.connect import ask, connected, new_app

pytestmark = pytest.mark.anyio


@dataclass
class Heard:
    """What the connections of this process are told while it is listened to."""

    begun: dict[int, str] = field(default_factory=dict)
    """How each connection began its transaction, while one is open."""
    writes: list[tuple[str | None, str]] = field(default_factory=list)
    """Each statement that writes to the file, with how its transaction was begun."""
    waiting: threading.Event = field(default_factory=threading.Event)
    """Set when a connection asks for the right to write."""

    def note(self, cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        """Called by apsw before each statement; True lets it go on."""
        key, words = id(cursor.connection), sql.upper().split()
        if words[0] == "BEGIN":
            self.begun[key] = sql
            if sql == "BEGIN IMMEDIATE":
                self.waiting.set()
        elif words[0] in ("COMMIT", "ROLLBACK"):
            self.begun.pop(key, None)
        elif words[0] != "PRAGMA" and not cursor.is_readonly:
            self.writes.append((self.begun.get(key), sql))
        return True


@contextmanager
def listening() -> Iterator[Heard]:
    """Listen to every connection that is opened meanwhile."""
    heard = Heard()

    def listen(opened: apsw.Connection) -> None:
        opened.exec_trace = heard.note

    apsw.connection_hooks.append(listen)
    try:
        yield heard
    finally:
        apsw.connection_hooks.remove(listen)


async def store_of(folder: Path) -> Store:
    return await open_store(folder / "memory.db", embedder_name=None, dimension=None)


async def test_every_statement_that_writes_is_in_an_immediate_transaction(tmp_path: Path) -> None:
    turns = [{"role": "user", "text": f"The tunnel to bay {number} was dug by Ann."} for number in range(12)]
    with listening() as heard:
        app = new_app(tmp_path, active_sessions=0)
        async with connected(app, "auto") as client:
            told = await ask(client, "remember", messages=turns, thread="t", session="first")
            ids = [result["id"] for result in told["results"]]
            await ask(client, "remember", memories=[{"id": ids[0], "text": "Ann digs tunnels."}], session="second")
            await ask(client, "recall", query="tunnel", used=[ids[1]])
            for action in ("suppress", "demote", "expire", "archive", "restore"):
                await ask(client, "forget", ids=ids[1:2], action=action)
            await ask(client, "forget", ids=ids[2:4], action="merge")
            await ask(client, "forget", ids=ids[4:5], action="redact", spans=["tunnel"])
            await ask(client, "forget", ids=ids[5:6], action="erase")
            await ask(client, "forget", ids=[told["operation_id"]], action="restore")
            await ask(client, "compress", dry_run=False)
            await app.settled()
    written = {next(word for word in sql.split()[1:] if word.islower()).partition("(")[0] for _, sql in heard.writes}
    assert {"memory", "memory_version", "turn", "episode", "session", "operation", "use", "tombstone", "run"} <= written
    assert [sql for how, sql in heard.writes if how != "BEGIN IMMEDIATE"] == []
    assert heard.begun == {}


async def test_a_write_waits_for_that_of_another_connection_and_builds_on_it(tmp_path: Path) -> None:
    first = await store_of(tmp_path)
    await put(first, memory("before"))
    await first.control.close()
    other = connection.connect(tmp_path / "memory.db", writing=True, synchronous="full")
    with listening() as heard:
        store = await store_of(tmp_path)
        assert await found(store, LIVE) == ["before"]
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE memory SET importance = 0.25")
        heard.waiting.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, store, memory("after"))
            assert await anyio.to_thread.run_sync(heard.waiting.wait, 10)
            assert await found(store, LIVE) == ["before"]  # a reader waits for nobody
            other.execute("COMMIT")
        assert sorted(await found(store, LIVE)) == ["after", "before"]
        assert other.execute("SELECT text, importance FROM memory ORDER BY n").fetchall() == [
            ("before", 0.25),
            ("after", 0.3),
        ]
        await store.control.close()
    other.close()
