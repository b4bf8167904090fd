"""What the outcomes of a comparison are together: the exit code that stops a merge, and what is said of each."""

from dataclasses import replace
from typing import Literal

import pytest

from tilewatch.kernels.comparing import outcome as module
from tilewatch.kernels.comparing.outcome import (
    Outcome,
    OutcomeKind,
    exit_code,
    list_moves,
    read_winner_facts,
    write_verdict,
)
from tilewatch.kernels.comparing.verdict import Verdict
from tilewatch.kernels.results import StaticFacts
from tilewatch.mechanisms.pairs import WinnerFacts
from tilewatch.metrics import Metric

SLOWER = Verdict(
    kind="slower",
    change=0.018,
    low=0.015,
    high=0.021,
    not_slower_than=0.022,
    launches=12,
    is_over=True,
    is_fine=False,
    is_final=True,
)
ALLOWED = replace(SLOWER, is_over=False, is_fine=True)
OPEN = replace(SLOWER, kind="undecided", low=-0.004, is_over=False, is_fine=False)
FACTS = StaticFacts(
    registers=128,
    stack_bytes=0,
    shared_bytes=1024,
    code_bytes=4096,
    cubin_bytes=9000,
    tma_loads=2,
    loads=4,
    tensor_core_mmas=8,
    mmas=8,
    remarks=(),
)


def outcome(verdict: Verdict | None = None, **other: object) -> Outcome:
    return replace(Outcome("gemm", "1x2x3", "sm_90", kind="identical"), verdict=verdict, **other)  # type: ignore[arg-type]


IDENTICAL, FAILED = outcome(), outcome(kind="failed", reason="its GPU is gone")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((), 0),
        ((IDENTICAL, outcome(ALLOWED)), 0),
        ((IDENTICAL, outcome(OPEN)), 2),
        ((IDENTICAL, FAILED), 2),
        ((outcome(SLOWER), IDENTICAL), 1),
        ((FAILED, outcome(OPEN), outcome(SLOWER)), 1),
    ],
)
def test_what_is_surely_over_goes_before_what_is_unsure(outcomes: tuple[Outcome, ...], code: int) -> None:
    assert exit_code(outcomes) == code
    assert exit_code(iter(outcomes)) == code


def test_an_outcome_is_unsure_where_it_failed_or_is_on_neither_side() -> None:
    each = (IDENTICAL, FAILED, outcome(SLOWER), outcome(ALLOWED), outcome(OPEN))
    assert [one.is_unsure for one in each] == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (SLOWER, "slower +1.8 % (1.5 to 2.1) after 12 launches"),
        (replace(SLOWER, kind="faster", change=-0.018, low=-0.021, high=-0.015), "faster -1.8 % (-2.1 to -1.5) after"),
        (OPEN, "undecided after 12 launches (-0.4 to 2.1 %)"),
        (
            replace(OPEN, needed_launches=1240),
            "undecided after 12 launches (-0.4 to 2.1 %); about 1,240 would decide it",
        ),
        (
            replace(SLOWER, change=0.00152, low=0.0011, high=0.0019),
            "slower +0.15 % (0.11 to 0.19) after 12 launches",
        ),
        (replace(SLOWER, low=0.0, high=0.002), "slower +1.8 % (0.0 to 0.2) after 12 launches"),
        (replace(SLOWER, low=0.0171, high=0.019), "slower +1.80 % (1.71 to 1.90) after 12 launches"),
        (
            replace(SLOWER, kind="not slower", low=-0.0002, high=0.0006, not_slower_than=0.0008),
            "not slower than 0.08 % after",
        ),
        (replace(SLOWER, kind="not slower"), "not slower than 2.2 % after 12 launches"),
        (replace(OPEN, kind="not slower", not_slower_than=0.0), "not slower after 12 launches, too few to call it"),
    ],
)
def test_a_verdict_in_words_has_its_numbers_in_per_cent(verdict: Verdict, words: str) -> None:
    assert write_verdict(verdict).startswith(words)
    assert outcome(verdict).sentence == write_verdict(verdict)
    assert (
        outcome(verdict, not_apart="it prints").sentence == f"{write_verdict(verdict)} (not measured apart: it prints)"
    )


def test_what_moved_is_each_fact_that_differs_and_no_other() -> None:
    head = replace(FACTS, registers=168, stack_bytes=64, code_bytes=8192, tma_loads=4)
    assert list_moves(FACTS, head) == (
        "registers 128 -> 168",
        "spills 0 -> 64 bytes",
        "instructions 256 -> 512",
        "loads by TMA 2 of 4 -> 4 of 4",
    )
    fewer = replace(FACTS, shared_bytes=512, tensor_core_mmas=4)
    assert list_moves(FACTS, fewer) == ("shared memory 1024 -> 512 bytes", "MMAs on Tensor Cores 8 of 8 -> 4 of 8")
    without_loads = replace(FACTS, tma_loads=0, loads=0, tensor_core_mmas=4)
    assert list_moves(FACTS, without_loads) == ("MMAs on Tensor Cores 8 of 8 -> 4 of 8",)
    assert list_moves(without_loads, FACTS) == ("MMAs on Tensor Cores 4 of 8 -> 8 of 8",)
    without_mmas = replace(FACTS, tma_loads=4, tensor_core_mmas=0, mmas=0)
    assert list_moves(FACTS, without_mmas) == ("loads by TMA 2 of 4 -> 4 of 4",)
    assert list_moves(without_mmas, FACTS) == ("loads by TMA 4 of 4 -> 2 of 4",)
    without_remarks = replace(FACTS, tma_loads=0, loads=0, tensor_core_mmas=0, mmas=0)
    assert list_moves(FACTS, without_remarks) == list_moves(without_remarks, FACTS) == ()
    assert list_moves(FACTS, FACTS) == list_moves(None, FACTS) == list_moves(FACTS, None) == ()


def test_a_mechanism_is_named_where_a_side_is_slower_and_its_facts_are_known() -> None:
    spilled = replace(FACTS, stack_bytes=512)
    known = {"base_facts": FACTS, "head_facts": spilled, "moved": ("spills 0 -> 512 bytes",)}
    changes = outcome(SLOWER, **known).changes
    assert changes[0] == "spills 0 -> 512 bytes"
    assert changes[1].startswith("mechanism: ")
    assert outcome(OPEN, **known).changes == outcome(None, **known).changes == known["moved"]
    for side in ("base_facts", "head_facts"):
        assert outcome(SLOWER, **{**known, side: None}).changes == known["moved"]


@pytest.mark.parametrize(("change", "kind"), [(1.0, "slower"), (-0.5, "faster")])
def test_a_mechanism_must_account_for_the_time_of_the_slower_side_over_that_of_the_faster(
    change: float, kind: Literal["slower", "faster"], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(
        module, "find_mechanisms", lambda *sides, **named: asked.update(named, base=sides[0], head=sides[1]) or ()
    )
    verdict = replace(SLOWER, change=change, kind=kind)
    larger = replace(FACTS, registers=168)
    configs = {"base_config": {"tile_m": 64}, "head_config": {"tile_m": 128}}
    assert len(outcome(verdict, base_facts=FACTS, head_facts=larger, **configs).changes) == 1
    assert asked["base"] == read_winner_facts({"tile_m": 64}, FACTS)
    assert asked["head"] == read_winner_facts({"tile_m": 128}, larger)
    assert asked["ratio"] == 2.0
    assert asked["is_slower"] == (kind == "slower")


def test_a_winner_s_facts_are_its_numbers_without_the_compiler_s_remarks() -> None:
    found = read_winner_facts({"tile_m": 64}, replace(FACTS, remarks=({"name": "remark"},)))
    assert found == WinnerFacts(
        {"tile_m": 64}, {name: value for name, value in vars(FACTS).items() if name != "remarks"}
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("identical", "identical machine code"),
        ("failed", "could not be compared: no GPU"),
        ("neither", "compiles on neither side: no GPU"),
        ("added", "only in the head"),
        ("removed", "only in the base"),
        ("changed", "other machine code"),
        ("unchanged", "other machine code of equal static facts"),
    ],
)
def test_an_outcome_without_a_verdict_is_described_by_its_kind(kind: OutcomeKind, words: str) -> None:
    assert outcome(kind=kind, reason="no GPU").sentence == words


@pytest.mark.parametrize(("metric", "start"), [("time", "slower +1.8 %"), ("span", "span slower +1.8 %")])
def test_a_verdict_on_anything_but_the_time_names_its_metric(metric: Metric, start: str) -> None:
    assert outcome(SLOWER, metric=metric).sentence.startswith(start)
