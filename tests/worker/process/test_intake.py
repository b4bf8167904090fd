"""A worker takes from a queue while no reason speaks against it."""

import pytest

from tilewatch.worker.process.intake import Intake


@pytest.fixture
def changes() -> list[tuple[str, bool]]:
    return []


@pytest.fixture
def intake(changes: list[tuple[str, bool]]) -> Intake:
    return Intake(("compile", "gpu.sim"), lambda queue, wanted: changes.append((queue, wanted)))


def test_a_reason_closes_its_queues_once_and_opens_them_again(intake: Intake, changes: list[tuple[str, bool]]) -> None:
    intake.reopen("illness")
    assert changes == []
    intake.close("illness", ["gpu.sim"])
    intake.close("illness", ["gpu.sim"])
    assert changes == [("gpu.sim", False)]
    intake.reopen("illness")
    assert changes == [("gpu.sim", False), ("gpu.sim", True)]


def test_a_queue_stays_closed_until_the_last_reason_is_gone(intake: Intake, changes: list[tuple[str, bool]]) -> None:
    intake.close("illness", ["gpu.sim"])
    intake.close("release")
    assert changes == [("gpu.sim", False), ("compile", False)]
    intake.reopen("illness")
    assert len(changes) == 2
    intake.reopen("release")
    assert changes[2:] == [("compile", True), ("gpu.sim", True)]
