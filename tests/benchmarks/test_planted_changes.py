"""What is planted is text of the library as it is: a changed kernel ended the benchmark in its middle."""

import pytest

from benchmarks import planted_mechanisms
from benchmarks.planted_changes import PLANTED, Planted
from tilewatch.kernels.catalog.loading import find
from tilewatch.kernels.library import FOLDER


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.kernel}: {planted.old}")
def test_a_planted_change_changes_one_line_of_its_kernel(planted: Planted) -> None:
    source = (FOLDER / planted.file).read_text(encoding="utf-8")
    changed, _ = planted.apply(source)
    lines = zip(source.splitlines(), changed.splitlines(), strict=True)
    assert sum(before != after for before, after in lines) == 1


EDITS = [planted for planted in planted_mechanisms.PLANTED if planted.file]


@pytest.mark.parametrize("planted", EDITS, ids=lambda planted: f"{planted.kernel}: {planted.old}")
def test_a_planted_mechanism_changes_its_file(planted: planted_mechanisms.PlantedMechanism) -> None:
    source = (FOLDER / planted.file).read_text(encoding="utf-8")
    assert planted.old in source
    assert source.replace(planted.old, planted.new) != source


@pytest.mark.parametrize(
    "planted", planted_mechanisms.PLANTED, ids=lambda planted: f"{planted.kind}: {planted.problem}"
)
def test_a_planted_mechanism_s_configs_have_what_its_kernel_asks_for(
    planted: planted_mechanisms.PlantedMechanism,
) -> None:
    """attention_prefill got the axis `value_parts`, and one of 24 builds ended with KeyError, scored as wrong."""
    kernel = find(FOLDER, planted.kernel).kernel
    for config in (planted.config, {**planted.config, **planted.changed}):
        assert kernel.constants(kernel.parse(planted.problem), config)


def test_the_line_of_a_change_is_that_of_the_call_around_it() -> None:
    """Another call on the changed line was taken for it after the kernel had been written in fewer lines."""
    source = "def f():\n    y = g(\n        1, h(2), 3\n    )\n    return y + 1\n"
    edits = (("1,", "4,"), (", 3", ""), ("2", "5"), (" + 1", ""))
    assert [Planted("f", "f.py", "f", *each).apply(source)[1] for each in edits] == [2, 2, 3, 5]
