"""Who may browse and who may act: every combination of settings that a mistake could make too generous."""

import pytest

from tilewatch.dashboard import rights as people
from tilewatch.dashboard.rights import BadRules, decide_rights, read_rules

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
