"""Proposes a watch file for a repository that has none. Runs its tests and scripts, and records kernel calls."""
