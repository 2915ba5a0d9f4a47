"""The adapters: each wraps one third-party engine behind a port."""
