"""The rows of a tuned table are the newest measured winners, and the replays of their own code."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, KERNEL, NOON, PROBLEM, REPOSITORY, Rows
from tilewatch.db.models import TOTAL, Replay
from tilewatch.db.worker_reads import tuned_rows
from tilewatch.db.worker_reads.tuned_rows import ConfigReplay

HOUR = dt.timedelta(hours=1)


def test_the_newest_winner_of_a_series_is_that_of_its_newest_commit(db_session: Session, rows: Rows) -> None:
    newest = rows.commit(5)
    rows.measured(rows.night(newest), finished_at=NOON + HOUR, id=90_001)
    run = rows.run(
        sweep := rows.sweep(rows.night(newest), source_sha256="6" * 64),
        finished_at=NOON + HOUR,
        id=90_002,
        tie=[7, 8],
        toolchain={"driver": "590"},
    )
    config = rows.config(tile=64)
    rows.measure(run, 8.0, config_id=config.id, baseline="deepgemm", ratio=1.5, detail={"certificate": {"space": 9}})
    rows.trial(sweep, config, 9.0, error=0.01)
    rows.trial(sweep, rows.config(), 9.0, error=0.5)
    rows.trial(rows.sweep(), config, 9.0, error=0.5)
    rows.measured(rows.night(newest), id=90_003)
    rows.measured(rows.night(rows.commit(4)), finished_at=NOON + 2 * HOUR, id=90_004)
    rows.measured(rows.night(rows.commit(9, left_branch_at=NOON)), finished_at=NOON + 2 * HOUR)
    rows.measured(rows.night(rows.commit(9)), origin="simulated")
    for computed in (TOTAL, f"{KERNEL} span"):
        rows.measured(kernel=computed)
    (found,) = tuned_rows.list_newest_winners(db_session)
    assert (found.run_id, found.sweep_id, found.config_id, found.config) == (90_002, sweep.id, config.id, {"tile": 64})
    assert (found.time_us, found.error, found.tie, found.finished_at) == (8.0, 0.01, [7, 8], NOON + HOUR)
    assert (found.baseline, found.ratio, found.certificate) == ("deepgemm", 1.5, {"space": 9})
    assert (found.sha, found.arch, found.source_sha256) == (newest.sha, "sm_90", "6" * 64)
    assert (found.toolchain, found.gpu_name) == ({"driver": "590"}, "NVIDIA H200")
    assert (found.repository, found.kernel, found.problem, found.gpu_model) == (REPOSITORY, KERNEL, PROBLEM, GPU)


SERIES = [
    ("attention", KERNEL, "b200", PROBLEM, 1),
    (REPOSITORY, KERNEL, "b200", "128", 1),
    (REPOSITORY, KERNEL, GPU, "1", 5),
    (REPOSITORY, KERNEL, GPU, "3", 5),
    (REPOSITORY, KERNEL, GPU, "2", 3),
    (REPOSITORY, "softmax", "b200", PROBLEM, 9),
]


@pytest.mark.parametrize("wanted", [{}, {"repository": REPOSITORY}, {"kernel": "softmax"}, {"gpu_model": GPU}])
def test_winners_are_listed_by_gpu_model_and_then_by_commit(
    db_session: Session, rows: Rows, wanted: dict[str, str]
) -> None:
    commits = {each: rows.commit(each[1], repository=each[0]) for each in {(row[0], row[4]) for row in SERIES}}
    for number, (repository, kernel, gpu_model, problem, position) in enumerate(SERIES):
        night = rows.night(commits[repository, position], gpu_model=gpu_model)
        rows.measured(night, kernel=kernel, problem=problem, id=90_000 - number)
    found = tuned_rows.list_newest_winners(db_session, **wanted)
    names = ("repository", "kernel", "gpu_model")
    rest = [row for row in SERIES if all(dict(zip(names, row, strict=False))[name] == wanted[name] for name in wanted)]
    assert [(each.repository, each.kernel, each.gpu_model, each.problem) for each in found] == [row[:4] for row in rest]


class Replayed:
    """A run whose winner and tied config were compiled, and replays of a shipped config against them."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.good, self.bad = rows.commit(3), rows.commit(8)
        self.shipped, self.won, self.tied, self.lost = (rows.config(tile=tile) for tile in (32, 64, 96, 128))
        self.other = rows.config(tile=16)
        sweep = rows.sweep(rows.night(self.bad))
        for config in (self.won, self.tied, self.lost):
            made = rows.compilation(f"code {config.id}")
            rows.trial(sweep, config, 9.0, compilation_id=made.id)
        self.run = rows.run(sweep, tie=[self.won.id, self.tied.id])
        rows.measure(self.run, config_id=self.won.id)
        rows.measure(self.run, role="baseline", implementation="table", config_id=self.lost.id)

    def replay(self, **columns: Any) -> Replay:
        head = columns.pop("head", self.won)
        plain = {
            "axis": "config",
            "good_config_id": self.shipped.id,
            "bad_config_id": head.id,
            "bad_content_key": f"cubin of code {head.id}",
            "bad_toolchain": "tileiras 13.4",
        }
        return self.rows.replay(self.good, columns.pop("bad", self.bad), **{**plain, **columns})

    def read(self, *more: int) -> list[ConfigReplay]:
        return tuned_rows.list_config_replays(self.rows.opened, [self.run.id, *more])


def test_the_newest_replay_of_each_config_counts(db_session: Session, rows: Rows) -> None:
    replayed = Replayed(rows)
    replayed.replay(good_us=[2.0], bad_us=[1.0], id=90_001)
    replayed.replay(good_us=[4.0], bad_us=[3.0], head=replayed.tied, bad_code_sha256="tied", id=90_002)
    replayed.replay(good_config_id=replayed.other.id, good_code_sha256="other", good_us=[6.0], bad_us=[5.0])
    run_id, sha, compiler = replayed.run.id, replayed.bad.sha, "tileiras 13.4"
    assert replayed.read(rows.run().id) == [
        ConfigReplay(run_id, {"tile": 32}, {"tile": 96}, [4.0], [3.0], sha, compiler),
        ConfigReplay(run_id, {"tile": 16}, {"tile": 64}, [6.0], [5.0], sha, compiler),
    ]
    assert tuned_rows.list_config_replays(db_session, []) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"kernel": "softmax"},
        {"problem": "128"},
        {"gpu_model": "b200"},
        {"axis": "commit"},
        {"origin": "simulated"},
        {"bad_content_key": "cubin of other code"},
        {"head": "lost"},
        {"bad": "elsewhere"},
        {"failure": "it hung"},
    ],
)
def test_a_replay_of_something_else_than_the_winner_does_not_count(rows: Rows, columns: dict[str, Any]) -> None:
    replayed = Replayed(rows)
    objects = {"lost": replayed.lost, "elsewhere": rows.commit(repository="attention")}
    replayed.replay(**{name: objects.get(value, value) for name, value in columns.items()})
    assert replayed.read() == []


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"kernel": "softmax"},
        {"problem": "128"},
        {"gpu_model": "b200"},
        {"axis": "toolchain"},
        {"origin": "simulated"},
        {"good_code_sha256": "another"},
        {"bad_code_sha256": "another"},
    ],
)
def test_the_times_may_be_from_another_replay_of_the_same_codes(rows: Rows, columns: dict[str, str]) -> None:
    replayed = Replayed(rows)
    other = rows.commit(4), rows.commit(5)
    of_codes: dict[str, Any] = {"axis": "config", **columns}
    for number, us in ((90_001, 1.0), (90_002, 2.0)):
        rows.replay(*other, **{**of_codes, "good_us": [us], "bad_us": [us + 1], "id": number})
    replayed.replay(failure="it was replayed before")
    rows.replay(*other, **of_codes, failure="it hung")
    found = [(each.base_us, each.head_us) for each in replayed.read()]
    assert found == ([] if columns else [([2.0], [3.0])])


def test_a_newer_replay_counts_even_with_older_times(rows: Rows) -> None:
    replayed, codes = Replayed(rows), {"good_code_sha256": "x", "bad_code_sha256": "y"}
    rows.replay(rows.commit(4), rows.commit(5), axis="config", good_us=[9.0], bad_us=[8.0], **codes, id=90_000)
    replayed.replay(good_us=[2.0], bad_us=[1.0], id=90_001)
    replayed.replay(failure="it was replayed before", **codes, id=90_002)
    assert [(each.base_us, each.head_us) for each in replayed.read()] == [([9.0], [8.0])]


def test_configs_with_equal_code_need_no_times(rows: Rows) -> None:
    replayed = Replayed(rows)
    replayed.replay(failure="the same code", good_code_sha256="same", bad_code_sha256="same")
    assert [(each.base_us, each.head_us) for each in replayed.read()] == [([], [])]


def test_the_params_and_times_of_the_asked_configs_are_read(db_session: Session, rows: Rows) -> None:
    configs = [rows.config(tile=tile) for tile in (16, 32, 64)]
    sweeps = [rows.sweep() for _ in range(3)]
    for sweep, us in zip(sweeps, (9.0, None, 7.0), strict=True):
        for config in configs:
            rows.trial(sweep, config, us and us + config.params["tile"])
    wanted = [each.id for each in configs[:2]]
    assert tuned_rows.read_configs(db_session, wanted) == {wanted[0]: {"tile": 16}, wanted[1]: {"tile": 32}}
    found = tuned_rows.read_trial_times(db_session, [sweeps[0].id, sweeps[1].id], wanted)
    assert found == {(sweeps[0].id, wanted[0]): 25.0, (sweeps[0].id, wanted[1]): 41.0}
