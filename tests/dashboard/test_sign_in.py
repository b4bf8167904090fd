"""Signing in by OpenID Connect, with a provider that speaks all of it, in a real browser. What a page shows before and
after that is seen without one."""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import servers
from tilewatch.db import session
from tilewatch.db.models import RegressionEvent
from tilewatch.db.server.free_ports import find_free_port

TRIAGER, VIEWER, UNVERIFIED = "kim@example.org", "lee@example.org", "mo@example.org"
SILENT = "max@example.org"  # the provider says nothing of this address
PEOPLE = (
    {"sub": TRIAGER, "email": TRIAGER, "email_verified": True},
    {"sub": VIEWER, "email": VIEWER, "email_verified": True},
    {"sub": UNVERIFIED, "email": UNVERIFIED, "email_verified": "false"},  # as some providers send it
    {"sub": SILENT, "email": SILENT},
)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = find_free_port()
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    for person in PEOPLE:
        command += ["--user-claims", json.dumps(person)]
    found = f"http://127.0.0.1:{port}/.well-known/openid-configuration"
    with servers.process(command, tmp_path_factory.mktemp("provider"), os.environ, found):
        yield found


@pytest.fixture(scope="module")
def acted_on_url(new_filled_database: NewDatabase) -> Iterator[str]:
    """A filled database of these tests' own, since they change it."""
    with new_filled_database() as url:
        yield url


@pytest.fixture(scope="module")
def address(acted_on_url: str, provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard with the section of docs/use/dashboard.md in its secrets."""
    folder, port = tmp_path_factory.mktemp("signed"), find_free_port()
    secrets = folder / ".streamlit" / "secrets.toml"
    secrets.parent.mkdir()
    secrets.write_text(
        f'TILEWATCH_TRIAGERS = "{TRIAGER}, {UNVERIFIED}, {SILENT}"\n'
        "[auth]\n"
        f'redirect_uri = "http://127.0.0.1:{port}/oauth2callback"\n'
        'cookie_secret = "a secret of these tests alone, and long"\n'
        'client_id = "tilewatch"\n'
        'client_secret = "known to both"\n'
        f'server_metadata_url = "{provider}"\n'
    )
    with servers.dashboard(acted_on_url, folder, port, {}) as served:
        yield served


@pytest.fixture
def known_servers(address: str, provider: str) -> tuple[str, ...]:
    return address, provider.partition("/.well-known")[0]


def sign_in(page: Any, person: str) -> None:
    page.goto("/regressions?regression=1")
    page.get_by_text("Sign in to see this Tilewatch.").wait_for()
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=person).click()  # at the provider
    page.get_by_text("Sign in to see this Tilewatch.").wait_for(state="detached")


@pytest.mark.browser
def test_a_named_triager_signs_in_acts_under_that_address_and_signs_out(page: Any, acted_on_url: str) -> None:
    sign_in(page, TRIAGER)
    page.get_by_text(TRIAGER, exact=True).wait_for()
    page.goto("/regressions?regression=1")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("Acknowledge: done.").wait_for()
    with session.session(acted_on_url) as opened:
        assert TRIAGER in opened.scalars(select(RegressionEvent.who))
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="End session").click()  # the provider's own question
    page.get_by_text("Sign in to see this Tilewatch.").wait_for()


@pytest.mark.browser
def test_a_viewer_browses_and_finds_no_button_to_act(page: Any) -> None:
    sign_in(page, VIEWER)
    page.goto("/regressions?regression=1")
    page.get_by_text(f"{VIEWER} is not one of the triagers (see TILEWATCH_TRIAGERS).").first.wait_for()
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)


@pytest.mark.browser
@pytest.mark.parametrize("person", [UNVERIFIED, SILENT])
def test_an_address_that_nobody_verified_is_nobodys_even_a_triagers(page: Any, person: str) -> None:
    page.goto("/")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=person).click()
    page.get_by_text("Sign in to see this Tilewatch.").wait_for()
    expect(page.get_by_text(person)).to_have_count(0)


@pytest.mark.browser
def test_without_signing_in_no_metrics_are_read_and_no_other_site_frames_a_page(page: Any, address: str) -> None:
    assert page.request.get(f"{address}/_stcore/metrics").status == 404
    policy = page.request.get(f"{address}/trends").headers["content-security-policy"]
    assert "frame-ancestors 'self'" in policy


def page_behind_the_door() -> None:
    import streamlit as st

    from tilewatch.dashboard import sign_in

    if sign_in.admit():
        st.text("the page")


@pytest.fixture(scope="module")
def door() -> AppTest:
    return AppTest.from_function(page_behind_the_door)


def at_the_door(door: AppTest, secrets: dict[str, Any], user: dict[str, Any]) -> AppTest:
    door.secrets, door.user = secrets, user
    return door.run()


IN = {"is_logged_in": True, "email": VIEWER, "email_verified": True}
SIGN_IN = "Sign in to see this Tilewatch."


@pytest.mark.parametrize(
    ("secrets", "user", "buttons", "told", "is_admitted"),
    [
        ({}, {}, [], [], True),
        ({"TILEWATCH_ANONYMOUS": "nothing"}, {}, [], ["Tilewatch", SIGN_IN], False),
        ({"TILEWATCH_ANONYMOUS": "acts"}, {}, [], ["expected one of nothing, browse, act."], False),
        ({"auth": {}}, {}, ["Sign in"], ["Tilewatch", SIGN_IN], False),
        ({"auth": {}, "TILEWATCH_ANONYMOUS": "browse"}, {}, ["Sign in"], [], True),
        ({"auth": {}}, IN, ["Sign out"], [VIEWER], True),
        ({"auth": {}}, {**IN, "email_verified": False}, ["Sign in"], ["Tilewatch", SIGN_IN], False),
    ],
)
def test_the_door_opens_for_who_may_browse_and_has_the_button_of_the_visitor(
    secrets: dict[str, Any],
    user: dict[str, Any],
    buttons: list[str],
    told: list[str],
    is_admitted: bool,
    door: AppTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TILEWATCH_ANONYMOUS", raising=False)
    app = at_the_door(door, secrets, user)
    assert not app.exception
    assert app.user == user, "nobody is signed out without a click"
    assert [button.label for button in app.button] == buttons
    shown = [each.value for each in (*app.title, *app.caption, *app.info, *app.error)]
    assert [words.endswith(end) for words, end in zip(shown, told, strict=True)] == [True] * len(told)
    assert [each.value for each in app.text] == (["the page"] if is_admitted else [])


def test_the_buttons_at_the_door_sign_in_by_the_provider_and_sign_out(door: AppTest) -> None:
    at_the_door(door, {"auth": {}}, IN).button(key="sign-out").click().run()
    assert door.user == {"is_logged_in": False}
    at_the_door(door, {"auth": {}}, {}).button(key="sign-in").click().run()
    assert "authentication provider" in door.exception[0].message, "there is none in these secrets"
