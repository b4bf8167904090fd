"""Opens and closes alarms, and writes a message for each new alarm in the same transaction."""

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import attrgetter

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.page_reads import alarms as alarm_queries
from tilewatch.db.page_reads import gpu_health, submissions
from tilewatch.db.page_reads.alarms import AlarmRow
from tilewatch.db.query_parts import take_turns
from tilewatch.db.repository_names import is_branch
from tilewatch.db.session import session
from tilewatch.db.worker_reads import fallen_configs, gpus, repositories, run_pairs, steps
from tilewatch.grouping import group_by
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.isolation import isolate
from tilewatch.worker.notify import alarms, outbox
from tilewatch.worker.notify.alarms import Changes, OpenAlarm
from tilewatch.worker.notify.outbox import Outbox

RECENT = dt.timedelta(days=2)
"""The age up to which runs and sweeps are searched for alarms. Older ones were searched when they were new."""

EVENTS = ("tie_lost", "baseline_changed", "line_lost", life.FAILED_REPOSITORY, life.ENDED_PROCESS, life.BEATEN_LIST)
"""The kinds of alarm about an event, which has no end."""

WRITTEN_ELSEWHERE = (life.FAILED_NIGHTLY, life.FAILED_REPOSITORY, life.ENDED_PROCESS, life.BEATEN_LIST)
"""The kinds of alarm that other modules open. Their messages are written here, where the channels are known."""


def update_alarms(
    out: Outbox, watched: Collection[str], times: NightlyTimes, regret_limit: float, now: dt.datetime
) -> Changes:
    """Opens and closes alarms and returns the changes. `watched` names the repositories that need a nightly."""
    with session(out.database_url) as opened:
        take_turns(opened, life.WATCHING)
        stored = alarm_queries.list_alarms(opened)
        changes = alarms.changes(_list_alarms(opened, stored, watched, times, regret_limit, now), stored, now)
        for alarm in changes.to_open:
            about = {name: getattr(alarm, name) for name in ("key", "kind", "subject", "detail")}
            alarm_id, new = life.open_once(opened, **about)
            if new:
                outbox.write_alarm(opened, out, alarm_id, alarm, now)
        life.close(opened, changes.to_close)
        for row in alarm_queries.list_alarms(opened):
            if row.kind in WRITTEN_ELSEWHERE:
                (alarm,) = alarms.keep([row])
                if row.kind == life.BEATEN_LIST:
                    _, kernel, gpu_model, _ = alarms.split_key(row.key, 2)
                    alarm = replace(alarm, kernel=kernel, gpu_model=gpu_model)
                outbox.write_alarm(opened, out, row.id, alarm, now)
    return changes


def _list_alarms(
    opened: Session,
    stored: Sequence[AlarmRow],
    watched: Collection[str],
    times: NightlyTimes,
    regret_limit: float,
    now: dt.datetime,
) -> list[OpenAlarm]:
    """Returns the alarms that should be open. An error in one repository does not affect the others."""
    removed = repositories.list_removed(opened)

    def is_left_out(name: str) -> bool:  # of a branch, a person submitted it by hand, and looks at the result
        return is_branch(name) or name in removed

    newest = run_pairs.list_newest_run_pairs(opened, now - alarms.FAILURE_STAYS_OPEN)
    runs = group_by((run for run in newest if not is_left_out(run.repository)), attrgetter("repository"))
    compiled = fallen_configs.list_newest_pairs(opened, now - RECENT)
    pairs = group_by((pair for pair in compiled if not is_left_out(pair.repository)), attrgetter("repository"))
    fetches = {row.name: [row] for row in repositories.list_repositories(opened)}
    rewritten = repositories.list_rewrites(opened, now - alarms.EVENT_STAYS_OPEN)
    rewrites = group_by(rewritten, attrgetter("repository"))
    nights = submissions.list_last_nights(opened)
    # The next nightly closes them (schedule.py).
    failed = alarms.keep(row for row in stored if row.kind == life.FAILED_NIGHTLY and row.subject in watched)
    on_time = set(watched) - {alarm.subject for alarm in failed}  # one alarm is enough
    found = [
        *failed,
        *alarms.find_quarantined_gpus(gpu_health.list_quarantines(opened)),
        *alarms.find_not_confined(gpus.list_confinements(opened)),
        *alarms.find_root_on_gpus(gpus.list_needs_of_root(opened)),
        *_list_still_broken(opened, stored, removed, now),
    ]
    explained = set[str]()
    for name in sorted({*watched, *runs, *pairs, *fetches, *rewrites}):
        of_name = alarms.keep([alarm for alarm in stored if name in alarm.subject])  # it is not known to have ended
        with isolate(opened, name, "its alarms cannot be looked for"):
            recent = [run for run in runs[name] if run.made_at >= now - RECENT]
            last = steps.find_last_night(opened, name)
            explained |= alarms.list_explained_ties(runs[name])
            of_name = [
                *(alarms.find_late_nightlies(name, nights, last, now, times) if name in on_time else ()),
                *alarms.find_failed_fetches(fetches.get(name, ())),
                *alarms.find_rewrites(rewrites[name]),
                *alarms.find_broken_configs(pairs[name], fallen_configs.list_fallen_configs(opened, pairs[name])),
                *alarms.find_lost_ties(recent),
                *alarms.find_changed_baselines(recent),
                *alarms.find_lost_lines(recent),
                *alarms.find_regret(runs[name], regret_limit, stored),
            ]
        found += of_name
    events = [alarm for alarm in stored if alarm.kind in EVENTS and alarm.key not in explained]
    return found + alarms.keep(alarm for alarm in events if alarm.opened_at >= now - alarms.EVENT_STAYS_OPEN)


def _list_still_broken(
    opened: Session, stored: Sequence[AlarmRow], removed: Collection[str], now: dt.datetime
) -> list[OpenAlarm]:
    """Returns the open alarms about configs that are still broken, unless they are too old."""
    still_broken: list[OpenAlarm] = []
    for alarm in stored:
        since = alarms.sweep_of_key(alarm.key)
        if since is not None and alarm.opened_at >= now - alarms.FAILURE_STAYS_OPEN:
            pairs = fallen_configs.list_pairs_since(opened, *since, measured=alarm.kind == "became_wrong")
            kept = alarms.keep([alarm])
            for name in {pair.repository for pair in pairs}:
                with isolate(opened, name, "it cannot be said whether its configs are still broken"):
                    current = alarms.find_broken_configs(pairs, fallen_configs.list_fallen_configs(opened, pairs))
                    kept = [each for each in current if each.key == alarm.key]
            still_broken += kept if pairs and pairs[0].repository not in removed else ()
    return still_broken
