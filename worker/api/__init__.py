"""HTTP and MCP for programs and agents: one list of operations, served in both ways."""
