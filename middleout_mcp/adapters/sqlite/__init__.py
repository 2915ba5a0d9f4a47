"""The store on one SQLite file; `open_store` is all that the rest of the project uses."""

from middleout_mcp.adapters.sqlite.opening import open_store

__all__ = ["open_store"]
