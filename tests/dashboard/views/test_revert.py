"""A mistake is taken back: the front page, the inbox and the regression's page blame nobody for the revert."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import servers, small_database
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import session
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log
from tilewatch.worker.notify.update_alarms import update_alarms

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(new_filled_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with new_filled_database() as url:
        with session(url) as opened:
            small_database.add_revert(opened)
        out = Outbox(url, NotifySettings(), {"log": Log()}, "http://here")
        update_alarms(out, (), NightlyTimes(), 0.1, dt.datetime.now(dt.UTC))
        with servers.dashboard(url, tmp_path_factory.mktemp("reverted"), find_free_port(), {}) as served:
            yield served


def test_a_commit_that_takes_a_regression_back_is_named_as_its_end_and_blamed_for_nothing(page: Any) -> None:
    page.goto("/")
    page.get_by_role("heading", name="need a person").or_(page.get_by_role("heading", name="needs a person")).wait_for()
    expect(page.get_by_role("heading", name="a person")).not_to_contain_text("regression")
    page.get_by_role("link", name="Open the inbox").click()
    page.get_by_text("All confirmed changes, also those that ended").wait_for()
    cards = page.get_by_test_id("stMain")
    expect(cards).not_to_contain_text("The best config changed")
    expect(cards).not_to_contain_text("7d7d7d7d7d")
    page.goto("/regressions?regression=1")
    page.get_by_text("recovered by -8.5% at 7d7d7d7d7d Revert the two blocks").wait_for()
    page.get_by_text("every series recovered").wait_for()
