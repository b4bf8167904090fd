"""What two versions of a kernel have of a quantity, and when that is not known."""

import pytest

from tilewatch.mechanisms.pairs import (
    Moved,
    Number,
    Pair,
    WinnerFacts,
    read_counters,
    read_facts,
    read_share,
    sum_moved,
    write_number,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.12345, "0.123"),
        (99.94, "99.9"),
        (99.96, "100"),
        (100.0, "100"),
        (100.4, "100"),
        (12345.6, "12,346"),
    ],
)
def test_large_numbers_have_no_decimals_and_small_ones_three_digits(value: float, text: str) -> None:
    assert write_number(value) == text
    assert str(Number("bytes", value, 1.0)) == f"bytes {text} -> 1"


def make_pair(fast: WinnerFacts, slow: WinnerFacts, *moved: Moved) -> Pair:
    return Pair(fast, slow, moved, (), "sm_90")


@pytest.mark.parametrize(("fast", "slow"), [(1, 2), (0, 2), (1, 0), (None, 2), (1, None)])
def test_a_number_needs_the_values_of_both_versions(fast: int | None, slow: int | None) -> None:
    """Zero is a value."""
    wanted = None if fast is None or slow is None else Number("label", fast, slow)
    assert read_facts(make_pair(WinnerFacts({}, {"f": fast}), WinnerFacts({}, {"f": slow})), "f", "label") == wanted
    counted = [WinnerFacts({}, {}, {} if each is None else {"c": each}) for each in (fast, slow)]
    assert read_counters(make_pair(*counted), "c", "label") == wanted


@pytest.mark.parametrize(
    ("kind", "in_loop", "number"),
    [
        ("spills", None, Number("instructions that spill", 6, 15)),
        ("spills", True, Number("instructions that spill", 1, 5)),
        ("spills", False, Number("instructions that spill", 5, 10)),
        ("barriers", None, None),
        ("barriers", True, Number("barriers", 3, 2)),
        ("conversions", None, None),
    ],
)
def test_instructions_of_a_kind_are_added_up_in_or_outside_loops(
    kind: str, in_loop: bool | None, number: Number | None
) -> None:
    moved = (
        Moved("spills", True, 1, 2),
        Moved("spills", True, 0, 3),
        Moved("spills", False, 5, 10),
        Moved("barriers", True, 3, 2),
        Moved("barriers", False, 2, 3),
    )
    pair = make_pair(WinnerFacts({}, {}), WinnerFacts({}, {}), *moved)
    assert sum_moved(pair, kind, in_loop=in_loop) == number


@pytest.mark.parametrize(
    ("parts", "whole", "share"), [(2, 8, 0.25), (0, 8, 0.0), (None, 8, None), (2, None, None), (0, 0, None)]
)
def test_a_share_needs_a_whole(parts: int | None, whole: int | None, share: float | None) -> None:
    assert read_share(WinnerFacts({}, {"parts": parts, "whole": whole}), "parts", "whole") == share


@pytest.mark.parametrize(
    ("slow", "is_same"),
    [({"tile_m": 64, "warps": 8}, True), ({"tile_m": 32}, False), ({"tile_m": 64, "num_ctas": 2}, False)],
)
def test_versions_have_the_same_tiles_whatever_else_their_configs_hold(slow: dict[str, int], is_same: bool) -> None:
    pair = make_pair(WinnerFacts({"tile_m": 64, "warps": 4}, {}), WinnerFacts(slow, {}))
    assert pair.has_same_tiles is is_same
