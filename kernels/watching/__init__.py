"""Watches operators where they live: records what a repository's own host code launches, and compiles exactly that."""
