"""What is let go with age: the raw samples of trials that lost. Winners, measurements and verdicts stay for ever.

Small transactions, so that workers that write trials are not kept waiting and a stop in between loses nothing.
"""

import datetime as dt

from tilewatch.db import record
from tilewatch.db.session import session

BATCH = 5_000
"""Trials in one transaction."""


def prune(database_url: str, days: int, now: dt.datetime) -> int:
    """How many trials were rolled up to their median."""
    before = now - dt.timedelta(days=days)
    rolled_up = 0
    while True:
        with session(database_url) as opened:
            changed = record.roll_up_trials(opened, before, BATCH)
        rolled_up += changed
        if not changed:
            return rolled_up
