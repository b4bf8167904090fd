"""One database for all tests of this folder: none of them commits, and each begins without any row."""

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.db.fixtures.rows import Rows
from tilewatch.db import session


@pytest.fixture(scope="session")
def uncommitted_url(new_database: NewDatabase) -> Iterator[str]:
    with new_database() as url:
        yield url


@pytest.fixture
def db_session(uncommitted_url: str) -> Iterator[Session]:
    """A session whose writes are taken back: a database for each of a hundred short tests would take 20 s."""
    options = session.UNSYNCHRONIZED
    with Session(session.engine(uncommitted_url), expire_on_commit=False, execution_options=options) as opened:
        yield opened


@pytest.fixture
def rows(db_session: Session) -> Rows:
    return Rows(db_session)
