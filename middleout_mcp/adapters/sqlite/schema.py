"""The tables, as ordered named migrations, each applied in one transaction with its record.

`n` is a row's own number: never reused, and the row number in the full text and vector tables. Ids are unique within a
namespace only, so that an id of another namespace cannot be told from one that never existed. Times are integers, in
milliseconds since 1970 UTC. Lists are JSON. The vector tables are made when the model is known (see `vectors`).
`ANALYZE` must never be run here: its samples would keep erased text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.errors import StoreCorrupt, StoreTooNew, StoreUnavailable

APPLICATION_ID = 0x4D4F7574
Migration: TypeAlias = tuple[str, str]

_CONTENT = """
CREATE TABLE namespace (n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE memory (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace INTEGER NOT NULL REFERENCES namespace (n),
    id TEXT NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, status TEXT NOT NULL,
    at INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    agent TEXT NOT NULL, source TEXT NOT NULL, trust TEXT NOT NULL, privacy TEXT NOT NULL,
    confidence REAL NOT NULL, importance REAL NOT NULL, emotional_weight REAL NOT NULL,
    tags TEXT NOT NULL, key TEXT, value TEXT, scope TEXT, known_by TEXT,
    state TEXT, due INTEGER, pinned INTEGER NOT NULL,
    ref TEXT, session TEXT, thread TEXT, episode_id TEXT, turns TEXT NOT NULL,
    valid_from INTEGER, valid_to INTEGER, expires_at INTEGER, expires_session TEXT,
    suppressed_until INTEGER, suppressed_in TEXT,
    demoted INTEGER NOT NULL, disputed INTEGER NOT NULL, redacted INTEGER NOT NULL,
    merged_into TEXT, superseded_by TEXT, summary_id TEXT, parents TEXT NOT NULL,
    rung INTEGER NOT NULL, copies INTEGER NOT NULL, use REAL NOT NULL, last_used_at INTEGER,
    embedded INTEGER NOT NULL DEFAULT 0, embedded_next INTEGER NOT NULL DEFAULT 0, text_hash INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX memory_id ON memory (id);
CREATE UNIQUE INDEX memory_ref ON memory (namespace, ref) WHERE ref IS NOT NULL;
CREATE INDEX memory_at ON memory (namespace, at);
CREATE INDEX memory_updated ON memory (namespace, updated_at);
CREATE INDEX memory_due ON memory (namespace, due) WHERE due IS NOT NULL;
CREATE INDEX memory_pinned ON memory (namespace) WHERE pinned = 1;
CREATE INDEX memory_thread ON memory (namespace, thread) WHERE thread IS NOT NULL;
CREATE INDEX memory_session ON memory (namespace, session) WHERE session IS NOT NULL;
CREATE INDEX memory_text ON memory (namespace, text_hash);
CREATE INDEX memory_summary ON memory (summary_id) WHERE summary_id IS NOT NULL;
CREATE INDEX memory_merged ON memory (merged_into) WHERE merged_into IS NOT NULL;
CREATE INDEX memory_pending ON memory (n) WHERE embedded = 0;
CREATE TABLE memory_version (
    memory INTEGER NOT NULL REFERENCES memory (n) ON DELETE CASCADE,
    version INTEGER NOT NULL, record TEXT NOT NULL,
    UNIQUE (memory, version)
) STRICT;
CREATE TABLE derivation (
    parent TEXT NOT NULL, memory INTEGER NOT NULL REFERENCES memory (n) ON DELETE CASCADE,
    PRIMARY KEY (parent, memory)
) STRICT, WITHOUT ROWID;
CREATE INDEX derivation_memory ON derivation (memory);
CREATE TABLE use (
    memory INTEGER NOT NULL REFERENCES memory (n) ON DELETE CASCADE,
    session TEXT NOT NULL, weight REAL NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (memory, session)
) STRICT, WITHOUT ROWID;
"""

_THREADS = """
CREATE TABLE thread (
    n INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespace (n), id TEXT NOT NULL, agent TEXT NOT NULL,
    turns INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX thread_updated ON thread (namespace, agent, updated_at);
CREATE TABLE turn (
    thread INTEGER NOT NULL REFERENCES thread (n), seq INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL,
    at INTEGER NOT NULL, at_given INTEGER NOT NULL, name TEXT, present TEXT, data TEXT, erased INTEGER NOT NULL,
    PRIMARY KEY (thread, seq)
) STRICT;
CREATE TABLE session (
    namespace INTEGER NOT NULL REFERENCES namespace (n), id TEXT NOT NULL, agent TEXT NOT NULL, key TEXT NOT NULL,
    name TEXT, started_at INTEGER NOT NULL, last_at INTEGER NOT NULL, turns INTEGER NOT NULL, ended_at INTEGER,
    PRIMARY KEY (namespace, id)
) STRICT;
CREATE INDEX session_last ON session (namespace, last_at);
CREATE TABLE episode (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace INTEGER NOT NULL REFERENCES namespace (n), id TEXT NOT NULL, thread TEXT NOT NULL, key TEXT NOT NULL,
    start INTEGER NOT NULL, "end" INTEGER NOT NULL, line TEXT NOT NULL,
    first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, memory_ids TEXT NOT NULL,
    tokens INTEGER NOT NULL, agent TEXT NOT NULL, session TEXT, created_at INTEGER NOT NULL,
    archived INTEGER NOT NULL, erased_at INTEGER,
    revision INTEGER NOT NULL DEFAULT 1,
    UNIQUE (namespace, id), UNIQUE (namespace, thread, key)
) STRICT;
CREATE INDEX episode_turns ON episode (namespace, thread, first_seq);
"""

_SEARCH = """
CREATE VIRTUAL TABLE full_text USING fts5 (words, cjk, tokenize = 'porter unicode61 remove_diacritics 2');
INSERT INTO full_text (full_text, rank) VALUES ('secure-delete', 1);
CREATE TABLE embedding (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1), generation INTEGER NOT NULL,
    name TEXT, dimension INTEGER, target_name TEXT, target_dimension INTEGER
) STRICT;
INSERT INTO embedding (only_row, generation) VALUES (1, 0);
"""

_JOURNAL = """
CREATE TABLE operation (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, namespace INTEGER NOT NULL REFERENCES namespace (n), id TEXT NOT NULL,
    kind TEXT NOT NULL, at INTEGER NOT NULL, agent TEXT NOT NULL, session TEXT, reason TEXT,
    memory_ids TEXT NOT NULL, episode_ids TEXT NOT NULL, counts TEXT NOT NULL,
    undoable INTEGER NOT NULL, undoes TEXT, undone_by TEXT,
    content TEXT NOT NULL, hash TEXT NOT NULL,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX operation_newest ON operation (namespace, seq);
CREATE TABLE operation_memory (
    memory_id TEXT NOT NULL, operation INTEGER NOT NULL REFERENCES operation (seq),
    PRIMARY KEY (memory_id, operation)
) STRICT, WITHOUT ROWID;
CREATE TABLE memory_key (
    memory INTEGER PRIMARY KEY REFERENCES memory (n) ON DELETE CASCADE, key BLOB NOT NULL, since INTEGER NOT NULL
) STRICT;
CREATE TABLE undo_memory (
    operation INTEGER NOT NULL REFERENCES operation (seq),
    memory INTEGER NOT NULL REFERENCES memory (n) ON DELETE CASCADE,
    before INTEGER, after INTEGER NOT NULL, use_after REAL NOT NULL,
    PRIMARY KEY (operation, memory)
) STRICT, WITHOUT ROWID;
CREATE INDEX undo_memory_memory ON undo_memory (memory);
CREATE TABLE undo_episode (
    operation INTEGER NOT NULL REFERENCES operation (seq),
    episode INTEGER NOT NULL REFERENCES episode (n) ON DELETE CASCADE,
    before TEXT, after INTEGER NOT NULL,
    PRIMARY KEY (operation, episode)
) STRICT;
CREATE INDEX undo_episode_episode ON undo_episode (episode);
CREATE TABLE run (
    namespace INTEGER NOT NULL REFERENCES namespace (n), id TEXT NOT NULL, status TEXT NOT NULL, target TEXT NOT NULL,
    plan TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, agent TEXT NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT;
CREATE TABLE tombstone (
    n INTEGER PRIMARY KEY, namespace INTEGER NOT NULL REFERENCES namespace (n), id TEXT NOT NULL, ref TEXT,
    at INTEGER NOT NULL, agent TEXT NOT NULL, reason TEXT, counts TEXT NOT NULL, logged INTEGER NOT NULL DEFAULT 0,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX tombstone_ref ON tombstone (namespace, ref) WHERE ref IS NOT NULL;
CREATE INDEX tombstone_unlogged ON tombstone (n) WHERE logged = 0;
CREATE TABLE erasure_pending (only_row INTEGER PRIMARY KEY CHECK (only_row = 1)) STRICT;
"""

HOLDER = "CASE privacy WHEN 'private' THEN agent ELSE '' END"
"""Of a memory: the agent that alone may know of it, or '' for one that all may see. A `ref` is taken once a holder, so
that nobody can find out by using it that another agent's private memory has it."""

_REFERENCES = f"""
DROP INDEX memory_ref;
CREATE UNIQUE INDEX memory_ref ON memory (namespace, ref, ({HOLDER})) WHERE ref IS NOT NULL;
ALTER TABLE tombstone ADD COLUMN holder TEXT NOT NULL DEFAULT '';
"""

_JOBS = """
ALTER TABLE operation ADD COLUMN part_of TEXT;
CREATE INDEX operation_part ON operation (namespace, part_of) WHERE part_of IS NOT NULL;
CREATE INDEX run_status ON run (namespace, status);
CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL) STRICT;
CREATE TABLE job (
    name TEXT PRIMARY KEY, last_run INTEGER, next_run INTEGER, last_error TEXT, data TEXT NOT NULL
) STRICT;
"""

MIGRATIONS: tuple[Migration, ...] = (
    ("0001_content", _CONTENT),
    ("0002_threads", _THREADS),
    ("0003_search", _SEARCH),
    ("0004_journal", _JOURNAL),
    ("0005_references", _REFERENCES),
    ("0006_jobs", _JOBS),
)


def check(connection: Connection, file: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """How many migrations the file has; reads only. Raises StoreTooNew, StoreCorrupt for a file that is not what
    it says, or StoreUnavailable for a foreign one.
    """
    version: int = connection.pragma("user_version")
    tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if connection.pragma("application_id") != APPLICATION_ID:
        if tables:
            raise StoreUnavailable(
                f"{file} is a database of another program; it was left untouched. Name another file."
            )
        return 0
    if version > len(migrations):
        raise StoreTooNew(
            f"{file} has schema version {version}, and this program knows versions up to {len(migrations)}; "
            "it was left untouched. Update middleout-mcp."
        )
    # In one look: another process may be migrating.
    query = "SELECT (SELECT count(*) FROM migration), user_version FROM pragma_user_version"
    row: Any = connection.execute(query).fetchone()
    applied, version = row
    if applied != version:
        raise StoreCorrupt(
            f"{file} says that it has schema version {version}, but its tables are those of version {applied}; "
            "put a backup in its place or move it away."
        )
    return version


def migrate(connection: Connection, file: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Apply what is missing, each migration in its own transaction. Returns the schema version."""
    version = check(connection, file, migrations)
    while version < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = check(connection, file, migrations)  # another process may have been faster
            if version < len(migrations):
                _apply(connection, version, *migrations[version])
                version += 1
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return version


def _apply(connection: Connection, version: int, name: str, statements: str) -> None:
    if version == 0:
        connection.pragma("application_id", APPLICATION_ID)
        connection.execute("CREATE TABLE migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT")
    connection.execute(statements)
    connection.execute("INSERT INTO migration VALUES (?, ?)", (version + 1, name))
    connection.pragma("user_version", version + 1)
