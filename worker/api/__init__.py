"""Serves programs and agents by HTTP and MCP, with one list of operations for the two."""
