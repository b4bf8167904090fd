"""Old trials that lost keep their median; whatever won, was measured or is young keeps everything."""

import datetime as dt

from sqlalchemy import select, update

from tests.worker.fixtures.worker_context import Drain
from tests.worker.steps.test_measure import measured
from tilewatch.db.models import Config, Measurement, Run, Sweep, Trial, Verdict
from tilewatch.db.session import session
from tilewatch.worker import schedule
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings

NOW = dt.datetime(2027, 6, 1, tzinfo=dt.UTC)


def samples(context: Context) -> dict[int, bool]:
    """Whether the trials still have their samples, by width."""
    with session(context.database_url) as opened:
        query = select(Config.params, Trial).join(Trial, Trial.config_id == Config.id).where(Trial.status == "timed")
        timed = opened.execute(query).all()
        assert all(trial.median_us is not None for _, trial in timed)
        return {params["width"]: trial.samples_us is not None for params, trial in timed}


def test_the_samples_of_an_old_loser_go_and_its_median_stays(
    settings: Settings, context: Context, drain: Drain
) -> None:
    run_id = measured(settings, context, drain)
    with session(context.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=NOW - dt.timedelta(days=91)))
        opened.execute(update(Trial).where(Trial.status == "wrong").values(samples_us=[1.0]))
    assert schedule.prune(context.database_url, 90, NOW) == 1  # the wrong one: 128 won, and 256 is tied with it
    assert samples(context) == {128: True, 256: True}
    assert schedule.prune(context.database_url, 90, NOW) == 0
    with session(context.database_url) as opened:
        assert all(row.samples_us for row in opened.scalars(select(Measurement)))
        assert opened.get_one(Verdict, run_id)


def test_what_lost_narrowly_but_is_no_tie_goes_too(settings: Settings, context: Context, drain: Drain) -> None:
    run_id = measured(settings, context, drain)
    with session(context.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=NOW - dt.timedelta(days=91)))
        opened.execute(update(Run).where(Run.id == run_id).values(tie=[]))
    assert schedule.prune(context.database_url, 90, NOW) == 1
    assert samples(context) == {128: True, 256: False}


def test_young_trials_keep_their_samples(settings: Settings, context: Context, drain: Drain) -> None:
    measured(settings, context, drain)
    with session(context.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=NOW - dt.timedelta(days=89)))
    assert schedule.prune(context.database_url, 90, NOW) == 0
