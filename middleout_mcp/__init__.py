"""Memory for LLM clients and agents that gets smaller without getting worse."""

__version__ = "0.1.0"
