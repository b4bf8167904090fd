"""The change of a compiler is written into a cause and read from it again."""

import pytest

from tilewatch.compilers import CompilerChange

CHANGE = CompilerChange("cuda-tile 1.7.0 cuda-tileiras 13.4.92 limit 15s", "cuda-tile 1.7.0 cuda-tileiras 13.5.37")


def test_a_change_is_read_from_the_cause_that_it_gives() -> None:
    assert CompilerChange.read(CHANGE.cause) == CHANGE
    assert CHANGE.without_limits == ("cuda-tile 1.7.0 cuda-tileiras 13.4.92", CHANGE.after)
    assert CHANGE.versions_before == {"cuda-tile": "1.7.0", "nvidia-cuda-tileiras": "13.4.92"}


@pytest.mark.parametrize("cause", ["another driver: 580 -> 590", "another compiler: 13.4.92", str(CHANGE)])
def test_another_cause_names_no_change(cause: str) -> None:
    assert CompilerChange.read(cause) is None


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("cuda-tile 1.6.0 cuda-tileiras 13.4.92", "cuda-tile 1.7.0 cuda-tileiras 13.4.92", "cuda-tile-1.6.0"),
        ("cuda-tile 1.6.0 cuda-tileiras 13.4.92", "cuda-tile 1.7.0 cuda-tileiras 13.5.37", "cuda-tileiras-13.4.92"),
        ("cuda-tile 1.7.0 cuda-tileiras 13.4.92 limit 15s", "cuda-tile 1.7.0 cuda-tileiras 13.4.92 limit 20s", None),
    ],
)
def test_the_toolchain_before_has_the_name_of_what_changed(before: str, after: str, name: str | None) -> None:
    assert CompilerChange(before, after).toolchain_before == name
