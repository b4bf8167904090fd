"""Who may browse and who may act: every combination of settings that a mistake could make too generous."""

from collections.abc import Callable
from typing import Any

import pytest
import streamlit as st

from tilewatch.dashboard import rights as people
from tilewatch.dashboard.rights import BadRules, Rights, decide_rights, read_rules

OPEN = read_rules(False, "", "")
LAPTOP = read_rules(False, "act", "")
SIGNED = read_rules(True, "", "kim@example.org, *@team.example.org")


def test_without_settings_everybody_browses_and_nobody_acts() -> None:
    found = decide_rights(OPEN, None, "kim")
    assert (found.browse, found.act, found.who) == (True, False, None)


def test_where_people_sign_in_a_stranger_sees_nothing() -> None:
    found = decide_rights(SIGNED, None, "kim@example.org")
    assert (found.browse, found.act) == (False, False)
    assert found.why_not == "Sign in to see this Tilewatch."


def test_a_viewer_browses_and_is_told_why_he_cannot_act() -> None:
    found = decide_rights(SIGNED, "lee@example.org", "")
    assert (found.browse, found.act) == (True, False)
    assert "lee@example.org is not one of the triagers" in found.why_not


@pytest.mark.parametrize("email", ["kim@example.org", "Kim@Example.org", "ada@team.example.org"])
def test_a_named_triager_acts_under_their_address(email: str) -> None:
    found = decide_rights(SIGNED, email, "somebody else")
    assert (found.act, found.who) == (True, email)


def test_a_domain_is_not_matched_by_one_that_ends_like_it() -> None:
    assert not people.is_triager("ada@team.example.org.evil.org", SIGNED.triagers)
    assert not people.is_triager("kim@example.org.evil.org", SIGNED.triagers)


def test_anonymous_acts_only_when_allowed_and_only_with_a_name_that_says_so() -> None:
    assert not decide_rights(LAPTOP, None, "  ").act
    found = decide_rights(LAPTOP, None, " kim ")
    assert (found.act, found.who) == (True, "kim (not signed in)")


def test_anonymous_may_browse_beside_a_sign_in_when_allowed() -> None:
    found = decide_rights(read_rules(True, "browse", ""), None, "kim")
    assert (found.browse, found.act, found.why_not) == (True, False, "Sign in to act.")


def test_a_misspelt_right_is_refused_and_not_guessed() -> None:
    with pytest.raises(BadRules, match="'acts', expected one of nothing, browse, act"):
        read_rules(False, "acts", "")


@pytest.mark.parametrize(
    ("claims", "trusts_silence", "address"),
    [
        ({"email": "kim@example.org", "email_verified": True}, False, "kim@example.org"),
        ({"email": "kim@example.org", "email_verified": "true"}, False, "kim@example.org"),
        ({"email": "kim@example.org", "email_verified": "false"}, True, None),
        ({"email": "kim@example.org"}, False, None),
        ({"email": "kim@example.org"}, True, "kim@example.org"),
        ({"email": "", "email_verified": True}, False, None),
    ],
)
def test_an_address_is_somebody_s_only_where_the_provider_says_so(
    claims: dict[str, object], trusts_silence: bool, address: str | None
) -> None:
    assert people.find_address(claims, trusts_silence) == address


KIM = "kim@example.org"


class User(dict[str, Any]):
    """What a visitor's browser and the provider say of the visitor, as Streamlit hands it on."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self)


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rights]:
    """The rights that a page finds with such secrets for such a visitor, who typed a name."""

    def find(secrets: dict[str, Any], **user: Any) -> Rights:
        monkeypatch.setattr(st, "user", User(user))
        if secrets:  # else Streamlit finds no file
            monkeypatch.setattr(st, "secrets", secrets)
        return people.find_rights("typed")

    return find


@pytest.mark.parametrize(
    ("claims", "who"),
    [
        ({"is_logged_in": True, "email_verified": True}, KIM),
        ({"is_logged_in": True}, KIM),
        ({"is_logged_in": True, "email_verified": False}, None),
        ({"is_logged_in": False, "email_verified": True}, None),
        ({"email_verified": True}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("trusted", ["1", 1])
def test_an_address_without_a_sign_in_is_nobody_s(
    trusted: object, claims: dict[str, bool], who: str | None, visit: Callable[..., Rights]
) -> None:
    """A visitor's browser may send an address that no provider has seen."""
    secrets = {"auth": {}, "TILEWATCH_TRIAGERS": KIM, "TILEWATCH_TRUST_ADDRESSES": trusted}
    found = visit(secrets, email=KIM, **claims)
    assert (found.browse, found.act, found.who) == (who is not None, who is not None, who)


@pytest.mark.parametrize("trusted", ["0", "", "yes"])
def test_only_a_one_trusts_addresses_that_the_provider_leaves_unverified(
    trusted: str, visit: Callable[..., Rights]
) -> None:
    secrets = {"auth": {}, "TILEWATCH_TRIAGERS": KIM, "TILEWATCH_TRUST_ADDRESSES": trusted}
    assert visit(secrets, email=KIM, is_logged_in=True).who is None


@pytest.mark.parametrize(
    ("environment", "secrets", "expected"),
    [
        (None, {}, (True, False)),
        (None, {"auth": {}}, (False, False)),
        (None, {"TILEWATCH_ANONYMOUS": "act"}, (True, True)),
        ("act", {}, (True, True)),
        ("nothing", {"TILEWATCH_ANONYMOUS": "act"}, (False, False)),
        ("", {"TILEWATCH_ANONYMOUS": "act"}, (True, False)),
    ],
)
def test_the_environment_goes_before_the_secrets(
    environment: str | None,
    secrets: dict[str, Any],
    expected: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
    visit: Callable[..., Rights],
) -> None:
    monkeypatch.delenv("TILEWATCH_ANONYMOUS", raising=False)
    if environment is not None:
        monkeypatch.setenv("TILEWATCH_ANONYMOUS", environment)
    found = visit(secrets)
    assert (found.browse, found.act) == expected


def test_without_settings_the_rules_are_those_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWATCH_ANONYMOUS", "TILEWATCH_TRIAGERS"):
        monkeypatch.delenv(name, raising=False)
    assert people.find_rules() == OPEN


def test_each_refusal_says_what_would_help() -> None:
    assert decide_rights(OPEN, None, "kim").why_not == "Nobody may act here (see TILEWATCH_ANONYMOUS)."
    assert decide_rights(LAPTOP, None, "  ") == Rights(True, False, None, "Type your name to act.")
    assert decide_rights(LAPTOP, None, "kim").why_not == ""
    assert decide_rights(SIGNED, KIM, "").why_not == ""
    assert decide_rights(OPEN, KIM, "kim").act is False, "nobody is a triager where none is named"


def test_names_of_triagers_may_have_spaces_and_gaps_between_them() -> None:
    assert read_rules(True, " browse ", " Kim@example.org ,, *@Team.example.org,").triagers == (
        KIM,
        "*@team.example.org",
    )
    assert read_rules(True, " browse ", "").anonymous == "browse"
