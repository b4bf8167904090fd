"""One filled database and one empty one for all pages: pages only read."""

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from db import session
from tests.conftest import NewDatabase
from tests.dashboard.filled import fill


@pytest.fixture(scope="session")
def filled_url(new_database: NewDatabase) -> Iterator[str]:
    with new_database() as url:
        with session.session(url) as opened:
            fill(opened)
        yield url


@pytest.fixture(scope="session")
def empty_url(new_database: NewDatabase) -> Iterator[str]:
    with new_database() as url:
        yield url


@pytest.fixture
def filled(filled_url: str) -> Iterator[Session]:
    with session.session(filled_url) as opened:
        yield opened
