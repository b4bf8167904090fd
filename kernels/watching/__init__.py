"""Watches operators in their own repository: traces what its host code launches, and compiles exactly that."""
