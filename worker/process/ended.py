"""Opens an alarm about a process that ended, or that was ended because it made no progress."""

from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db.lifecycle import alarms
from tilewatch.db.session import DatabaseUnreachable, session


def open_alarm(database_url: str, process: str, sentence: str) -> bool:
    """Opens an alarm about a process and returns True. Returns False if the database cannot be written now."""
    try:
        with session(database_url) as opened:
            alarms.open_failure(opened, alarms.ENDED_PROCESS, process, sentence)
    except (DatabaseUnreachable, SQLAlchemyError):
        return False
    return True
