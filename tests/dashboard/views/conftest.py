"""The dashboard of the small database, where whoever types a name may act."""

from collections.abc import Iterator

import pytest

from tests.dashboard.fixtures import servers


@pytest.fixture(scope="session")
def address(filled_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    may_triage = {"TILEWATCH_ANONYMOUS": "act"}  # so that a journey can
    with servers.dashboard(filled_url, tmp_path_factory.mktemp("elsewhere"), servers.free_port(), may_triage) as served:
        yield served
