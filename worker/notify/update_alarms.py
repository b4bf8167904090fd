"""Opens and closes alarms, and writes a message for each new one in the same transaction.

Runs every few minutes on any worker of the queue `tell`; two at once take turns. db/worker_reads reads the facts,
alarms.py decides which alarms should be open, outbox.py writes the messages.
"""

import datetime as dt
import itertools
from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.page_reads import alarms as alarm_queries
from tilewatch.db.page_reads import gpu_health, submissions
from tilewatch.db.page_reads.alarms import AlarmRow
from tilewatch.db.repository_names import is_branch
from tilewatch.db.session import session
from tilewatch.db.worker_reads import fallen_configs, gpus, repositories, run_pairs, steps
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify import alarms, outbox
from tilewatch.worker.notify.alarms import Changes, OpenAlarm
from tilewatch.worker.notify.outbox import Outbox

RECENT = dt.timedelta(days=2)
"""Older submissions were checked when they were new."""

EVENTS = ("tie_lost", "baseline_changed", "line_lost")
"""Kinds of alarm about a single event, which has no end."""


def update_alarms(
    out: Outbox, watched: Collection[str], times: NightlyTimes, regret_limit: float, now: dt.datetime
) -> Changes:
    """Opens and closes alarms, and returns which. `watched` names the repositories that should have a nightly."""
    with session(out.database_url) as opened:
        life.take_turns(opened)
        stored = alarm_queries.list_alarms(opened)
        changes = alarms.changes(_list_alarms(opened, stored, watched, times, regret_limit, now), stored)
        for alarm in changes.to_open:
            alarm_id, new = life.open_once(
                opened, key=alarm.key, kind=alarm.kind, subject=alarm.subject, detail=alarm.detail
            )
            if new:
                outbox.write_alarm(opened, out, alarm_id, alarm, now)
        life.close(opened, changes.to_close)
        for row in stored:  # schedule.py opened these, which knows no channel
            if row.kind == life.FAILED_NIGHTLY and row.key not in changes.to_close:
                outbox.write_alarm(opened, out, row.id, OpenAlarm(row.kind, row.key, row.subject, row.detail), now)
    return changes


def _list_alarms(
    opened: Session,
    stored: Sequence[AlarmRow],
    watched: Collection[str],
    times: NightlyTimes,
    regret_limit: float,
    now: dt.datetime,
) -> list[OpenAlarm]:
    # A branch was submitted by hand, by somebody who looks at it.
    newest = run_pairs.list_newest_run_pairs(opened, now - alarms.FAILURE_STAYS_OPEN)
    runs = [run for run in newest if not is_branch(run.repository)]
    recent = [run for run in runs if run.made_at >= now - RECENT]
    pairs = [pair for pair in fallen_configs.list_newest_pairs(opened, now - RECENT) if not is_branch(pair.repository)]
    explained = alarms.list_explained_ties(runs)
    unexplained = [alarm for alarm in stored if alarm.key not in explained]
    nights = submissions.list_last_nights(opened)
    failed = alarms.keep_failed_nightlies(stored, watched)
    late = [
        alarms.find_late_nightlies(name, nights, steps.find_last_night(opened, name), now, times)
        for name in set(watched) - {alarm.subject for alarm in failed}  # one alarm is enough
    ]
    return [
        *itertools.chain.from_iterable(late),
        *failed,
        *alarms.find_failed_fetches(repositories.list_repositories(opened)),
        *alarms.find_rewrites(repositories.list_rewrites(opened, now - alarms.EVENT_STAYS_OPEN)),
        *alarms.find_quarantined_gpus(gpu_health.list_quarantines(opened)),
        *alarms.find_not_confined(gpus.list_confinements(opened)),
        *alarms.find_broken_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs)),
        *_still_broken(opened, stored, now),
        *alarms.find_lost_ties(recent),
        *alarms.find_changed_baselines(recent),
        *alarms.find_lost_lines(recent),
        *alarms.keep_open(unexplained, EVENTS, now - alarms.EVENT_STAYS_OPEN),
        *alarms.find_regret(runs, regret_limit, stored),
    ]


def _still_broken(opened: Session, stored: Sequence[AlarmRow], now: dt.datetime) -> list[OpenAlarm]:
    """Returns open alarms about configs of which at least one is still broken, until FAILURE_STAYS_OPEN has passed."""
    still_broken: list[OpenAlarm] = []
    for alarm in stored:
        since = alarms.sweep_of_key(alarm.key)
        if since is not None and alarm.opened_at >= now - alarms.FAILURE_STAYS_OPEN:
            pairs = fallen_configs.list_pairs_since(opened, *since, measured=alarm.kind == "became_wrong")
            current = alarms.find_broken_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs))
            still_broken += [each for each in current if each.key == alarm.key]
    return still_broken
