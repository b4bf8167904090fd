"""Results of planning, compiling and measuring: what is a cubin, what is final, and what becomes a row."""

import datetime as dt
from dataclasses import replace

import pytest

from tilewatch.kernels.results import (
    PROCESS_DIED,
    Compiled,
    Cubin,
    Measured,
    Plan,
    PlannedTrial,
    RunResult,
    StaticFacts,
    is_final,
)

CONFIG = {"tile_m": 64}
FACTS = StaticFacts(128, 8, 1024, 4096, 9000, 2, 4, 8, 16, ({"pass": "tma"},))
OK = Compiled("ok", "tile 1", "sm_90", 2.0, 1.0, False, None, "key", "code", "gemm", FACTS)


@pytest.mark.parametrize(("drawn", "listed"), [(0, "abcd"), (1, "abc"), (4, "")])
def test_drawn_trials_are_behind_the_short_list(drawn: int, listed: str) -> None:
    trials = tuple(PlannedTrial(CONFIG, key) for key in "abcd")
    plan = Plan("gemm", "1x1", "sm_90", "ab", 1, (), 1, 1, (), trials, drawn=drawn)
    assert "".join(trial.code_key for trial in plan.listed) == listed


@pytest.mark.parametrize(
    ("changes", "has_cubin"),
    [({}, True), ({"status": "error"}, False), ({"content_key": None}, False), ({"symbol": None}, False)],
)
def test_only_a_config_that_compiled_and_is_stored_has_a_cubin(changes: dict[str, str | None], has_cubin: bool) -> None:
    found = replace(OK, **changes).find_cubin(CONFIG)  # type: ignore[arg-type]
    assert found == (Cubin(CONFIG, "key", "gemm") if has_cubin else None)


def test_a_row_has_each_static_fact_or_none_of_them() -> None:
    row = OK.make_row("c0de", "node")
    assert row == {
        **{"code_key": "c0de", "host": "node", "status": "ok", "compiler": "tile 1", "arch": "sm_90"},
        **{"compile_s": 2.0, "cpu_s": 1.0, "failure": None, "content_key": "key", "code_sha256": "code"},
        **{"symbol": "gemm", "registers": 128, "stack_bytes": 8, "shared_bytes": 1024, "code_bytes": 4096},
        **{"cubin_bytes": 9000, "tma_loads": 2, "loads": 4, "tensor_core_mmas": 8, "mmas": 16},
        "remarks": [{"pass": "tma"}],
    }
    failed = replace(OK, status="error", facts=None).make_row("c0de", "node")
    assert failed.keys() == row.keys()
    assert (failed["registers"], failed["mmas"], failed["remarks"]) == (None, None, [])


@pytest.mark.parametrize(
    ("outcome", "final"),
    [
        ({"status": "ok"}, True),
        ({"status": "ok", "failure": None}, True),
        ({"status": "error", "failure": "no such instruction"}, True),
        ({"status": "error", "failure": f"{PROCESS_DIED}SIGKILL"}, False),
        ({"status": "error", "failure": f"tracing: {PROCESS_DIED}SIGKILL"}, False),
        ({"status": "timeout", "cpu_s": 15.0}, True),
        ({"status": "timeout", "cpu_s": 14.9}, False),
        ({"status": "timeout"}, False),
    ],
)
def test_an_outcome_is_final_unless_a_busy_machine_may_be_the_reason(outcome: dict[str, object], final: bool) -> None:
    assert is_final(outcome, 15.0) is final


def test_a_note_is_added_to_the_kernel_and_to_no_baseline() -> None:
    now = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
    measured = (
        Measured("gemm", "kernel", (1.0,), CONFIG, {"rounds": 2, "odd": True}),
        Measured("deepgemm", "baseline", (1.0,)),
    )
    run = RunResult("node", "h200", "GPU-1", "NVIDIA H200", "cupti", {}, (), 1.0, None, (), (), measured, now, now)
    noted = run.note(odd=False, drawn=3)
    assert [each.detail for each in noted.measurements] == [{"rounds": 2, "odd": False, "drawn": 3}, {}]
    assert (noted.key, run.measurements) == (run.key, measured)


def test_each_run_has_a_random_name() -> None:
    now = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
    keys = {
        RunResult("node", "h200", "GPU-1", "NVIDIA H200", "cupti", {}, (), 1.0, None, (), (), (), now, now).key
        for _ in range(100)
    }
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}
