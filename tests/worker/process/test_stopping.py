"""A process of a worker's pool knows whether the worker was told to stop."""

import subprocess
import sys

WORKER = """
import multiprocessing
from tilewatch.worker.process import stopping

def answer(pool):
    while pool.recv():
        pool.send(stopping.is_stopping())

stopping.PATIENCE_S = 0.0
parent, pool = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=answer, args=(pool,))
process.start()
for mark in (lambda: None, stopping.mark):
    mark()
    parent.send(True)
    print(parent.recv())
parent.send(False)
process.join()
"""
"""A program of its own: pytest's process has other threads, and a fork of it keeps the locks that they hold."""


def test_what_the_parent_marks_is_seen_by_processes_that_it_forked_before() -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
