"""What a person reads when the data cannot be read: one sentence, never a stack trace, never a password."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from sqlalchemy.exc import DBAPIError, ProgrammingError

from tilewatch.dashboard.frames.reads import NoDatabase, database_url
from tilewatch.db.session import DatabaseUnreachable, address


@contextmanager
def show_errors() -> Iterator[None]:
    """Say it on the page instead of raising. Live fragments need their own: they run again without the page."""
    try:
        yield
    except (NoDatabase, DatabaseUnreachable) as trouble:
        st.error(str(trouble))
    except DBAPIError as error:
        st.error(sentence(error, address(database_url())))


def sentence(error: DBAPIError, where: str) -> str:
    if isinstance(error, ProgrammingError):
        return (
            f"The database at {where} has other tables than this version of Tilewatch expects. "
            "Run `tilewatch migrate`, then reload this page."
        )
    return (
        f"The database at {where} does not answer. Is Tilewatch running? `make up` starts it; this page can stay open."
    )
