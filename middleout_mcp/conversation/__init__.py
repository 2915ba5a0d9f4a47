"""Threads, stretches and the buffer (pure)."""
