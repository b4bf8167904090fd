"""What static facts say of slowness, counted and never believed blindly."""

from dataclasses import replace

from tilewatch.kernels.checklist.prediction import predictions, signs
from tilewatch.kernels.results import StaticFacts

GOOD = StaticFacts(128, 0, 100_000, 9_000, 100_000, 2, 2, 1, 1, ())


def test_signs_are_read_from_the_cubin_alone() -> None:
    assert signs(GOOD) == ()
    bad = replace(GOOD, stack_bytes=7432, tma_loads=1, tensor_core_mmas=0)
    assert signs(bad) == ("spills", "no Tensor Core code", "no TMA")


def test_a_report_counts_how_often_a_sign_was_right_and_the_best_config_it_would_have_cost() -> None:
    spilling = replace(GOOD, stack_bytes=8)
    timed = [(GOOD, 100.0), (GOOD, 150.0), (spilling, 110.0), (spilling, 900.0), (spilling, 500.0)]
    found = {each.sign: each for each in predictions(timed)}
    assert (found["spills"].configs, found["spills"].slow) == (3, 2)
    assert found["spills"].fastest_slowdown == 1.1
    assert found["spills"].median_slowdown == 5.0
    assert (found["none of these"].configs, found["none of these"].slow) == (2, 0)
    assert "spills: 3 configs, 2 of them over 2x the best" in found["spills"].sentence


def test_nothing_timed_nothing_reported() -> None:
    assert predictions([]) == ()
