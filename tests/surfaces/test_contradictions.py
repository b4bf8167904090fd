"""No two surfaces contradict each other: pages, messages, command line, HTTP and MCP, over drawn databases.

`DRAWN_DATABASES=500 pytest tests/surfaces` draws more of them, and `FIRST_DATABASE` others.
"""

import datetime as dt
import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conftest import NewDatabase
from tests.db.fixtures import worlds
from tests.surfaces.fixtures import pages, truth
from tests.surfaces.fixtures.claims import find_contradictions
from tests.surfaces.fixtures.surfaces import Surfaces
from tests.worker.fixtures.api_server import serve
from tilewatch.db.session import session
from tilewatch.worker.settings import Settings

DATABASES = int(os.environ.get("DRAWN_DATABASES", "8"))
FIRST = int(os.environ.get("FIRST_DATABASE", random.SystemRandom().randrange(10**9)))  # nothing is hidden by it
"""Others each time: what fails prints its number."""
FEW = 3


@pytest.fixture(scope="module")
def surfaces(new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surfaces]:
    folder = tmp_path_factory.mktemp("home")
    with new_database() as url:
        settings = Settings(home=folder, database_url=url, broker_url="redis://nobody")
        with serve(settings) as address:
            yield Surfaces(url, address, settings, folder)


def test_no_two_surfaces_contradict_each_other(surfaces: Surfaces) -> None:
    spoke: Counter[tuple[str, str]] = Counter()
    for number in range(FIRST, FIRST + DATABASES):
        now = draw(surfaces.url, number)
        with session(surfaces.url) as opened:
            points = truth.read_points(opened)
            claims = [*truth.list_claims(opened, now), *surfaces.list_claims(points, now)]
        assert find_contradictions(claims) == [], f"FIRST_DATABASE={number}"
        spoke.update((claim.surface, str(claim.about[0])) for claim in claims)
    subjects = Counter(about for _, about in spoke)
    assert not [about for about, surfaces_of_it in subjects.items() if surfaces_of_it < 2], "somebody else speaks of it"


def test_pages_write_what_the_rows_say(surfaces: Surfaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sentence with a count names its scope, each change has its word, and "first" is said of the first alone."""
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", surfaces.url)
    for number in range(FIRST, FIRST + max(1, DATABASES // 20)):
        now = draw(surfaces.url, number)
        with session(surfaces.url) as opened:
            points = truth.read_points(opened)
            said = {claim.about: claim.value for claim in truth.list_claims(opened, now)}
        scopes = ("all repositories", "any repository", *{each.commit.repository for each in points})
        asked = [(name, {}) for name in pages.list_names()]
        asked += [("regressions", {"regression": str(about[1])}) for about in said if about[0] == "size"][:FEW]
        for name, parameters in asked:
            for sentence in pages.read(name, **parameters):
                about = f"FIRST_DATABASE={number}, {name}: {sentence}"
                assert not pages.COUNT.search(sentence) or any(scope in sentence for scope in scopes), about
                assert not pages.CHANGE_WITHOUT_WORD.search(sentence), about
                for sign, word in pages.CHANGE.findall(sentence):
                    assert word == {"+": "slower", "-": "faster"}[sign], about
        for point in points[:FEW]:
            words = " ".join(pages.read(pages.RUN_PAGE, run=str(point.run.id)))
            is_first = said["run before", point.run.id] is None
            assert ("first of its series" in words) == is_first, f"FIRST_DATABASE={number}, run {point.run.id}"


def draw(url: str, number: int) -> dt.datetime:
    """Makes the database that of a number. Returns its moment."""
    with session(url) as opened:
        worlds.empty(opened)
    with session(url) as opened:
        worlds.fill(opened, number)
    return dt.datetime.now(dt.UTC)
