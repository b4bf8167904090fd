"""One database for all tests of this folder: none of them commits, and each begins without any row."""

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.db.fixtures.rows import Rows


@pytest.fixture(scope="session")
def database_url(new_database: NewDatabase) -> Iterator[str]:
    """A migrated database that `db_session` takes its writes back from. One for each test would take 20 s."""
    with new_database() as url:
        yield url


@pytest.fixture
def rows(db_session: Session) -> Rows:
    return Rows(db_session)
