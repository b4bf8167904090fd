"""Fixtures of a worker: its settings, its context and a tiny watched repository."""

from tests.worker.fixtures.worker_context import context, drain, known_cubins, no_compiler_left, repository, settings

__all__ = ["context", "drain", "known_cubins", "no_compiler_left", "repository", "settings"]
