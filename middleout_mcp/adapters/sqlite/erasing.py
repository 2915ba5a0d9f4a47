"""Removing text for good, inside one transaction (DESIGN §10).

The bytes are overwritten by `secure_delete`, by the text index's option of that name, and by the checkpoint that
follows the commit. A row in `erasure_pending`, written by the same transaction, makes sure that it does follow: also
after a crash, and after a reader that held it up.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from middleout_mcp.adapters.sqlite import audit, fulltext, namespaces, traces, vectors
from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import EPISODE, RUN, bindable, from_list, to_json, to_ms
from middleout_mcp.adapters.sqlite.schema import HOLDER
from middleout_mcp.adapters.sqlite.writing import Applied
from middleout_mcp.conversation.capture import BY_RULE, is_by_rule, rule_ref, shown_ref
from middleout_mcp.errors import NotFound
from middleout_mcp.records import Episode, Grant, Kind, Operation, Status, new_id
from middleout_mcp.words import terms

TOMBSTONES = "tombstones.log"
_ROLE_LEFT = f"CASE WHEN {traces.OWN_ROLE} THEN 'unknown' ELSE role END"
"""What an erased turn keeps of its role: any other one is the caller's own word."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What one erase removed; `dropped` are summaries that nobody named."""

    applied: Applied
    memory_ids: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(slots=True)
class _Row:
    """What is needed of a memory to erase it."""

    n: int
    id: str
    ref: str | None
    holder: str
    thread: str | None
    turns: tuple[int, ...]
    session: str | None


def erase(
    connection: Connection,
    grant: Grant,
    memory_ids: Sequence[str],
    episode_ids: Sequence[str],
    operation: Operation,
    agent: str | None = None,
) -> Erased:
    """Erase memories and episodes of the write namespace, and everything derived from them. Raises NotFound first.

    What is private to another than `agent` does not exist for it.
    """
    namespace = namespaces.ensure(connection, grant, [operation])
    work = Erasing(connection, namespace, operation, agent)
    episodes = [work.episode(episode_id) for episode_id in dict.fromkeys(episode_ids)]
    named = [work.memory(memory_id) for memory_id in dict.fromkeys(memory_ids)]
    for _, episode in episodes:
        named += work.existing(episode.memory_ids)
    rows = work.all_that_says_it(named)
    derived = {row.id: row for row in work.derived(rows) if row.id not in rows}
    for row in (*rows.values(), *derived.values()):
        work.drop_memory(row)
    work.let_go([*rows, *derived])
    for row in rows.values():  # not those of `derived`: their turns are the survivors' as well
        work.empty_turns(row.thread, row.turns)
    for n, episode in episodes:
        work.drop_episode(n, episode)
    work.blank_episodes()
    work.clean_runs({*rows, *derived})
    work.forget_labels((*rows.values(), *derived.values()), [episode for _, episode in episodes])
    connection.execute("INSERT OR IGNORE INTO erasure_pending VALUES (1)")
    counts = {"memories": len(rows) + len(derived), "episodes": len(episodes), "turns": work.emptied}
    operation = replace(
        operation,
        memory_ids=(*rows, *derived),
        counts={**operation.counts, **counts},
        undoable=False,
        reason=None if traces.repeats(operation.reason, work.said) else operation.reason,
    )
    head = audit.append(connection, namespace, operation)
    return Erased(Applied(operation, head), tuple(rows), tuple(derived))


@dataclass(slots=True)
class Erasing:
    """The steps of one erase."""

    connection: Connection
    namespace: int
    operation: Operation
    agent: str | None = None
    """Whose private memories exist here; None: every agent's."""
    emptied: int = 0
    said: set[str] = field(default_factory=set)
    """Terms of what was erased."""
    blank: set[int] = field(default_factory=set)
    """The episodes that said something of it."""
    tables: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.tables = vectors.space(self.connection).tables

    def episode(self, episode_id: str) -> tuple[int, Episode]:
        """An episode's number and record. Raises NotFound."""
        row = self.connection.execute(
            f"SELECT e.n, {EPISODE.select('e')} FROM episode e "
            "WHERE e.namespace = ? AND e.id = ? AND e.erased_at IS NULL",
            (self.namespace, bindable(episode_id)),
        ).fetchone()
        if row is None:
            raise NotFound(f"There is no episode {episode_id[:40]!r} to erase.")
        return row[0], EPISODE.decode(row[1:], self.operation.namespace)

    def memory(self, memory_id: str) -> _Row:
        """A memory's row. Raises NotFound."""
        found = self.existing([memory_id])
        if not found:
            raise NotFound(f"There is no memory {memory_id[:40]!r} to erase.")
        return found[0]

    def existing(self, ids: Iterable[str]) -> list[_Row]:
        """The rows of those ids that exist."""
        rows = []
        for memory_id in dict.fromkeys(ids):
            row: Any = self.connection.execute(
                f"SELECT n, id, kind, ref, {HOLDER}, thread, turns, session FROM memory "
                f"WHERE namespace = ?1 AND id = ?2 AND (?3 IS NULL OR {HOLDER} IN ('', ?3))",
                (self.namespace, bindable(memory_id), self.agent),
            ).fetchone()
            if row is not None:
                n, found, kind, ref, holder, thread, turns, session = row
                seqs = from_list(turns)
                if kind == Kind.EVENT and is_by_rule(ref, thread, seqs):
                    ref = BY_RULE + ref.removeprefix(BY_RULE)  # one without the mark gets it with its tombstone
                rows.append(_Row(n, found, ref, holder, thread, seqs, session))
        return rows

    def all_that_says_it(self, named: Sequence["_Row"]) -> dict[str, "_Row"]:
        """These rows, the copies merged into them and the turns filed as memories, to any depth, by id."""
        rows = {row.id: row for row in named}
        front = list(rows.values())
        while front:
            reached = (*self.merged_into(front), *self.spoken(front))
            front = [row for row in {row.id: row for row in reached}.values() if row.id not in rows]
            rows |= {row.id: row for row in front}
        return rows

    def spoken(self, rows: Sequence["_Row"]) -> list["_Row"]:
        """The memories that are one of the turns which go with these rows, word for word, as rules file them."""
        refs = [rule_ref(row.thread, seq) for row in rows if row.thread is not None for seq in row.turns]
        found: list[Any] = self.connection.execute(
            "SELECT id, ref, thread, turns FROM memory WHERE namespace = ? AND kind = 'event' "
            "AND ref IN (SELECT value FROM json_each(?))",
            (self.namespace, to_json([*refs, *map(shown_ref, refs)])),
        ).fetchall()
        return self.existing(each for each, ref, thread, turns in found if is_by_rule(ref, thread, from_list(turns)))

    def merged_into(self, winners: Sequence["_Row"]) -> list["_Row"]:
        """The copies that were merged into these, to any depth: they say the same."""
        return self._reached(
            [row.id for row in winners], "SELECT id FROM memory WHERE +namespace = ? AND merged_into = ?"
        )

    def derived(self, ids: Iterable[str]) -> list["_Row"]:
        """Everything that was made from these memories, to any depth."""
        return self._reached(
            ids, "SELECT m.id FROM derivation d JOIN memory m ON m.n = d.memory WHERE +m.namespace = ? AND d.parent = ?"
        )

    def _reached(self, ids: Iterable[str], next_ids: str) -> list["_Row"]:
        """The rows that following `next_ids` from these ids comes to, the ids' own included. The plus sign in it keeps
        SQLite from walking the whole namespace for each id.
        """
        seen = dict.fromkeys(ids)
        front = list(seen)
        while front:
            fresh = [reached for (reached,) in self.connection.execute(next_ids, (self.namespace, front.pop()))]
            front += [reached for reached in fresh if reached not in seen]
            seen |= dict.fromkeys(fresh)
        return self.existing(seen)

    def drop_memory(self, row: _Row) -> None:
        """Remove a memory with its versions, key, uses and undo content (they go with the row), and indexes."""
        self.said |= traces.said_by_memory(self.connection, row.n)
        fulltext.drop(self.connection, row.n)
        vectors.drop(self.connection, self.tables, row.n)
        self.connection.execute("DELETE FROM memory WHERE n = ?", (row.n,))
        self.connection.execute(
            "INSERT INTO tombstone (namespace, id, ref, holder, at, agent, reason, counts)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.namespace,
                row.id,
                row.ref,
                row.holder,
                to_ms(self.operation.at),
                self.operation.agent,
                self.operation.reason,
                to_json({"turns": len(row.turns)}),
            ),
        )

    def empty_turns(self, thread: str | None, seqs: Iterable[int]) -> None:
        """Empty turns whole, and the line and key of every episode that held one of them."""
        n = self.connection.execute("SELECT n FROM thread WHERE namespace = ? AND id = ?", (self.namespace, thread)).get
        for seq in seqs:
            self.said |= traces.said_by_turn(self.connection, n, seq)
            self.connection.execute(
                f"UPDATE turn SET text = '', role = {_ROLE_LEFT}, name = NULL, present = NULL, data = NULL, erased = 1 "
                "WHERE thread = ? AND seq = ? AND erased = 0",
                (n, seq),
            )
            self.emptied += self.connection.changes()
            held: list[Any] = self.connection.execute(
                "SELECT n FROM episode WHERE namespace = ? AND thread = ? AND ? BETWEEN first_seq AND last_seq",
                (self.namespace, thread, seq),
            ).fetchall()
            self.blank.update(episode for (episode,) in held)

    def let_go(self, gone: Sequence[str]) -> None:
        """Take memories out of what names them: other memories, and the episodes that they were filed in."""
        ids, lost = to_json(gone), set(gone)
        hidden: list[Any] = self.connection.execute(
            "SELECT n, status FROM memory WHERE namespace = ? AND summary_id IN (SELECT value FROM json_each(?))",
            (self.namespace, ids),
        ).fetchall()
        for n, status in hidden:  # what a summary stood for is found again
            vectors.restatus(self.connection, self.tables, n, vectors.code(Status(status), None))
        for column in ("summary_id", "merged_into", "superseded_by"):
            self.connection.execute(
                f"UPDATE memory SET {column} = NULL WHERE namespace = ? "
                f"AND {column} IN (SELECT value FROM json_each(?))",
                (self.namespace, ids),
            )
        rows: list[Any] = self.connection.execute(
            "SELECT e.n, e.memory_ids FROM episode e WHERE e.namespace = ? AND EXISTS "
            "(SELECT 1 FROM json_each(e.memory_ids) j WHERE j.value IN (SELECT value FROM json_each(?)))",
            (self.namespace, ids),
        ).fetchall()
        for n, filed in rows:
            left = [memory_id for memory_id in from_list(filed) if memory_id not in lost]
            self.connection.execute("UPDATE episode SET memory_ids = ? WHERE n = ?", (to_json(left), n))
            self.blank.add(n)

    def blank_episodes(self) -> None:
        """Empty what episodes say of turns that are gone: the line, a key that is a digest of them, undo content of
        both.
        """
        for n in sorted(self.blank):
            line = self.connection.execute("SELECT line FROM episode WHERE n = ?", (n,)).get
            self.said.update(terms(line or ""))
            self.connection.execute(
                "UPDATE episode SET line = '', key = 'erased:' || id, revision = revision + 1 WHERE n = ?", (n,)
            )
            self.connection.execute("DELETE FROM undo_episode WHERE episode = ?", (n,))

    def drop_episode(self, n: int, episode: Episode) -> None:
        """Erase an episode with its turns; its row stays, empty, so that its id never opens again."""
        self.empty_turns(episode.thread, range(episode.first_seq, episode.last_seq + 1))
        self.blank.add(n)
        self.connection.execute(
            "UPDATE episode SET erased_at = ?, memory_ids = '[]', tokens = 0 WHERE n = ?", (to_ms(self.operation.at), n)
        )
        self.connection.execute(  # what is another agent's own stays, without this evidence
            "UPDATE memory SET episode_id = NULL, turns = '[]' WHERE namespace = ? AND episode_id = ?",
            (self.namespace, episode.id),
        )

    def clean_runs(self, gone: set[str]) -> None:
        """Take the erased ids out of compression plans."""
        rows = self.connection.execute(
            f"SELECT {RUN.select('r')} FROM run r WHERE r.namespace = ?", (self.namespace,)
        ).fetchall()
        for row in rows:
            run = RUN.decode(row, self.operation.namespace)
            groups = run.plan.get("clusters", [])
            left = [[member for member in group if member not in gone] for group in groups]
            if left != groups:
                self.connection.execute(
                    "UPDATE run SET plan = ? WHERE namespace = ? AND id = ?",
                    (to_json({**run.plan, "clusters": left}), self.namespace, run.id),
                )
        traces.forget_targets(self.connection, self.namespace)

    def forget_labels(self, rows: Sequence[_Row], episodes: Sequence[Episode]) -> None:
        """Take the caller's own words about what is gone out of the log, and out of names that name nothing now."""
        traces.forget_reasons(
            self.connection, self.namespace, [row.id for row in rows], [episode.id for episode in episodes]
        )
        for session in {row.session for row in rows} | {episode.session for episode in episodes}:
            named = self.connection.execute(
                "SELECT name FROM session WHERE namespace = ?1 AND id = ?2 "
                "AND NOT EXISTS (SELECT 1 FROM memory m WHERE m.namespace = ?1 AND m.session = ?2)",
                (self.namespace, session),
            ).get
            self.forget_session(session, named)
        for thread in {row.thread for row in rows} | {episode.thread for episode in episodes}:
            if thread is not None and not self._in_use(thread):
                self.said.update(terms(thread))
                self._rename(thread)
        traces.forget_repetitions(self.connection, self.namespace, self.said)

    def forget_session(self, session: str | None, name: str | None) -> None:
        """Take its name from a session, where it has one."""
        if name is not None:
            self.said.update(terms(name))
            self.connection.execute(
                "UPDATE session SET name = NULL WHERE namespace = ? AND id = ?", (self.namespace, session)
            )

    def _in_use(self, thread: str) -> bool:
        return bool(
            self.connection.execute(
                "SELECT EXISTS (SELECT 1 FROM memory WHERE namespace = ?1 AND thread = ?2)"
                " OR EXISTS (SELECT 1 FROM episode WHERE namespace = ?1 AND thread = ?2 AND erased_at IS NULL)"
                " OR EXISTS (SELECT 1 FROM turn u JOIN thread t ON t.n = u.thread"
                " WHERE t.namespace = ?1 AND t.id = ?2 AND u.erased = 0)",
                (self.namespace, thread),
            ).get
        )

    def _rename(self, thread: str) -> None:
        """Give a thread of which nothing is left a name that tells nothing; its numbers stay taken under that name."""
        blank = "erased_" + new_id("e").partition("_")[2]
        for table, column in (("thread", "id"), ("episode", "thread")):
            self.connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE namespace = ? AND {column} = ?",
                (blank, self.namespace, thread),
            )
        self.connection.execute(
            "UPDATE run SET target = ? WHERE namespace = ? AND target = ?",
            (f"thread:{blank}", self.namespace, f"thread:{thread}"),
        )
        self.connection.execute(  # the references of memories made by rule begin with the thread's name
            "UPDATE tombstone SET ref = ?1 || substr(ref, length(?3) + 1) WHERE namespace = ?2 "
            "AND substr(ref, 1, length(?3)) = ?3 AND substr(ref, length(?3) + 1) NOT GLOB '*[^0-9]*'",
            (f"{BY_RULE}{blank}:", self.namespace, f"{BY_RULE}{thread}:"),
        )


def is_pending(connection: Connection) -> bool:
    """Whether erased bytes may still lie in the journal file, or ids be missing in the tombstone log."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM erasure_pending)").get)


def log_tombstones(connection: Connection, folder: Path) -> None:
    """Append the ids of tombstones to the log beside the file, on the disk before they count as logged."""
    rows = connection.execute("SELECT n, id FROM tombstone WHERE logged = 0 ORDER BY n").fetchall()
    if not rows:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)  # a pipe is not waited for
    with open(os.open(folder / TOMBSTONES, flags, 0o600), "a") as log:
        log.writelines(f"{erased}\n" for _, erased in rows)
        log.flush()
        os.fsync(log.fileno())
    connection.executemany("UPDATE tombstone SET logged = 1 WHERE n = ?", [(n,) for n, _ in rows])


def settle(connection: Connection) -> None:
    """Note that the journal was emptied; this write holds no text."""
    connection.execute("DELETE FROM erasure_pending")
