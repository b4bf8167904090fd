"""When a nightly is due, missing or late: what the alarms and the dashboard both go by."""

import datetime as dt

import pytest

from tilewatch import nightlies
from tilewatch.nightlies import NightlyTimes

NIGHT = dt.date(2026, 11, 20)
TIMES = NightlyTimes(nightly_at=dt.time(3, 0), nightly_limit_h=8)


def at(hour: int, minute: int = 0, *, day: int = 20) -> dt.datetime:
    return dt.datetime(2026, 11, day, hour, minute, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (at(2, 59), dt.date(2026, 11, 19)),
        (at(3, 1), dt.date(2026, 11, 19)),  # the clock's own entry may be submitting it just now
        (at(3, 5), NIGHT),
        (at(23, 59), NIGHT),
        (at(0, 0, day=21), NIGHT),
    ],
)
def test_a_night_is_due_once_its_hour_has_passed(now: dt.datetime, due: dt.date) -> None:
    assert nightlies.due_night(now, TIMES) == due


@pytest.mark.parametrize("written", ["03:00", "03:00Z", "05:00+02:00", "19:00-08:00"])
def test_an_hour_may_be_written_with_an_offset(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With "03:00Z" each look at the clock ended with a TypeError, so no nightly was submitted and no alarm opened."""
    monkeypatch.setenv("TILEWATCH_NIGHTLY_AT", written)
    times = NightlyTimes.load()
    assert times.nightly_at == TIMES.nightly_at
    assert nightlies.due_night(at(3, 5), times) == NIGHT


def test_the_patience_of_a_night_goes_over_midnight() -> None:
    late = NightlyTimes(nightly_at=dt.time(23, 58))
    assert nightlies.due_night(at(0, 1, day=21), late) == dt.date(2026, 11, 19)
    assert nightlies.due_night(at(0, 3, day=21), late) == NIGHT


@pytest.mark.parametrize(
    ("last", "now", "missing"),
    [
        (None, at(12), None),  # before the first nightly
        (NIGHT, at(12), None),
        (dt.date(2026, 11, 19), at(3, 29), None),
        (dt.date(2026, 11, 19), at(3, 30), NIGHT),
        (dt.date(2026, 11, 1), at(3, 29), dt.date(2026, 11, 19)),
    ],
)
def test_a_nightly_is_missing_half_an_hour_after_its_hour(
    last: dt.date | None, now: dt.datetime, missing: dt.date | None
) -> None:
    assert nightlies.missing_night(last, now, TIMES) == missing


def test_the_limit_of_the_environment_decides_what_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not nightlies.is_late("measuring", at(3), at(11), NightlyTimes())
    assert nightlies.is_late("measuring", at(3), at(11, 1), NightlyTimes())
    monkeypatch.setenv("TILEWATCH_NIGHTLY_LIMIT_H", "10")
    assert not nightlies.is_late("measuring", at(3), at(13), NightlyTimes())
    assert nightlies.is_late("failed", at(3), at(13, 1), NightlyTimes())
    assert not nightlies.is_late("measured", at(3), at(23), NightlyTimes())
