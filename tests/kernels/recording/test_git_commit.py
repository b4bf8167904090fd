"""The moment of a commit, whatever its author's clock said."""

import datetime as dt

import pytest

from tilewatch.kernels.recording.git_commit import read_moment

NOW_S = 1_795_000_000


@pytest.mark.parametrize(
    ("seconds", "moment_s"),
    [
        (str(NOW_S - 1), NOW_S - 1),
        (str(NOW_S), NOW_S),
        (str(NOW_S + 1), NOW_S),
        ("9" * 30, NOW_S),
        ("9" * 31, 0),
        ("1", 1),
        ("-1", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_a_moment_is_between_1970_and_now(seconds: str, moment_s: int) -> None:
    now = dt.datetime.fromtimestamp(NOW_S, dt.UTC)
    assert read_moment(seconds, now) == dt.datetime.fromtimestamp(moment_s, dt.UTC)
