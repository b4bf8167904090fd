"""Starts children that own no GPU by forking a process that has imported what they need."""
