"""The HTTP server of a small database with something of everything, in which a test may write what no other reads."""

from collections.abc import Iterator

import pytest

from tests.conftest import NewDatabase
from tests.worker.fixtures.api_server import serve
from tilewatch.worker.settings import Settings


@pytest.fixture(scope="module")
def api_url(new_filled_database: NewDatabase) -> Iterator[str]:
    with new_filled_database() as url:
        yield url


@pytest.fixture(scope="module")
def server(api_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    settings = Settings(home=tmp_path_factory.mktemp("home"), database_url=api_url, broker_url="redis://nobody")
    with serve(settings) as address:
        yield address
