"""Which launches are the same, and what is read of counters that an earlier run put on record."""

import datetime as dt
from dataclasses import replace

import pytest

from tilewatch.kernels.contract import Array
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.measuring.known_counters import Counted, identify_launch, read_counted

ENDS = {"dtype": "int32", "shape": [1], "base64": "AQAAAA=="}
LAUNCH = DescribedLaunch("code", "kernel", (132, 1, 1), (Array("x", (64, 64), "float16"),), {"ends": ENDS})
ENDED = dt.datetime(2026, 11, 1, 3, tzinfo=dt.UTC)


def test_other_values_of_the_inputs_are_the_same_launch() -> None:
    drawn_anew = replace(LAUNCH, given={"ends": {**ENDS, "base64": "AgAAAA=="}})
    assert identify_launch(drawn_anew, "sha", "GPU-1", "580") == identify_launch(LAUNCH, "sha", "GPU-1", "580")


@pytest.mark.parametrize(
    "other",
    [
        replace(LAUNCH, grid=(264, 1, 1)),
        replace(LAUNCH, arguments=(Array("x", (64, 128), "float16"),)),
    ],
)
def test_another_grid_or_shape_is_another_launch(other: DescribedLaunch) -> None:
    assert identify_launch(other, "sha", "GPU-1", "580") != identify_launch(LAUNCH, "sha", "GPU-1", "580")


def test_what_counts_of_the_code_is_what_runs_and_not_what_it_was_compiled_from() -> None:
    named = replace(LAUNCH, content_key="the same machine code of another config")
    assert identify_launch(named, "sha", "GPU-1", "580") == identify_launch(LAUNCH, "sha", "GPU-1", "580")
    assert identify_launch(LAUNCH, "other", "GPU-1", "580") != identify_launch(LAUNCH, "sha", "GPU-1", "580")


def test_another_gpu_or_driver_is_another_launch() -> None:
    named = {identify_launch(LAUNCH, "sha", *where) for where in (("GPU-1", "580"), ("GPU-2", "580"), ("GPU-1", "590"))}
    assert len(named) == 3


def test_a_run_knows_the_launches_of_its_winner_and_of_what_tied_with_it() -> None:
    tied = {"config": {"tile": 2}, "launch": "b", "counted": "on 2026-10-01", "instructions": 2.0}
    detail = {"rounds": 40, "counters": {"instructions": 1.0}, "launch": "a", "tied_counters": [tied]}
    assert read_counted(detail, ENDED) == {
        "a": Counted("a", {"instructions": 1.0}, "on 2026-11-01, of the same launch on the same GPU"),
        "b": Counted("b", {"instructions": 2.0}, "on 2026-10-01"),
    }


def test_counters_of_before_launches_were_named_are_read_again() -> None:
    assert read_counted({"counters": {"instructions": 1.0}}, ENDED) == {}
