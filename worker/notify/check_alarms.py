"""Looks for what is no regression and still wants to be known, opens an alarm and its message, closes what has passed.

Thin: db/step_queries/fallen_configs.py and db/step_queries/run_pairs.py say what there is, alarms.py what of it stands,
outbox.py writes the messages, in the transaction that opens the alarm. Runs every few minutes on any judge's worker;
two at once take turns.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.queries import alarms as alarm_queries
from tilewatch.db.queries import quarantine, queue
from tilewatch.db.queries.alarms import AlarmRow
from tilewatch.db.session import session
from tilewatch.db.step_queries import fallen_configs, run_pairs, steps
from tilewatch.worker.notify import alarms, outbox
from tilewatch.worker.notify.alarms import Changes, Standing
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.schedule import night_due

LATELY = dt.timedelta(days=2)
"""What is older was looked at when it was young."""

MISSING_AFTER = dt.timedelta(minutes=30)
"""By then the reconciler has submitted a night that beat left out, if it can be submitted at all."""

NEWS = ("tie_lost", "baseline_changed")
"""Alarms of something that happened once."""


@dataclass(frozen=True)
class Limits:
    nightly_at: dt.time
    nightly_limit_h: float
    regret: float


def watch(out: Outbox, limits: Limits, now: dt.datetime) -> Changes:
    with session(out.database_url) as opened:
        life.take_turns(opened)
        open_ = alarm_queries.list_alarms(opened)
        found = alarms.changes(standing(opened, open_, limits, now), open_)
        for alarm in found.to_open:
            alarm_id, new = life.open_once(
                opened, key=alarm.key, kind=alarm.kind, subject=alarm.subject, detail=alarm.detail
            )
            if new:
                outbox.write_alarm(opened, out, alarm_id, alarm, now)
        life.close(opened, found.to_close)
    return found


def standing(opened: Session, open_: Sequence[AlarmRow], limits: Limits, now: dt.datetime) -> list[Standing]:
    runs = run_pairs.list_newest_run_pairs(opened, now - alarms.FAILURE_STANDS)
    lately = [run for run in runs if run.made_at >= now - LATELY]
    pairs = fallen_configs.list_newest_pairs(opened, now - LATELY)
    late = dt.timedelta(hours=limits.nightly_limit_h)
    due = night_due(now - MISSING_AFTER, limits.nightly_at)
    return [
        *alarms.of_nightlies(queue.list_last_nights(opened), steps.find_last_night(opened), due, late, now),
        *alarms.of_quarantines(quarantine.list_quarantines(opened)),
        *alarms.of_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs)),
        *_still_fallen(opened, open_, now),
        *alarms.of_winners(lately),
        *alarms.of_baselines(lately),
        *alarms.still(open_, NEWS, now - alarms.NEWS_STANDS),
        *alarms.of_regret(runs, limits.regret, open_),
    ]


def _still_fallen(opened: Session, open_: Sequence[AlarmRow], now: dt.datetime) -> list[Standing]:
    """Open alarms about configs, as long as one of these has not come back and somebody may still mend it."""
    found = []
    for alarm in open_:
        since = alarms.stands_since(alarm.key)
        if since is not None and alarm.opened_at >= now - alarms.FAILURE_STANDS:
            pairs = fallen_configs.list_pairs_since(opened, *since, measured=alarm.kind == "became_wrong")
            fallen = alarms.of_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs))
            found += [each for each in fallen if each.key == alarm.key]
    return found
