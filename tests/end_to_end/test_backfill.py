"""A backfill goes through the queue to real workers, a compiler and a simulated GPU; a chart then shows its commits."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from tests.dashboard.fixtures.app import APP
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.celery_process import all_done, celery_worker, wait_for
from tilewatch.db.models import Commit, Submission
from tilewatch.db.session import session
from tilewatch.text import short_sha
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_backfill


def test_a_backfill_s_commits_are_points_of_a_trend_in_commit_order(
    settings: Settings, context: Context, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tiny_repository.git(repository, "rev-parse", "HEAD").strip()
    shas = [tiny_repository.commit(repository, f"Multiply by {factor}", factor=factor) for factor in (3, 5)]
    submitted = list(submit_backfill(settings, f"{before}..main", gpus=("sim",)))
    assert [each.created for each in submitted] == [True, True]
    with celery_worker(settings, queues="compile,judge"), celery_worker(settings, queues="gpu.sim", name="gpu0@test"):
        wait_for(lambda: all_done(context), settings.home / "gpu0@test.log")
    with session(context.database_url) as opened:
        queued = opened.scalars(
            select(Commit.sha).join(Submission, Submission.commit_id == Commit.id).order_by(Submission.id)
        ).all()
    assert queued == shas[::-1], "the newest first: a person looks at it soonest"

    monkeypatch.setenv("TILEWATCH_DATABASE_URL", context.database_url)
    app = AppTest.from_file(str(APP), default_timeout=300)
    app.query_params["show"] = "Time"
    app.switch_page("views/series.py").run()
    chart = app.get("plotly_chart")[0]
    traces = json.loads(chart.proto.spec)["data"]
    line = next(trace for trace in traces if trace["name"].startswith(f"{tiny_repository.KERNEL}, simulated"))
    assert line["x"] == [short_sha(sha) for sha in shas], "a point for each, in commit order"
