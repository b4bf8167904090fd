"""A child that hangs, dies or prints: a deadline, its last words, no credentials, nothing left behind."""

import contextlib
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tilewatch import processes
from tilewatch.kernels.children import child_answers, child_process, interpreters
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.children.interpreters import BadInterpreter

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildProcess, "program", ("-m", "tests.kernels.fixtures.obedient_child"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@contextlib.contextmanager
def started(role: str = "any", **options: object) -> Iterator[ChildProcess]:
    child = ChildProcess(role, **options)  # type: ignore[arg-type]
    try:
        yield child
    finally:
        child.close()


def test_answers_come_in_order_whatever_their_size() -> None:
    with started() as child:
        for size in (1, 1 << 18, 3):
            assert len(child.ask({"do": "echo", "text": "x" * size}, deadline_s=60)["text"]) == size


def test_what_was_begun_is_answered_by_nobody_and_a_death_in_it_is_told_to_the_next() -> None:
    with started() as child:
        assert child.is_idle
        child.begin({"do": "echo", "text": "begun"})
        assert not child.is_idle
        assert [child.ask({"do": "echo", "text": text}, deadline_s=60)["text"] for text in "ab"] == ["a", "b"]
        assert child.is_idle
    with started() as child:
        child.begin({"do": "die", "text": "no module named ops"})
        with pytest.raises(ChildDied, match="exit code 3: no module named ops"):
            child.ask({"do": "pid"}, deadline_s=60)


def test_no_answer_before_the_deadline_ends_the_child() -> None:
    with started() as child:
        pid = child.ask({"do": "pid"}, deadline_s=60)["pid"]
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
                child.ask(request, deadline_s=60)
            assert str(died.value) == words
            assert not child.alive
            with pytest.raises(ChildDied, match="had ended before"):
                child.ask({"do": "pid"}, deadline_s=60)


def test_credentials_stay_with_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels under watch are other people's code."""
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", "postgresql://user:secret@db/tilewatch")
    monkeypatch.setenv("TILEWATCH_FORGE_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with started(environment={"CUDA_VISIBLE_DEVICES": "GPU-1", "EXTRA": "yes"}) as child:
        environment = child.ask({"do": "environment"}, deadline_s=60)["environment"]
    assert "secret" not in "".join(environment.values())
    assert environment["PATH"] == os.environ["PATH"]
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["EXTRA"]) == ("GPU-1", "yes")


def test_a_killed_child_leaves_none_of_cutiles_folders() -> None:
    with started() as child:
        environment = child.ask({"do": "environment"}, deadline_s=60)["environment"]
        folder = Path(environment["CUDA_TILE_TEMP_DIR"])
        assert folder in Path(environment["CUDA_TILE_CACHE_DIR"]).parents
        assert folder.is_dir()
        with pytest.raises(ChildHung):
            child.ask({"do": "sleep"}, deadline_s=0.2)
        assert not folder.exists()


@pytest.mark.parametrize("role", ["catalog", "gpu"])
def test_a_killed_child_leaves_no_temporary_file(role: str) -> None:
    """Not in the machine's folder, from which nothing deletes it."""
    with started(role) as child:
        environment = child.ask({"do": "environment"}, deadline_s=60)["environment"]
    assert environment["TMPDIR"] == environment["CUDA_TILE_TEMP_DIR"]


def test_what_a_child_started_ends_with_it() -> None:
    with started() as child:
        grandchild = child.ask({"do": "start another"}, deadline_s=60)["pid"]
    wait_for_end(grandchild)


def wait_for_end(process_id: int) -> None:
    ended = time.monotonic() + 60
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < ended
            time.sleep(0.01)


def test_an_answer_without_an_end_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "ANSWER_BYTES", 1 << 20)
    with started() as child:
        with pytest.raises(ChildDied, match="it answered with more than 1 MiB"):
            child.ask({"do": "fill"}, deadline_s=60)  # a gigabyte each second, if nobody ends it
        assert not child.alive


def test_a_child_that_writes_all_the_time_has_a_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "ANSWER_BYTES", 1 << 40)
    with started() as child, pytest.raises(ChildHung):
        child.ask({"do": "fill"}, deadline_s=0.5)


@pytest.mark.parametrize("text", ["forged", "[1]", "[" * 200_000, "NaN"])
def test_an_answer_that_is_no_object_ends_the_child(text: str) -> None:
    with started() as child:
        with pytest.raises(ChildDied, match="its answer is not a JSON object"):
            child.ask({"do": "write", "text": text}, deadline_s=60)
        assert not child.alive


def test_text_of_an_answer_can_be_stored() -> None:
    """Postgres stores no NUL and no half of a surrogate pair; a backslash before a `u` is one."""
    with started() as child:
        answer = child.ask({"do": "echo", "text": "a\0b\\u0000c\\\0"}, deadline_s=60)
    assert answer == {"text": "a\ufffdb\\u0000c\\\ufffd"}
    assert child_answers.read_line(child_answers.make_line({"text": "\udc80\U0001f600\n"})) == {"text": "?\U0001f600\n"}


def test_what_an_answer_gives_as_a_failure_is_scrubbed_and_nothing_else() -> None:
    secret = "glpat-abcdefghijklmnopqrst"  # noqa: S105 - made up
    line = child_answers.make_line(
        {"failure": secret, "trials": [{"failure": secret, "code": secret}, 1], "text": secret}
    )
    assert child_answers.read_line(line) == {
        "failure": "glpat-***",
        "trials": [{"failure": "glpat-***", "code": secret}, 1],
        "text": secret,
    }


def test_the_last_words_of_a_child_are_scrubbed() -> None:
    with started() as child, pytest.raises(ChildDied, match=r"exit code 3: glpat-\*\*\*$"):
        child.ask({"do": "die", "text": "glpat-abcdefghijklmnopqrst"}, deadline_s=60)


def test_a_child_that_takes_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "MEMORY_BYTES", 256 << 20)
    with started() as child:
        with pytest.raises(ChildDied, match=r"it took more than 0\.25 GiB of memory"):
            child.ask({"do": "hold", "bytes": 512 << 20}, deadline_s=60)
        assert not child.alive


def test_a_child_that_takes_too_much_processor_time_is_ended() -> None:
    with started(cpu_limit_s=0.01) as child:
        with pytest.raises(ChildDied, match=r"it took more than 0\.01 CPU seconds"):
            child.ask({"do": "compute"}, deadline_s=60)
        assert not child.alive


@pytest.mark.parametrize(
    ("limit", "most", "request_", "words"),
    [
        ("MOST_PROCESSES", 3, {"do": "start many", "processes": 4}, "it started more than 3 processes"),
        ("FOLDER_FILES", 20, {"do": "write files", "files": 21, "bytes": 0}, "it wrote more than 4 GiB or 20 files"),
        ("FOLDER_BYTES", 1 << 20, {"do": "write files", "files": 2, "bytes": 1 << 20}, "it wrote more than 0 GiB"),
    ],
)
def test_a_child_that_starts_or_writes_too_much_is_ended(
    limit: str, most: int, request_: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, limit, most)
    with started() as child:
        with pytest.raises(ChildDied, match=words):
            child.ask(request_, deadline_s=60)
        assert not child.alive


def test_a_child_that_only_closed_its_answers_has_a_deadline() -> None:
    with started() as child, pytest.raises(ChildHung):
        child.ask({"do": "close"}, deadline_s=0.5)


class Clock:
    """Passes only while a child is waited for. Keeps how long each wait may take, in seconds."""

    PIPE_BUF, POLLOUT = select.PIPE_BUF, select.POLLOUT

    def __init__(self) -> None:
        self.now_s, self.waits = 1000.0, list[float]()

    def monotonic(self) -> float:
        return self.now_s

    def select(self, wait_s: float) -> list[object]:
        self.waits.append(wait_s)
        self.now_s += wait_s
        return []

    def poll(self, wait_ms: float | None = None) -> Any:
        return self if wait_ms is None else self.select(wait_ms / 1000)

    def register(self, *_: object) -> None: ...

    close = register


def test_nobody_waits_for_a_child_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with started() as child:
        clock = Clock()
        monkeypatch.setattr(child_process, "time", clock)
        child._selector.close()
        monkeypatch.setattr(child, "_selector", clock)
        with pytest.raises(ChildHung):
            child.ask({"do": "sleep"}, deadline_s=1.25)
        assert clock.waits == [child_process.LOOK_EVERY_S, child_process.LOOK_EVERY_S, 0.25]
        assert not child.alive


@pytest.mark.parametrize("late_s", [0.0, 1.0])
def test_nobody_waits_until_a_child_reads_after_its_deadline(late_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    with started() as child:
        clock = Clock()
        monkeypatch.setattr(child_process, "time", clock)
        monkeypatch.setattr(child_process, "select", clock)
        with pytest.raises(ChildHung):
            child._send({"do": "sleep"}, clock.now_s + 1.25 - 2 * late_s)
        assert clock.waits == [0.0 if late_s else 1.25]


def test_a_child_that_stopped_reading_has_a_deadline() -> None:
    with started() as child:
        child.begin({"do": "sleep"})
        with pytest.raises(ChildHung):
            child.ask({"do": "echo", "text": "x" * (1 << 20)}, deadline_s=0.5)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty file of a library, for the real program."""
    monkeypatch.setattr(ChildProcess, "program", ("-m", "tilewatch.kernels.child"))
    folder = tmp_path / "library"
    folder.mkdir()
    return folder / "hostile.py"


def read_library(file: Path, child: ChildProcess) -> dict[str, object]:
    request = {"library": str(file.parent), "arch": "sm_90", "kernel": None, "problem": None}
    return child.ask(request, deadline_s=60)


def test_a_real_child_adopts_what_leaves_it(library: Path, tmp_path: Path) -> None:
    """A library starts a shell, which starts a program in a session of its own and ends."""
    pids = tmp_path / "pids"
    program = f"setsid sleep 3600 & echo $! $PPID > {pids}"
    library.write_text(f"import subprocess\nsubprocess.run({program!r}, shell=True)\nKERNELS = ()\n")
    with started("catalog", library=library.parent, writable=[str(tmp_path)]) as child:
        read_library(library, child)
        grandchild, own = map(int, pids.read_text().split())
        assert psutil.Process(grandchild).ppid() == own, "else its memory would not count as the child's"
    wait_for_end(grandchild)


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_what_a_library_leaves_behind_ends_with_it_however_it_ends(library: Path, tmp_path: Path, end: str) -> None:
    """It tries to hand its orphans on, so that nobody finds them."""
    pid = tmp_path / "pid"
    program = f"setsid sleep 3600 & echo $! > {pid}"
    library.write_text(
        "import ctypes, os, subprocess\n"
        f"print(ctypes.CDLL(None).prctl({processes.PR_SET_CHILD_SUBREAPER}, 0, 0, 0, 0))\n"
        f"subprocess.run({program!r}, shell=True)\n{end}\nKERNELS = ()\n"
    )
    with started("catalog", library=library.parent, writable=[str(tmp_path)]) as child:
        with contextlib.suppress(ChildDied):
            read_library(library, child)
        grandchild = int(pid.read_text())
    wait_for_end(grandchild)


def test_a_library_that_stops_itself_has_a_deadline(library: Path) -> None:
    library.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nKERNELS = ()\n")
    request = {"library": str(library.parent), "arch": "sm_90", "kernel": None, "problem": None}
    with started("catalog", library=library.parent) as child:
        with pytest.raises(ChildHung, match="no answer before its deadline"):
            child.ask(request, deadline_s=3)
        assert not child.alive


def test_links_in_a_child_s_folder_are_removed_and_not_what_they_name(library: Path, tmp_path: Path) -> None:
    """Its folder is removed by us, who may write where it may not."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("ours")
    library.write_text(
        "import os\n"
        f"os.symlink({str(kept)!r}, os.environ['TMPDIR'] + '/folder')\n"
        f"os.symlink({str(kept / 'file')!r}, os.environ['TMPDIR'] + '/file')\n"
        "raise RuntimeError('in ' + os.environ['TMPDIR'] + ' end')\n"
    )
    with started("catalog", library=library.parent) as child:
        message = str(read_library(library, child)["message"])
    folder = Path(message.partition("in /")[2].partition(" end")[0])
    assert not (Path("/") / folder).exists()
    assert (kept / "file").read_text() == "ours"


def test_a_library_that_prints_without_end_is_stopped(library: Path) -> None:
    library.write_text("while True: print('x' * (1 << 20), flush=True)\n")
    with started("catalog", library=library.parent) as child:
        answer = read_library(library, child)
    assert "File too large" in str(answer["message"])


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


@pytest.mark.parametrize(
    ("interpreter", "raised", "sentence"),
    [
        (None, OSError, "^no room for a process$"),
        (interpreters.Interpreter(Path("/py")), BadInterpreter, "^/py does not run a library: no room for a process$"),
    ],
)
def test_a_child_that_cannot_be_forked_leaves_no_folder_and_no_file(
    monkeypatch: pytest.MonkeyPatch,
    interpreter: interpreters.Interpreter | None,
    raised: type[Exception],
    sentence: str,
) -> None:
    left: list[Any] = []

    def fork(*asked: Any) -> None:
        *_, request, errors = asked
        left.extend((Path(request["environment"]["TMPDIR"]), errors))
        assert left[0].is_dir()
        assert not errors.closed
        raise OSError("no room for a process")

    monkeypatch.setattr(ChildProcess, "program", child_process.PROGRAM)
    monkeypatch.setattr(child_process.forked_process, "fork", fork)
    monkeypatch.setattr(interpreters, "find", lambda _: interpreter)
    with pytest.raises(raised, match=sentence) as held:  # its frames have the child, which is not collected
        ChildProcess(child_process.WITHOUT_GPU[0])
    folder, errors = left
    assert (folder.exists(), errors.closed) == (False, True)
    assert held.tb
