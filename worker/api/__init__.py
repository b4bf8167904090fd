"""Serves programs by HTTP and agents by MCP. Both can call the same operations."""
