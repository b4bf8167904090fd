"""Facts of two runs in, the kind of cause and its evidence out."""

from dataclasses import replace

import pytest

from tilewatch.db.worker_reads.winners import RunFacts
from tilewatch.worker.judging import explain

BASE = RunFacts(
    time_us=100.0,
    baseline="deepgemm",
    baseline_us=90.0,
    params={"tile_m": 128, "tile_n": 256},
    tied=(),
    axes={"tile_m": (64, 128), "tile_n": (128, 256)},
    statics={"registers": 168, "stack_bytes": 0, "tma_loads": 2},
    instructions={"TMA Load instruction": 2},
    code_sha256="a",
    toolchain={"driver": "580.1", "cuda-tile": "1.7.0"},
    host="n1",
    telemetry=({"when": "before", "sm_clock_mhz": 1980, "temperature_c": 40, "throttled": []},),
)


def test_what_the_commit_did_to_the_machine_code_is_its_cause() -> None:
    head = replace(
        BASE,
        time_us=110.0,
        code_sha256="b",
        statics={"registers": 255, "stack_bytes": 64, "tma_loads": 0},
        instructions={"Load instruction": 2},
    )
    explanation = explain.explain_replayed(BASE, head)
    assert explanation.category == "code"
    assert explanation.sentence == (
        "the commit changed the kernel: 168 -> 255 registers a thread, 0 -> 64 spilled bytes a thread, "
        "2 -> 0 loads by TMA, 0 -> 2 times Load instruction, 2 -> 0 times TMA Load instruction"
    )
    assert explanation.lines[0] == "the kernel's time moved +10.0%, the baseline's +0.0%: ours"
    assert "mechanism: spills (bytes of stack a thread 0 -> 64)" in explanation.lines


def test_code_that_differs_in_no_known_fact_is_not_called_identical() -> None:
    explanation = explain.explain_replayed(BASE, replace(BASE, time_us=110.0, code_sha256="b"))
    assert explanation.sentence == "the commit changed the kernel: the machine code differs"
    assert explanation.lines == (
        "the kernel's time moved +10.0%, the baseline's +0.0%: ours",
        "mechanism: not known",
    )


def test_a_config_that_the_space_no_longer_has_is_the_space_s_doing() -> None:
    params = {"tile_m": 64, "tile_n": 128}
    head = replace(BASE, time_us=110.0, params=params, axes={"tile_m": (64,), "tile_n": (128,)}, code_sha256="b")
    explanation = explain.explain_replayed(BASE, head)
    assert explanation.category == "search_space"
    faster = explain.explain_replayed(BASE, replace(head, time_us=90.0))
    assert faster.category == "code", "a config that is gone makes nothing faster"
    assert explanation.sentence.endswith("tile_m=64 tile_n=128 instead of tile_m=128 tile_n=256")
    assert "search space: tile_m lost 128; tile_n lost 256" in explanation.lines
    assert "winner: tile_m=128 tile_n=256 -> tile_m=64 tile_n=128" in explanation.lines


def test_a_space_with_one_more_axis_has_not_lost_the_config() -> None:
    """Configs of before do not name the axis: the winner of the night before was called lost."""
    axes = {**BASE.axes, "latency": (0, 4)}
    head = replace(BASE, time_us=110.0, params={**BASE.params, "latency": 4}, axes=axes, code_sha256="b")
    assert explain.explain_replayed(BASE, head).category == "code"
    assert explain.explain_replayed(head, replace(BASE, time_us=120.0)).category == "search_space", "it lost the axis"


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "category"),
    [
        ((64, 128), (128, 256), "code"),
        ((64,), (128, 256), "search_space"),
        ((64, 128), (128,), "search_space"),
        ((64,), (128,), "search_space"),
    ],
)
def test_a_space_that_lost_one_value_of_the_config_has_lost_the_config(
    tile_m: tuple[int, ...], tile_n: tuple[int, ...], category: str
) -> None:
    params = {"tile_m": 64, "tile_n": 128}
    head = replace(BASE, time_us=110.0, params=params, axes={"tile_m": tile_m, "tile_n": tile_n}, code_sha256="b")
    assert explain.explain_replayed(BASE, head).category == category


def test_another_winner_in_the_same_space_is_the_code_s_doing() -> None:
    """What its code lacks of the other config's code is not all the commit's doing."""
    head = replace(BASE, params={"tile_m": 64, "tile_n": 256}, code_sha256="b", time_us=110.0)
    explanation = explain.explain_replayed(BASE, replace(head, statics={**BASE.statics, "stack_bytes": 64}))
    assert "machine code of the two configs: 0 -> 64 spilled bytes a thread" in explanation.lines
    assert not [line for line in explanation.lines if line.startswith(("machine code:", "mechanism:"))]
    assert (explanation.category, explanation.sentence) == (
        "code",
        "the commit changed the kernel: another config wins: tile_m=64 instead of tile_m=128",
    )


OTHER = {"tile_m": 64, "tile_n": 256}


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (replace(BASE, tied=(OTHER,)), replace(BASE, params=OTHER, code_sha256="b")),
        (BASE, replace(BASE, params=OTHER, tied=(BASE.params,), code_sha256="b")),
    ],
)
def test_a_config_of_a_tie_is_not_said_to_win(base: RunFacts, head: RunFacts) -> None:
    explanation = explain.explain_replayed(base, head)
    assert explanation.sentence == (
        "the commit changed the kernel: the machine code differs, of two configs that are tied: tile_m=64 instead of "
        "tile_m=128"
    )
    assert "winner: tile_m=128 tile_n=256 -> tile_m=64 tile_n=256, which are tied" in explanation.lines


def test_what_stood_around_the_runs_is_told_when_it_differs() -> None:
    warm = {"when": "before", "sm_clock_mhz": 1755, "temperature_c": 71, "throttled": ["sw power cap"]}
    head = replace(
        BASE,
        time_us=112.0,
        baseline_us=99.0,
        host="n2",
        toolchain={"driver": "590.4", "cuda-tile": "1.7.0"},
        telemetry=(warm,),
    )
    assert explain.explain_replayed(BASE, head).lines == (
        "the kernel's time moved +12.0%, the baseline's +10.0%: both",
        "machine code: identical",
        "toolchain: driver 580.1 -> 590.4; the replay compiled both sides with one",
        "node: n1 -> n2",
        "clock: 1980 -> 1755 MHz",
        "temperature: 40 -> 71 degrees",
        "throttling: none -> sw power cap",
        "mechanism: lower clocks (MHz 1,980 -> 1,755)",
    )


def test_throttling_that_one_side_could_not_read_has_not_changed() -> None:
    unread, capped = ({"when": "before", "throttled": reasons} for reasons in (None, ["sw power cap"]))
    base, head = replace(BASE, telemetry=(unread,)), replace(BASE, time_us=110.0, telemetry=(capped,))
    assert not [line for line in explain.explain_replayed(base, head).lines if line.startswith("throttling")]


@pytest.mark.parametrize(
    ("clock_mhz", "temperature_c", "told"),
    [
        (1980, 48, ()),
        (1980, 49, ("temperature: 40 -> 49 degrees",)),
        (1980, 32, ()),
        (1980, 31, ("temperature: 40 -> 31 degrees",)),
        (1975, 40, ()),
        (1973, 40, ("clock: 1980 -> 1973 MHz",)),
        (1987, 40, ("clock: 1980 -> 1987 MHz",)),
    ],
)
def test_a_gpu_is_told_to_be_other_from_nine_degrees_or_three_thousandths_of_its_clock_on(
    clock_mhz: int, temperature_c: int, told: tuple[str, ...]
) -> None:
    reading = {"when": "before", "sm_clock_mhz": clock_mhz, "temperature_c": temperature_c, "throttled": []}
    lines = explain.explain_replayed(BASE, replace(BASE, time_us=110.0, telemetry=(reading,))).lines
    assert tuple(line for line in lines if line.startswith(("clock", "temperature", "throttling"))) == told


def test_of_several_readings_the_middle_value_is_told() -> None:
    readings = [{"sm_clock_mhz": clock, "temperature_c": warm} for clock, warm in ((1980, 40), (1200, 90), (1755, 71))]
    lines = explain.explain_replayed(BASE, replace(BASE, time_us=110.0, telemetry=tuple(readings))).lines
    assert {"clock: 1980 -> 1755 MHz", "temperature: 40 -> 71 degrees"} <= set(lines)


def test_what_moved_besides_a_commit_that_did_nothing() -> None:
    head = replace(BASE, time_us=103.0, host="n2", toolchain={"driver": "580.1", "cuda-tile": "1.8.0"})
    assert explain.describe_differences(BASE, head) == (
        "the kernel's time moved +3.0%, the baseline's +0.0%: ours; toolchain cuda-tile 1.7.0 -> 1.8.0; node n1 -> n2"
    )
    assert explain.describe_differences(BASE, replace(BASE, time_us=103.0)) == (
        "the kernel's time moved +3.0%, the baseline's +0.0%: ours"
    )


def test_whose_move_it_was() -> None:
    assert explain.describe_move(BASE, replace(BASE, baseline_us=80.0)).endswith("the baseline's -11.1%: the baseline")
    slower = replace(BASE, time_us=1.5 * BASE.time_us, baseline_us=90.3)
    assert explain.describe_move(BASE, slower).endswith("the baseline's +0.3%: ours"), "0.3 % explains nothing"
    assert "no baseline" in explain.describe_move(BASE, replace(BASE, baseline_us=None))
    for ours, theirs, whose in ((50.0, 90.36, "ours"), (100.4, 45.0, "the baseline"), (50.0, 45.0, "both")):
        moved = explain.describe_move(BASE, replace(BASE, time_us=ours, baseline_us=theirs))
        assert moved.endswith(f": {whose}"), "a tenth of the other's move is too small, in either direction"
    for theirs, whose in ((101.25, "both"), (101.24, "ours")):
        moved = explain.describe_move(BASE, replace(BASE, time_us=225.0, baseline_us=theirs))
        assert moved.endswith(f": {whose}"), "a tenth of 125 % is not too small"


@pytest.mark.parametrize(("base_us", "head_us"), [(100.0, 300.0), (300.0, 100.0)])
def test_a_mechanism_that_explains_less_than_half_of_the_change_is_named_with_its_bound(
    base_us: float, head_us: float
) -> None:
    few, many = {"tensor_operations": 100.0}, {"tensor_operations": 120.0}
    is_slower = head_us > base_us
    base = replace(BASE, time_us=base_us, counters=few if is_slower else many)
    head = replace(BASE, time_us=head_us, counters=many if is_slower else few, code_sha256="b")
    (line,) = (each for each in explain.explain_replayed(base, head).lines if each.startswith("mechanism"))
    assert "20% at most" in line


@pytest.mark.parametrize(
    ("base", "head", "line"),
    [
        ((64, 128), (64,), "tile_m lost 128"),
        ((64,), (64, 128, 256), "tile_m gained 128, 256"),
        ((64, 128), (128, 32), "tile_m lost 64; tile_m gained 32"),
        ((64, 128), (128, 64), "the same values in another order"),
        ((64, 128), None, "tile_m lost 64, 128"),
        (None, (64, 128), "tile_m gained 64, 128"),
    ],
)
def test_a_search_space_is_compared_value_by_value(
    base: tuple[int, ...] | None, head: tuple[int, ...] | None, line: str
) -> None:
    sides = [
        replace(
            BASE, code_sha256="b", params={"tile_n": 256}, axes={"tile_n": (256,)} | ({"tile_m": axis} if axis else {})
        )
        for axis in (base, head)
    ]
    assert f"search space: {line}" in explain.explain_replayed(*sides).lines
    assert not [each for each in explain.explain_replayed(sides[0], sides[0]).lines if each.startswith("search space")]


def test_a_version_that_one_side_lacks_and_another_main_baseline_are_named() -> None:
    head = replace(BASE, time_us=110.0, toolchain={"driver": "580.1", "torch": "2.9"}, baseline="cublas")
    assert explain.describe_differences(BASE, head) == (
        "the kernel's time moved +10.0%; the main baseline is cublas and was deepgemm; "
        "toolchain cuda-tile 1.7.0 -> none, torch none -> 2.9"
    )
    for sides in ((BASE, replace(BASE, baseline_us=None)), (replace(BASE, baseline_us=None), BASE)):
        assert explain.describe_move(*sides) == "the kernel's time moved +0.0%; there is no baseline to compare with"


def test_telemetry_that_a_run_lacks_is_not_compared() -> None:
    unread = {"sm_clock_mhz": None, "throttled": None}
    for telemetry in ((), (unread,)):
        lines = explain.explain_replayed(BASE, replace(BASE, time_us=110.0, telemetry=telemetry)).lines
        assert not [line for line in lines if line.startswith(("clock", "temperature", "throttling"))]


def test_a_config_is_named_in_the_order_of_its_search_space() -> None:
    """Parameters that the space does not name come last."""
    params = {"stages": 3, "tile_n": 128, "tile_m": 64}
    lines = explain.explain_replayed(BASE, replace(BASE, time_us=90.0, params=params)).lines
    assert "winner: tile_m=128 tile_n=256 -> tile_m=64 tile_n=128 stages=3" in lines
