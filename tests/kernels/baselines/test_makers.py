"""A baseline that cannot be built says why in a line, and one that can is called as often as it is launched."""

from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels.baselines.baseline import BaselineMissing, Call, make_allocating


def make_call(nbytes: int = 1) -> Call:
    return Call("k", {}, {}, {}, {}, nbytes)


@pytest.mark.parametrize(
    ("error", "cause", "sentence"),
    [
        (BaselineMissing("it needs Hopper"), None, "it needs Hopper"),
        (ValueError("\n first\nsecond"), None, "ValueError: first"),
        (OSError(), None, "OSError: "),
        (RuntimeError("outer\nmore"), ValueError("inner\nmore"), "RuntimeError: outer (inner)"),
    ],
)
def test_a_baseline_that_cannot_be_built_has_the_first_line_of_its_error_and_of_the_cause(
    gpu: FakeGpu,  # noqa: ARG001 - it brings CuPy
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    cause: Exception | None,
    sentence: str,
) -> None:
    from tilewatch.kernels.baselines import makers

    def fail(_: Call) -> Any:
        raise error from cause

    monkeypatch.setattr(makers, "MAKERS", {"mine": fail})
    with pytest.raises(BaselineMissing) as missing:
        makers.build("mine", make_call())
    assert str(missing.value) == sentence
    with pytest.raises(BaselineMissing, match="there is no baseline 'other'; there are mine"):
        makers.build("other", make_call())


def test_what_a_launch_allocates_is_stored_as_it_was_computed_last() -> None:
    results, stored = iter(["warm-up", "first", "second"]), list[str]()
    made = make_allocating(lambda: next(results), stored.append, {"a": 1}, kernels=2)
    for _ in range(2):
        made.launch()
    assert made.settle is not None
    made.settle()
    made.launch()
    made.settle()
    assert stored == ["first", "second"]
    assert (made.detail, made.kernels, made.solves) == ({"a": 1}, 2, True)


@pytest.mark.parametrize(("nbytes", "moved"), [(0, 32), (63, 32), (64, 64), (95, 64), (96, 96), (1 << 20, 1 << 20)])
def test_a_copy_reads_and_writes_as_many_bytes_as_the_problem_moves(gpu: FakeGpu, nbytes: int, moved: int) -> None:
    """In steps of the 16 bytes that a thread reads and the 16 that it writes."""
    from tilewatch.kernels.baselines.bandwidth import copy

    made = copy(make_call(nbytes))
    made.launch()
    assert gpu.copies == 1
    assert made.detail == {"bytes": moved}
    assert not made.solves
