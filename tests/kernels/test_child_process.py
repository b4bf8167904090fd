"""A child that hangs, dies or prints: a deadline, its last words, no credentials, nothing left behind."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tilewatch.kernels.child_process import ChildDied, ChildHung, ChildProcess

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildProcess, "program", ("-m", "tests.kernels.fixtures.obedient_child"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@contextlib.contextmanager
def started(**options: object) -> Iterator[ChildProcess]:
    child = ChildProcess("any", **options)  # type: ignore[arg-type]
    try:
        yield child
    finally:
        child.close()


def test_answers_come_in_order_whatever_their_size() -> None:
    with started() as child:
        for size in (1, 1 << 18, 3):
            assert len(child.ask({"do": "echo", "text": "x" * size}, deadline_s=30)["text"]) == size


def test_what_was_begun_is_answered_by_nobody_and_a_death_in_it_is_told_to_the_next() -> None:
    with started() as child:
        child.begin({"do": "echo", "text": "begun"})
        assert [child.ask({"do": "echo", "text": text}, deadline_s=30)["text"] for text in "ab"] == ["a", "b"]
    with started() as child:
        child.begin({"do": "die", "text": "no module named ops"})
        with pytest.raises(ChildDied, match="exit code 3: no module named ops"):
            child.ask({"do": "pid"}, deadline_s=30)


def test_no_answer_before_the_deadline_ends_the_child() -> None:
    with started() as child:
        pid = child.ask({"do": "pid"}, deadline_s=30)["pid"]
        with pytest.raises(ChildHung):
            child.ask({"do": "sleep"}, deadline_s=0.2)
        assert not child.alive
        assert not psutil.pid_exists(pid)


def test_a_death_has_its_signal_or_exit_code_and_the_last_line_as_message() -> None:
    for request, words in (
        ({"do": "die", "text": "first\nout of memory\n\n"}, "exit code 3: out of memory"),
        ({"do": "die", "text": ""}, "exit code 3"),
        ({"do": "abort"}, "SIGABRT"),
    ):
        with started() as child:
            with pytest.raises(ChildDied) as died:
                child.ask(request, deadline_s=30)
            assert str(died.value) == words
            assert not child.alive
            with pytest.raises(ChildDied, match="had ended before"):
                child.ask({"do": "pid"}, deadline_s=30)


def test_credentials_stay_with_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels under watch are other people's code."""
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", "postgresql://user:secret@db/tilewatch")
    monkeypatch.setenv("TILEWATCH_FORGE_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with started(environment={"CUDA_VISIBLE_DEVICES": "GPU-1", "EXTRA": "yes"}) as child:
        environment = child.ask({"do": "environment"}, deadline_s=30)["environment"]
    assert "secret" not in "".join(environment.values())
    assert environment["PATH"] == os.environ["PATH"]
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["EXTRA"]) == ("GPU-1", "yes")


def test_a_killed_child_leaves_none_of_cutiles_folders() -> None:
    with started() as child:
        environment = child.ask({"do": "environment"}, deadline_s=30)["environment"]
        folder = Path(environment["CUDA_TILE_TEMP_DIR"])
        assert folder in Path(environment["CUDA_TILE_CACHE_DIR"]).parents
        assert folder.is_dir()
        with pytest.raises(ChildHung):
            child.ask({"do": "sleep"}, deadline_s=0.2)
        assert not folder.exists()


def test_what_a_child_started_ends_with_it() -> None:
    with started() as child:
        grandchild = child.ask({"do": "start another"}, deadline_s=30)["pid"]
    ended = time.monotonic() + 30
    while psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < ended
        time.sleep(0.01)


def test_what_a_library_prints_does_not_garble_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real program, in the role that loads library files."""
    monkeypatch.setattr(ChildProcess, "program", ("-m", "tilewatch.kernels.child"))
    child = ChildProcess("catalog")
    try:
        answer = child.ask(
            {
                "library": str(ROOT / "tests/kernels/fixtures/printing_library"),
                "arch": "sm_90",
                "kernel": None,
                "problem": None,
            },
            deadline_s=60,
        )
    finally:
        child.close()
    assert answer["error"] == "LibraryError"
    assert "must define KERNELS" in answer["message"]
