"""Every error the project raises on purpose.

MiddleoutError
├── InvalidInput          the caller can mend it: one sentence, with the mend
│   └── NotFound          an id that does not exist, or is not visible here
├── NotSupportedYet       a value of the contract that this version cannot serve
├── Conflict              the record changed meanwhile; nothing was written
├── StoreUnavailable      the file cannot be used now (locked, read-only, disk full)
│   ├── StoreCorrupt      the file is damaged
│   ├── StoreClosed       the store was closed meanwhile, as when the process ends
│   ├── StoreMoved        the file is not where it was when it was opened
│   └── StoreTooNew       the file was written by a newer version
├── EmbedderMismatch      the file's vectors come from another model or dimension
├── EmbedderUnavailable   no embedder could be loaded; text search goes on without
├── ClusteringFailed      no themes could be looked for; compression goes on without
└── ClientFileError       a client's configuration file cannot be read or changed

Each carries one human sentence and a short `code`; the server maps codes to protocol results in one place.
"""


class MiddleoutError(Exception):
    """Base of every error here: `str(error)` is one sentence fit for a model or a person."""

    code = "error"


class InvalidInput(MiddleoutError):
    """The input is wrong; the sentence says what and how to mend it. Nothing was changed."""

    code = "invalid_input"


class NotFound(InvalidInput):
    """No such id. The same sentence for an id of another namespace as for one that never existed."""

    code = "not_found"


class NotSupportedYet(MiddleoutError):
    """The contract names this value, but this version cannot serve it."""

    code = "not_supported"


class Conflict(MiddleoutError):
    """Another writer changed the record first. Nothing was changed; read again and retry."""

    code = "conflict"


class StoreUnavailable(MiddleoutError):
    """The memory file cannot be read or written at the moment. Nothing was changed."""

    code = "store_unavailable"


class StoreCorrupt(StoreUnavailable):
    """The memory file is damaged."""

    code = "store_corrupt"


class StoreClosed(StoreUnavailable):
    """The store was closed in the middle of the call, as when the process ends: no fault, and nothing was changed."""


class StoreMoved(StoreUnavailable):
    """The memory file was removed, moved or replaced while it was open. Nothing was changed; open the store anew."""

    code = "store_moved"


class StoreTooNew(StoreUnavailable):
    """The memory file has a schema this version does not know; it was left untouched."""

    code = "store_too_new"


class EmbedderMismatch(MiddleoutError):
    """The configured embedder is not the one whose vectors are in the file."""

    code = "embedder_mismatch"


class EmbedderUnavailable(MiddleoutError):
    """The embedder could not be loaded."""

    code = "embedder_unavailable"


class ClusteringFailed(MiddleoutError):
    """The process that looks for themes failed or took too long."""

    code = "clustering_failed"


class ClientFileError(MiddleoutError):
    """The configuration file of a client cannot be read or changed. It was left as it is."""

    code = "client_file"
