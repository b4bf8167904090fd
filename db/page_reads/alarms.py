"""Reads the open alarms, and describes each kind of alarm."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db.models import Alarm
from tilewatch.db.query_parts import read_rows, select_row


@dataclass(frozen=True)
class AlarmRow:
    id: int
    key: str
    kind: str
    subject: str
    detail: str
    opened_at: dt.datetime
    closed_at: dt.datetime | None


ALARMS = {
    "nightly_late": ("the nightly is late", "Look at the queue and at the workers."),
    "nightly_missing": ("the nightly is missing", "Look at the clock that submits it, and submit it by hand."),
    "nightly_failed": ("a nightly could not be submitted", "Mend what its reason names, and submit it by hand."),
    "repository_failed": ("something cannot be done for a repository", "Read what raised; the log has the traceback."),
    "process_ended": ("a process ended by itself", "Read its log: it was started again."),
    "gpu_quarantined": ("a GPU is quarantined", "Look at its canaries; it returns once they are good again."),
    "stopped_compiling": ("configs stopped compiling", "Read the compiler's messages on the series' sweep."),
    "became_wrong": ("results became wrong", "Compare the outputs on the series' sweep."),
    "tie_lost": ("the best config changed", "Check that the config which ships is still among the best."),
    "regret": ("the shipped config falls behind", "Ship the winner of the newest sweep."),
    "baseline_changed": ("the baseline changed", "Read the ratio against its new version."),
    "fetch_failed": ("a repository cannot be fetched", "Check its address and the network."),
    "not_confined": (
        "commits' code is not confined",
        "Give the node what its detail names (docs/operate/security.md).",
    ),
    "line_lost": ("less of the optimisation guide is kept", "Read the checklist of the series' newest run."),
    "list_beaten": ("a config outside the short list is better", "Add it to the list."),
    "history_rewritten": ("a history was rewritten", "Check that the branch is the right one."),
}
"""Maps each kind of alarm to a description and to the next action."""


def describe_kind(kind: str) -> tuple[str, str]:
    """Returns the description and the next action of a kind of alarm."""
    return ALARMS.get(kind, (kind.replace("_", " "), "Look at the queue."))


def list_alarms(session: Session) -> list[AlarmRow]:
    """Lists the open alarms, the newest first."""
    query = select_row(AlarmRow, [Alarm]).where(Alarm.closed_at.is_(None))
    return read_rows(session, query.order_by(Alarm.opened_at.desc(), Alarm.id.desc()), AlarmRow)
