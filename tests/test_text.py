"""Words that every part of the product writes alike."""

import pytest

from tilewatch.text import change_text, count_text, short_sha


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1, "series", "1 series"),
        (2, "series", "2 series"),
        (9_000, "config", "9,000 configs"),
        (2, "new regression", "2 new regressions"),
    ],
)
def test_a_number_and_its_noun_agree(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text


def test_a_commit_has_ten_digits_and_a_change_its_sign() -> None:
    assert short_sha("1a2b3c4d5e6f" + "0" * 28) == "1a2b3c4d5e"
    assert (change_text(0.0312), change_text(-0.5)) == ("+3.1 %", "-50.0 %")
