"""The MCP server: what clients see, and how it starts and stops."""
