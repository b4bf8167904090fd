"""No password in a log line or on a job's row, whatever an error repeats."""

import contextlib
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.models import Job
from tilewatch.db.session import session
from tilewatch.text import without_passwords
from tilewatch.worker import logs, run_job
from tilewatch.worker.context import Context
from tilewatch.worker.queue import lease
from tilewatch.worker.queue.outage import NotNow

URL = "postgresql://node1:hunter2@db:5432/tilewatch"


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        (f"cannot reach {URL}!", "cannot reach postgresql://node1:***@db:5432/tilewatch!"),
        ("redis://:hunter2@h:6379/0 and rediss://u:hunter2@h", "redis://:***@h:6379/0 and rediss://u:***@h"),
        ("host=db password=hunter2 user=x", "host=db password=*** user=x"),
        ("{'password': 'hunter2', 'user': 'x'}", "{'password': ***, 'user': 'x'}"),
        ("Token: hunter2, api_key='hunter2'", "Token: ***, api_key=***"),
        ("TILEWATCH_FORGE_TOKEN=hunter2 PGPASSWORD=hunter2", "TILEWATCH_FORGE_TOKEN=*** PGPASSWORD=***"),
        ("AWS_SECRET_ACCESS_KEY='hunter2' x", "AWS_SECRET_ACCESS_KEY=*** x"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer ***"),
        ("at postgresql://u:hun@ter/2@db:5432/t now", "at postgresql://u:***@db:5432/t now"),
        ("tokens: 4096, secretly: 1", "tokens: 4096, secretly: 1"),
        (
            "320x32576x7168 on h200: 174.2 us, see http://tiles:8501/x",
            "320x32576x7168 on h200: 174.2 us, see http://tiles:8501/x",
        ),
    ],
)
def test_passwords_are_taken_out_and_nothing_else(message: str, cleaned: str) -> None:
    assert without_passwords(message) == cleaned


@pytest.mark.parametrize("error", [RuntimeError(f"odd: {URL}"), NotNow(f"not now: {URL}")])
def test_an_error_that_repeats_a_url_leaves_no_password_on_the_row(
    context: Context, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(run_job, "_step_of", lambda _: fails)
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="s", payload={})
    if isinstance(error, NotNow):
        with pytest.raises(NotNow):
            run_job.run(job_id, "tester#1", context)
    else:
        run_job.run(job_id, "tester#1", context)
    with session(context.database_url) as opened:
        row = opened.get_one(Job, job_id)
    texts = f"{row.failure} {row.trace} {row.trouble}"
    assert "node1:***@db" in texts
    assert "hunter2" not in texts


@contextlib.contextmanager
def worker_log() -> Iterator[None]:
    """Sets the log up as a worker does. It writes to the standard error of the moment, which is the test's own."""
    before, handlers, level = structlog.get_config(), list(logging.getLogger().handlers), logging.getLogger().level
    logs.set_up("INFO")
    try:
        yield
    finally:
        structlog.configure(**before)
        logging.getLogger().handlers = handlers
        logging.getLogger().setLevel(level)


def test_no_line_of_a_worker_has_a_password_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    with worker_log():
        structlog.get_logger().warning("ours", reason=f"no way to {URL}")
        try:
            raise RuntimeError(URL)
        except RuntimeError:
            logging.getLogger("kombu").exception("theirs: %s", URL)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"].partition(":")[0] for line in lines] == ["ours", "theirs"]
    assert "hunter2" not in json.dumps(lines)
    assert json.dumps(lines).count("node1:***@db") == 3


def test_a_failed_job_keeps_the_last_lines_of_its_own_log(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        for number in range(2 * logs.KEPT_LINES):
            structlog.get_logger().info("compiled", number=number, url=URL)
        raise RuntimeError("odd")

    monkeypatch.setattr(run_job, "_step_of", lambda _: fails)
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="s", payload={})
    with worker_log():
        structlog.get_logger().info("of another job")
        run_job.run(job_id, "tester#1", context)
    with session(context.database_url) as opened:
        kept = opened.get_one(Job, job_id).log or ""
        assert jobs.retry(opened, [job_id]) == [job_id]
    lines = kept.splitlines()
    assert len(lines) == logs.KEPT_LINES
    assert "failure='RuntimeError: odd'" in lines[-1]
    assert f"number={2 * logs.KEPT_LINES - 1}" in lines[-2]
    assert f"job={job_id}" in lines[-2]
    assert "of another job" not in kept
    assert "hunter2" not in kept
    with session(context.database_url) as opened:
        assert opened.get_one(Job, job_id).log is None


def test_the_log_of_a_running_job_is_on_its_row_until_it_ends_well(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def compiles(*_: object) -> list[UnsentJob]:
        structlog.get_logger().info("compiled", url=URL)
        while not seen:
            with session(context.database_url) as opened:
                seen.extend(filter(None, [opened.get_one(Job, job_id).log]))
        return []

    monkeypatch.setattr(run_job, "_step_of", lambda _: compiles)
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="s", payload={})
    with worker_log():
        run_job.run(job_id, "tester#1", context)
    assert "event='claimed'" in seen[0]
    assert "hunter2" not in seen[0]
    with session(context.database_url) as opened:
        assert opened.get_one(Job, job_id).log is None
