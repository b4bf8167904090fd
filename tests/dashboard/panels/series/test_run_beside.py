"""The sentences beside a chart on why a run's time changed."""

from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.dashboard.frames import explanation
from tilewatch.dashboard.panels.series import run_beside
from tilewatch.mechanisms.find import Mechanism


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        (None, []),
        ((), []),
        ((Mechanism("spills", "registers spilled", ()),), ["Mechanism of the change: registers spilled ()."]),
    ],
)
def test_a_mechanism_is_named_if_it_is_known(
    monkeypatch: pytest.MonkeyPatch, change: tuple[Mechanism, ...] | None, sentences: list[str]
) -> None:
    """The judge's reason beside it may name the mechanism of another pair of configs."""
    monkeypatch.setattr(explanation, "find_change", lambda _: change)
    run = SimpleNamespace(verdict="regression")
    found: Any = SimpleNamespace(run=run, suspicion=None, replays=[], diff_to_before=None, winner=None)
    assert list(run_beside.list_causes(found)) == sentences
