"""One filled database and one empty one for all pages, which only read, and a real browser."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from db import session
from tests.conftest import NewDatabase
from tests.dashboard.filled import fill

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on PATH: looked for {', '.join(BROWSERS)}")
    from playwright.sync_api import sync_playwright  # a dependency of these tests alone

    with sync_playwright() as playwright:
        # Containers forbid Chromium its own sandbox, and it would call home for updates.
        quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        opened = playwright.chromium.launch(executable_path=path, args=quiet)
        yield opened
        opened.close()
