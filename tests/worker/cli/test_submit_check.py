"""`tilewatch submit check` and `submit nightly --wait`, in processes of their own beside a worker in this one."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.worker.cli.conftest import Tilewatch
from tests.worker.fixtures import git_history, open_regression
from tests.worker.fixtures.celery_process import environment
from tests.worker.fixtures.command_line import run_here
from tests.worker.fixtures.git_history import ADD, NARROW, WORDS
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Action, Job, Submission
from tilewatch.db.page_reads import submissions
from tilewatch.db.page_reads.checks import list_checks
from tilewatch.db.session import session
from tilewatch.worker.cli.submit_check import worst_code
from tilewatch.worker.cli.wait import nightly_code
from tilewatch.worker.context import Context
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings

Waiting = subprocess.Popen[str]
Start = Callable[..., AbstractContextManager[Waiting]]


@pytest.fixture
def shas(settings: Settings) -> dict[str, str]:
    shutil.rmtree(settings.repository)
    return git_history.make(settings.repository, NARROW, ADD, WORDS)


@pytest.fixture
def start(settings: Settings) -> Start:
    """Starts a command that waits, and returns once it has printed a state on standard error."""

    @contextlib.contextmanager
    def started(*arguments: str) -> Iterator[Waiting]:
        command = [sys.executable, "-m", "tilewatch.worker.cli.main", *arguments]
        with subprocess.Popen(
            command,
            env={**environment(settings), "LOGNAME": "grace"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return started


def read_error_line(process: Waiting) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def test_waiting_ends_with_the_code_of_the_check(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str], start: Start
) -> None:
    revisions = f"{shas[NARROW]}..{shas[ADD]}"
    with start("submit", "check", revisions, "--gpu", "sim", "--wait") as waiting:
        assert read_error_line(waiting) == "check 1 on sim: being prepared\n"
        drain()
        out, _ = waiting.communicate()
    with session(context.database_url) as opened:
        (check,) = list_checks(opened)
        (action,) = opened.scalars(select(Action))
    assert waiting.returncode == check.exit_code
    assert (action.who, action.action, action.wanted["checks"]) == ("grace", "check", [1])
    lines = out.splitlines()
    base, head = shas[NARROW][:10], shas[ADD][:10]
    assert lines[:2] == [
        f"submitted the check of {base}..{head} ({ADD}) on sim",
        "check 1 on sim: http://localhost:8501/checks?check=1",
    ]
    assert sum(line.startswith(("double 1024: ", "double 2048: ")) for line in lines) == 2
    assert lines[-1].startswith(f"{base} .. {head} on Simulated GPU, 0 s of GPU: ")
    again = run_here(
        "submit",
        "check",
        revisions,
        "--gpu",
        "sim",
        "--wait",
        "--json",
        environment=environment(settings),
        folder=settings.repository,
    )
    assert again.returncode == check.exit_code
    answer = json.loads(again.stdout)
    (answered,) = answer["checks"]
    assert (answer["exit_code"], answered["id"], answered["exit_code"]) == (check.exit_code, 1, check.exit_code)
    assert {each["problem"] for each in answered["outcomes"]} == {"1024", "2048"}
    assert all(each["verdict"]["launches"] == len(each["base_us"]) for each in answered["outcomes"])


def test_ctrl_c_leaves_the_jobs_and_says_how_to_look_again(
    context: Context, drain: Drain, shas: dict[str, str], start: Start
) -> None:
    revisions = f"{shas[NARROW]}..{shas[WORDS]}"
    with start("submit", "check", revisions, "--gpu", "sim", "--fail-over", "2%", "--wait") as waiting:
        read_error_line(waiting)
        waiting.send_signal(signal.SIGINT)
        _, error = waiting.communicate()
    assert waiting.returncode == 130
    assert error == (
        f"tilewatch: stopped waiting; the jobs go on. `tilewatch submit check {revisions} --wait --gpu sim "
        "--fail-over 2%` waits for the same check again, and http://localhost:8501/checks?check=1 shows it\n"
    )
    with session(context.database_url) as opened:
        assert opened.scalars(select(Job.state)).all() == ["queued"]
    drain()
    with session(context.database_url) as opened:
        assert list_checks(opened)[0].exit_code is not None


def test_a_check_that_cannot_be_told_ends_with_2_and_its_reason(
    context: Context, shas: dict[str, str], start: Start
) -> None:
    with start("submit", "check", f"{shas[NARROW]}..{shas[ADD]}", "--gpu", "sim", "--wait") as waiting:
        read_error_line(waiting)
        with session(context.database_url) as opened:
            jobs.cancel(opened, opened.scalars(select(Job.id)).all())
        reconcile(context.database_url, context.broker_url)
        out, _ = waiting.communicate()
    assert waiting.returncode == 2
    assert out.splitlines()[-1] == "could not be compared: its job was cancelled"


def test_a_nightly_is_waited_for_to_its_last_verdict(drain: Drain, shas: dict[str, str], start: Start) -> None:
    with start("submit", "nightly", "--commit", shas[NARROW], "--gpu", "sim", "--wait") as waiting:
        assert read_error_line(waiting).startswith("submission 1 on sim: compiling, 0 of 2 runs, ")
        drain()
        out, _ = waiting.communicate()
    assert waiting.returncode == 0
    assert out.splitlines()[-1] == "submission 1 on sim: measured, 2 runs"


@pytest.mark.parametrize(
    ("states", "confirmed", "code"),
    [
        (["measured", "static facts only"], [], 0),
        (["measured", "failed"], [], 2),
        (["incomplete"], [], 2),
        (["measured"], [7], 1),
        (["cancelled"], [7], 1),
    ],
)
def test_the_code_of_a_nightly(states: list[str], confirmed: list[int], code: int) -> None:
    assert nightly_code(states, confirmed) == code


def test_a_regression_is_confirmed_in_the_nightly_whose_run_showed_it_and_an_improvement_is_none(
    db_session: Session,
) -> None:
    regression = open_regression.regress(db_session)
    open_regression.regress(db_session, kernel="attention", size=-0.05)
    night = db_session.scalars(select(Submission.id)).one()
    assert submissions.list_regressions_confirmed(db_session, [night]) == [regression]
    assert submissions.list_regressions_confirmed(db_session, [night + 1]) == []


@pytest.mark.parametrize(("codes", "code"), [([0, 0], 0), ([0, 2], 2), ([2, 1], 1)])
def test_the_code_of_several_checks(codes: list[int], code: int) -> None:
    assert worst_code(codes) == code


def test_ids_and_links_are_json_for_who_does_not_wait(tilewatch: Tilewatch) -> None:
    answer = json.loads(tilewatch("submit", "check", "HEAD..HEAD", "--gpu", "sim", "--json"))
    assert answer == {"checks": [{"id": 1, "gpu_model": "sim", "link": "http://localhost:8501/checks?check=1"}]}


def test_what_cannot_be_submitted_is_a_sentence(tilewatch: Tilewatch) -> None:
    assert tilewatch("submit", "check", "HEAD", fails=True) == (
        "'HEAD' is not a range of commits; expected BASE..HEAD, such as main..HEAD"
    )
    assert "'fast' is not a percentage" in tilewatch("submit", "check", "a..b", "--fail-over", "fast", fails=True)
