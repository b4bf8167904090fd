"""Opens and closes alarms, and writes a message for each new one in the same transaction.

Runs every few minutes on any judge's worker; two at once take turns. db/step_queries reads the facts, alarms.py decides
which alarms should be open, outbox.py writes the messages.
"""

import datetime as dt
from collections.abc import Sequence

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.queries import alarms as alarm_queries
from tilewatch.db.queries import quarantine, submissions
from tilewatch.db.queries.alarms import AlarmRow
from tilewatch.db.session import session
from tilewatch.db.step_queries import fallen_configs, run_pairs, steps
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify import alarms, outbox
from tilewatch.worker.notify.alarms import Changes, OpenAlarm
from tilewatch.worker.notify.outbox import Outbox

RECENT = dt.timedelta(days=2)
"""Older submissions were checked when they were new."""

EVENTS = ("tie_lost", "baseline_changed")
"""Kinds of alarm about a single event, which has no end."""


def check_alarms(out: Outbox, times: NightlyTimes, regret_limit: float, now: dt.datetime) -> Changes:
    with session(out.database_url) as opened:
        life.take_turns(opened)
        stored = alarm_queries.list_alarms(opened)
        changes = alarms.changes(_list_alarms(opened, stored, times, regret_limit, now), stored)
        for alarm in changes.to_open:
            alarm_id, new = life.open_once(
                opened, key=alarm.key, kind=alarm.kind, subject=alarm.subject, detail=alarm.detail
            )
            if new:
                outbox.write_alarm(opened, out, alarm_id, alarm, now)
        life.close(opened, changes.to_close)
    return changes


def _list_alarms(
    opened: Session, stored: Sequence[AlarmRow], times: NightlyTimes, regret_limit: float, now: dt.datetime
) -> list[OpenAlarm]:
    runs = run_pairs.list_newest_run_pairs(opened, now - alarms.FAILURE_STAYS_OPEN)
    recent = [run for run in runs if run.made_at >= now - RECENT]
    pairs = fallen_configs.list_newest_pairs(opened, now - RECENT)
    return [
        *alarms.find_late_nightlies(submissions.list_last_nights(opened), steps.find_last_night(opened), now, times),
        *alarms.find_quarantined_gpus(quarantine.list_quarantines(opened)),
        *alarms.find_broken_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs)),
        *_still_broken(opened, stored, now),
        *alarms.find_lost_ties(recent),
        *alarms.find_changed_baselines(recent),
        *alarms.keep_open(stored, EVENTS, now - alarms.EVENT_STAYS_OPEN),
        *alarms.find_regret(runs, regret_limit, stored),
    ]


def _still_broken(opened: Session, stored: Sequence[AlarmRow], now: dt.datetime) -> list[OpenAlarm]:
    """Open alarms about configs of which at least one is still broken, until FAILURE_STAYS_OPEN has passed."""
    still_broken: list[OpenAlarm] = []
    for alarm in stored:
        since = alarms.sweep_of_key(alarm.key)
        if since is not None and alarm.opened_at >= now - alarms.FAILURE_STAYS_OPEN:
            pairs = fallen_configs.list_pairs_since(opened, *since, measured=alarm.kind == "became_wrong")
            current = alarms.find_broken_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs))
            still_broken += [each for each in current if each.key == alarm.key]
    return still_broken
