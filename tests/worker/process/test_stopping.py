"""A process of a worker's pool knows whether the worker was told to stop."""

import multiprocessing

import pytest

from tilewatch.worker.process import stopping


def test_what_the_parent_marks_is_seen_by_processes_that_it_forked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "PATIENCE_S", 0.0)
    forking = multiprocessing.get_context("fork")
    ask, answers = forking.Queue(), forking.Queue()

    def pool() -> None:
        for _ in range(2):
            ask.get()
            answers.put(stopping.is_stopping())

    process = forking.Process(target=pool)
    process.start()
    ask.put(None)
    assert answers.get(timeout=60) is False
    stopping.mark()
    ask.put(None)
    assert answers.get(timeout=60) is True
    process.join()
    stopping._flag[0] = 0
