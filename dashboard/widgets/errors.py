"""Shows a sentence instead of a stack trace for expected errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from sqlalchemy.exc import DBAPIError, ProgrammingError

from tilewatch.dashboard.frames.reads import NoDatabase, database_url
from tilewatch.dashboard.widgets.filters import UnknownChoice
from tilewatch.db.session import DatabaseUnreachable, address


@contextmanager
def show_errors() -> Iterator[None]:
    """Shows a sentence if the `with` block raises an expected error. A Streamlit fragment needs its own block."""
    try:
        yield
    except UnknownChoice as error:
        st.warning(str(error))
    except (NoDatabase, DatabaseUnreachable) as error:
        st.error(str(error))
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
