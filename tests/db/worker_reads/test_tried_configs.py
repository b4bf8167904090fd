"""A config outside the short list counts as tried while code, compiler, driver and space stay the same."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, KERNEL, NOON, PROBLEM, REPOSITORY, Rows
from tilewatch.db.models import Config, Run, Submission
from tilewatch.db.worker_reads import tried_configs
from tilewatch.db.worker_reads.tried_configs import REACH, TriedState

DAY = dt.timedelta(days=1)
TILES = (16, 32, 64, 128, 256)
AXES = [["tile", list(TILES)]]


class Series:
    """A series whose kernel lists one of five configs. Runs of it have a winner that takes 10 us."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.listed, *self.drawn = (rows.config(tile=tile) for tile in TILES)
        self.runs = 0

    def run(
        self,
        *,
        first_run: int | None = None,
        won: Config | None = None,
        times: dict[int, float | None] | None = None,
        code: str = "old",
        compiler: str = "a",
        night: Submission | None = None,
        detail: dict[str, Any] | None = None,
        is_measured: bool = True,
        **columns: Any,
    ) -> Run:
        """Adds a run; `times` are those of drawn configs by number."""
        of_sweep = {
            name: columns.pop(name) for name in ("kernel", "problem", "space", "source_sha256") if name in columns
        }
        space = {"axes": AXES, "listed": [self.listed.id], "rest": 4}
        sweep = self.rows.sweep(night, **{"space": space, **of_sweep})
        self.runs += 1
        run = self.rows.run(sweep, **{"finished_at": NOON + self.runs * DAY, **columns})
        made = self.rows.compilation(f"{code} code of {run.id}", code_sha256=code, compiler=compiler)
        self.rows.trial(sweep, self.listed, 10.0, compilation_id=made.id)
        for number, us in (times or {}).items():
            self.rows.trial(sweep, self.drawn[number], us)
        if is_measured:
            certificate = {"first_run": first_run or run.id} if detail is None else detail
            measured = {"certificate": certificate} if certificate else {}
            self.rows.measure(run, 10.0, config_id=(won or self.listed).id, detail=measured)
            self.rows.measure(
                run, 99.0, role="baseline", implementation="copy", detail={"certificate": {"first_run": 0}}
            )
        return run


@pytest.fixture
def series(rows: Rows) -> Series:
    return Series(rows)


def test_the_configs_tried_in_the_newest_state_are_listed_oldest_first(
    db_session: Session, rows: Rows, series: Series
) -> None:
    first = series.run(times={3: 10.0}, toolchain={"driver": "570.1"})
    times = {1: REACH * 10.0, 2: REACH * 10.0 + 0.01, 0: None}
    second = series.run(times=times, code="new", compiler="c")
    last = series.run(
        first_run=second.id,
        times={1: 99.0, 0: 20.0, 3: None},
        code="new",
        compiler="b",
        won=series.drawn[2],
        tie=[series.drawn[2].id, series.drawn[1].id, series.listed.id],
        source_sha256="6" * 64,
    )
    assert first.id < second.id < last.id
    series.run(origin="recorded", times={3: 1.0})
    for night in (rows.night(gpu_model="b200"), rows.night(rows.commit(repository="attention"))):
        series.run(night=night, times={3: 1.0}, first_run=second.id)
        series.run(night=night, problem="256")
    alone = series.run(problem="256")
    series.run(space={"axes": AXES}, times={3: 1.0})
    series.run(problem="128", times={3: 1.0}, finished_at=NOON, toolchain={"driver": "590.1"}, first_run=second.id)
    series.run(kernel="softmax", times={3: 1.0}, detail={})
    found = tried_configs.list_tried(db_session, REPOSITORY, GPU)
    assert found.keys() == {(KERNEL, PROBLEM), (KERNEL, "128"), (KERNEL, "256"), ("softmax", PROBLEM)}
    tried = found[KERNEL, PROBLEM]
    assert (tried.source_sha256, tried.compiler, tried.driver, tried.has_changed) == ("6" * 64, "b", "580", True)
    shas = [each.sha256 for each in series.drawn]
    assert list(tried.near.items()) == [(shas[2], False), (shas[0], False), (shas[1], True)]
    assert tried.kept == [series.drawn[1].params, series.drawn[2].params]
    assert (found[KERNEL, "128"].driver, found[KERNEL, "128"].has_changed) == ("590", False)
    assert not found[KERNEL, "256"].has_changed, f"{alone.id} is the only run"
    assert found["softmax", PROBLEM].has_changed
    assert found["softmax", PROBLEM].near == {}


@pytest.mark.parametrize("number", [90_000, 90_002])
def test_of_two_runs_that_ended_together_the_later_one_counts(db_session: Session, series: Series, number: int) -> None:
    series.run(id=number, finished_at=NOON, source_sha256=f"{number:064}")
    series.run(id=90_001, finished_at=NOON, source_sha256=f"{90_001:064}")
    series.run(id=90_009, finished_at=NOON - DAY)
    tried = tried_configs.list_tried(db_session, REPOSITORY, GPU)[KERNEL, PROBLEM]
    assert tried.source_sha256 == f"{max(number, 90_001):064}"
    assert tried.has_changed
    series.run(problem="128")
    assert not tried_configs.list_tried(db_session, REPOSITORY, GPU)[KERNEL, "128"].has_changed


def _state(session: Session, run: Run) -> TriedState:
    found = tried_configs.find_state(session, run.sweep_id, run.id)
    assert found is not None
    return found


def test_the_first_run_of_a_state_has_tried_its_own_configs_only(db_session: Session, series: Series) -> None:
    series.run(times={3: 9.0}, problem="128")
    run = series.run(times={0: 9.0, 1: 8.0, 2: None}, is_measured=False)
    assert _state(db_session, run) == TriedState(None, [series.listed.id], 4, 2)
    plain = series.run(space={"axes": AXES}, problem="256")
    assert tried_configs.find_state(db_session, plain.sweep_id, plain.id) is None


def test_the_runs_of_one_state_count_each_config_once(db_session: Session, series: Series) -> None:
    old = series.run(times={3: 9.0}, code="older")
    first = series.run(times={0: 9.0, 1: 8.0})
    series.run(
        first_run=first.id, times={1: 8.0}, detail={"first_run": first.id, "looks": 2}, finished_at=NOON + 9 * DAY
    )
    series.run(
        first_run=first.id, times={1: 8.0}, detail={"first_run": first.id, "looks": 3}, finished_at=NOON + 8 * DAY
    )
    run = series.run(times={2: 7.0}, toolchain={"driver": "580.99"}, is_measured=False)
    assert old.id != first.id
    assert _state(db_session, run) == TriedState({"first_run": first.id, "looks": 2}, [series.listed.id], 4, 3)


@pytest.mark.parametrize(
    "columns",
    [
        {"code": "another"},
        {"compiler": "another"},
        {"toolchain": {"driver": "590.65"}},
        {"kernel": "softmax"},
        {"problem": "128"},
        {"origin": "recorded"},
        {"detail": {"looks": 2}},
        {"space": "axes"},
        {"space": "rest"},
        {"night": "gpu_model"},
        {"night": "repository"},
    ],
)
def test_a_change_of_any_part_begins_another_state(
    db_session: Session, rows: Rows, series: Series, columns: dict[str, Any]
) -> None:
    made = {
        "axes": {"axes": [["tile", [16, 32]]], "listed": [series.listed.id], "rest": 4},
        "rest": {"axes": AXES, "listed": [series.listed.id], "rest": 5},
        "gpu_model": rows.night(gpu_model="b200"),
        "repository": rows.night(rows.commit(repository="attention")),
    }
    replaced: dict[str, Any] = {
        name: made.get(value, value) if isinstance(value, str) else value for name, value in columns.items()
    }
    series.run(times={3: 9.0}, **replaced)
    assert _state(db_session, series.run(times={0: 9.0}, is_measured=False)).certificate is None


def test_a_list_that_took_a_config_over_leaves_the_space_as_it_was(db_session: Session, series: Series) -> None:
    space = {"axes": AXES, "listed": [series.listed.id, series.drawn[0].id], "rest": 3}
    first = series.run(space=space, times={0: 9.0, 1: 9.0})
    run = series.run(is_measured=False)
    assert _state(db_session, run) == TriedState({"first_run": first.id}, [series.listed.id], 4, 2)


def test_full_looks_are_those_that_left_nothing_untried(db_session: Session, rows: Rows, series: Series) -> None:
    full = {"untried": 0, "ahead": 0.1}
    series.run(detail=full | {"ahead": 0.2}, finished_at=NOON)
    series.run(detail=full)
    series.run(detail={"untried": 1, "ahead": 0.3})
    series.run(detail=full | {"ahead": 0.4}, problem="128")
    series.run(detail=full | {"ahead": 0.5}, kernel="softmax")
    series.run(detail=full, origin="recorded", problem="256")
    series.run(detail=full, night=rows.night(gpu_model="b200"), problem="256")
    series.run(detail=full, night=rows.night(rows.commit(repository="attention")), problem="256")
    looks = tried_configs.list_full_looks(db_session, {"repository": REPOSITORY, "gpu_model": GPU, "kernel": KERNEL})
    assert sorted(looks) == [0.1, 0.4, 0.5]
