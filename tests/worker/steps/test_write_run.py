"""What a run's certificate says of the configs outside the short list."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import run_result
from tilewatch.configs import config_sha256
from tilewatch.db.worker_reads.tried_configs import TriedState
from tilewatch.worker.steps.write_run import certify

IDS = {config_sha256({"width": width}): width for width in (64, 128, 256)}
DAY = f"{run_result.result().finished_at:%Y-%m-%d}"
BEFORE = {"first_run": 3, "full_look": "2026-10-01", "ahead": 0.02}


@pytest.mark.parametrize(
    ("rest", "tried", "tried_of_space", "untried", "full_look"),
    [(10, 4, 6, 6, None), (10, 9, 11, 1, None), (10, 10, 12, 0, DAY), (10, 12, 12, 0, DAY), (10, 0, 2, 10, None)],
)
def test_a_certificate_counts_the_short_list_as_tried_and_dates_the_first_full_look(
    db_session: Session, rest: int, tried: int, tried_of_space: int, untried: int, full_look: str | None
) -> None:
    """Configs that were tried and have left the space count no more."""
    sweep_id = one_commit.submit(db_session).sweep_id
    state = TriedState(None, [128, 256], rest, tried)
    made = certify(db_session, sweep_id, 7, state, run_result.result(), IDS)
    assert (made.space, made.tried, made.untried) == (rest + 2, tried_of_space, untried)
    assert (made.first_run, made.full_look, made.looks) == (7, full_look, 0)
    assert made.chance_1 == made.chance_3 == untried / rest, "no full look says otherwise"
    again = certify(db_session, sweep_id, 8, replace(state, certificate=BEFORE), run_result.result(), IDS)
    assert (again.first_run, again.full_look) == (3, "2026-10-01" if untried == 0 else None)


@pytest.mark.parametrize(
    ("certificate", "listed", "ahead"),
    [
        (None, [128], 0.0),  # the winner is of the list
        (None, [256], 0.01478),  # 100 us beat 101.5 us
        ({**BEFORE, "ahead": 0.01}, [256], 0.01478),
        (BEFORE, [256], 0.02),
        (None, [64], 0.0),  # no config of the list has a time
    ],
)
def test_a_certificate_keeps_the_largest_lead_over_the_short_list(
    db_session: Session, certificate: dict[str, Any] | None, listed: list[int], ahead: float
) -> None:
    sweep_id = one_commit.submit(db_session).sweep_id
    made = certify(db_session, sweep_id, 7, TriedState(certificate, listed, 10, 5), run_result.result(), IDS)
    assert made.ahead == ahead
    assert made.ahead_before == (certificate or {"ahead": 0.0})["ahead"]
