"""Proposes a watch file for a repository, from kernel calls that its tests and scripts make."""
