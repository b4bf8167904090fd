"""Opens an alarm about a process that ended unexpectedly or was stuck."""

from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db.lifecycle import alarms
from tilewatch.db.session import DatabaseUnreachable, session


def open_alarm(database_url: str, process: str, sentence: str) -> bool:
    """Opens an alarm about a process. Returns False if the database cannot be written."""
    try:
        with session(database_url) as opened:
            alarms.open_failure(opened, alarms.ENDED_PROCESS, process, sentence)
    except (DatabaseUnreachable, SQLAlchemyError):
        return False
    return True
