"""The use cases: one module a tool, straight through."""
