"""The benchmark of the boundary misses where a winner, a ratio, the wall time or a side is not what it has to be."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.boundary import ask, judge, start
from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, ROOT, Rig, install_for_children

FAST, TIED, SLOW = {"rows": 1}, {"rows": 2}, {"rows": 4}

WRONG = {"config": TIED, "status": "wrong", "failure": "off"}


def row(is_parted: bool, **fields: Any) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Two problems of one side: ours takes 100 us, `copy` 90 and `torch` 300."""
    samples = {"softmax": 100.0, "copy": fields.pop("copy_us", 90.0), "torch": fields.pop("torch_us", 300.0)}
    detail = {"library_runs_apart": is_parted}
    measurements = [{"implementation": name, "samples_us": [us] * 10, "detail": detail} for name, us in samples.items()]
    trials = [{"config": each, "status": "timed", "failure": None} for each in (FAST, TIED, SLOW)]
    good = {
        "of": 2, "kernel": "softmax", "winner": FAST, "tie": [FAST], "wall_s": 10.0, "measurements": measurements,
        "trials": trials,
    }  # fmt: skip
    return {("softmax", "1x1"): {**good, "problem": "1x1", **fields}, ("softmax", "2x2"): {**good, "problem": "2x2"}}


def missed(old: Mapping[Any, Any], new: Mapping[Any, Any], again: Mapping[Any, Any] | None = None) -> list[str]:
    return [each.what for each in judge(old, new, again or {}) if each.is_met is False]


@pytest.mark.parametrize(
    "fields",
    [{}, {"copy_us": 90.26}, {"winner": TIED, "tie": [TIED, FAST]}, {"wall_s": 10.5}, {"torch_us": 310.0}],
    ids=["equal", "ratio", "tie", "wall", "second baseline"],
)
def test_what_is_within_the_bounds_misses_none(fields: dict[str, Any]) -> None:
    assert missed(row(False), row(True, **fields)) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"copy_us": 90.28}, "ratios to first baseline within 0.3 %"),
        ({"copy_us": 89.72}, "ratios to first baseline within 0.3 %"),
        ({"winner": SLOW, "tie": [SLOW, TIED]}, "winners that are the same or tied"),
        ({"wall_s": 10.7}, "wall time, new / old"),
        ({"trials": [WRONG]}, "configs that were right and are wrong now"),
        ({"of": 3}, "problems measured by both"),
    ],
    ids=["ratio up", "ratio down", "winner", "wall", "wrong", "fewer"],
)
def test_what_is_outside_of_a_bound_misses_it(fields: dict[str, Any], what: str) -> None:
    assert missed(row(False), row(True, **fields)) == [what]


def test_a_problem_that_one_side_could_not_measure_misses() -> None:
    failed = {
        ("softmax", "1x1"): {"of": 2, "failure": "the process stopped"},
        ("softmax", "2x2"): row(True)["softmax", "2x2"],
    }
    assert "softmax 1x1" in missed(row(False), failed)
    assert "problems measured by both" in missed(row(False), {})
    assert "problems measured by both" in missed({}, {})


@pytest.mark.parametrize("before", [True, False])
def test_a_kernel_that_is_not_measured_apart_misses(before: bool) -> None:
    assert missed(row(before), row(False)) == ["kernels measured apart from the library"]


def test_a_config_that_was_wrong_before_or_fails_otherwise_is_not_lost() -> None:
    old = [{"config": FAST, "status": "wrong", "failure": "off"}, {"config": TIED, "status": "timed", "failure": None}]
    new = [{"config": FAST, "status": "wrong", "failure": "off"}, {"config": TIED, "status": "hung", "failure": "late"}]
    assert missed(row(True, trials=old), row(True, trials=new)) == []
    found = [*judge(row(True), row(True, trials=new), {})]
    assert 'softmax 1x1 {"rows": 1}: off' in [each.what for each in found]


def test_two_runs_of_the_old_product_have_no_bound() -> None:
    figures = list(judge(row(False), row(True), row(False, copy_us=99.0)))
    assert any(each.what == "old / old: ratios to first baseline within 0.3 %" for each in figures)
    assert all(each.is_met is not False for each in figures)


def test_a_side_measures_with_the_product_of_its_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_for_children(monkeypatch)
    rig = Rig(tmp_path)
    question = {
        "library": str(LIBRARY),
        "kernel": rig.kernel,
        "problem": PROBLEM,
        "arch": "sm_90",
        "gpu_index": 0,
        "store": rig.store_url,
        "baselines": ["copy"],
        "cubins": [asdict(rig.cubin(1, 100.0)), asdict(rig.cubin(2, 50.0))],
    }
    with start(ROOT) as side:
        answer = ask(side, question)
        assert answer["winner"] == {"tile_rows": 2}
        assert [each["implementation"] for each in answer["measurements"]] == [rig.kernel, "copy"]
        assert answer["measurements"][0]["detail"]["library_runs_apart"] is True
        assert ask(side, {**question, "kernel": "nothing"})["failure"]
