"""What commands begin with: the settings, a database that is ready, a day that was typed. Imports little by itself."""

import datetime as dt
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tilewatch.worker.settings import Settings


def settings() -> "Settings":
    from tilewatch.worker.settings import Settings

    return Settings.load()


def ready_database() -> str:
    """The URL of a database that answers and has this version's tables."""
    from tilewatch.db.migrate import require_head
    from tilewatch.db.session import check

    database_url = settings().connection().database_url
    check(database_url)
    require_head(database_url)
    return database_url


def day(text: str | None) -> dt.date | None:
    try:
        return None if text is None else dt.date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is not a day; expected YYYY-MM-DD, such as 2026-11-01") from None
