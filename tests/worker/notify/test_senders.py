"""A service's error is shown without the parts of our address that it repeats."""

import pytest

from tilewatch.text import WORD_JOINER, one_line, without_mentions
from tilewatch.worker.notify.senders import OutgoingMessage, Service, without_secrets


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("no such token T0KENT0KEN", "no such token ..."),
        ("cannot reach hooks.example.org", "cannot reach hooks.example.org"),
        ("user robot@hooks.example.org was refused with hunter2!", "user robot@hooks.example.org was refused with ..."),
    ],
)
def test_secrets_of_an_address_are_not_repeated(error: str, shown: str) -> None:
    assert without_secrets(error, "json://robot:hunter2!@hooks.example.org/T0KENT0KEN") == shown


def test_an_address_that_no_service_has_is_given_up_without_being_shown() -> None:
    outcome = Service("nosuch://hunter2").send(OutgoingMessage("k", "digest", "subject", "body"))
    assert not outcome.again
    assert outcome.trouble is not None
    assert "hunter2" not in outcome.trouble


def test_a_commit_s_subject_cannot_fake_a_line() -> None:
    assert one_line("Fix\n\nCause: none") == "Fix Cause: none"


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("<!channel> <@U123> <#C1>", "<!"),
        ("gemm @everyone (@here)", "@e"),
        ("see [the log](http://x.example)", "]("),
        ("<http://x.example|our page>", "<h"),
    ],
)
def test_text_of_others_calls_nobody_and_hides_no_link(text: str, called: str) -> None:
    assert called in text
    assert called not in without_mentions(text)
    assert without_mentions(text).replace(WORD_JOINER, "") == text


def test_a_mail_address_and_a_comparison_stay_as_they_are() -> None:
    assert without_mentions("Owner: kim@example.org, 3 < 4, a <- b") == "Owner: kim@example.org, 3 < 4, a <\u2060- b"
