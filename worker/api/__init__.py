"""Serves programs by HTTP and agents by MCP. Both have the same operations."""
