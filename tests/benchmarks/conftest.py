"""Fixtures of benchmarks that read what a worker leaves."""

from tests.worker.fixtures.worker_context import context, drain, known_cubins, no_compiler_left, repository, settings

__all__ = ["context", "drain", "known_cubins", "no_compiler_left", "repository", "settings"]
