"""Baselines that a process of their own times: what is asked of it, and what becomes of one that fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.measuring import baseline_process
from tilewatch.kernels.measuring.baseline_process import (
    BASELINES_DEADLINE_S,
    ROUNDS_DEADLINE_S,
    BaselineProcess,
    start_environment,
    start_watch_file,
)
from tilewatch.kernels.measuring.sweep import GpuSetup, SweepFailed
from tilewatch.kernels.toolchains.toolchain import Package, Toolchain

SETUP = GpuSetup(Path("library"), "k", "1x1", "file:///store")
STORED = {"torch_add": "torch_add torch 2.13", "torch_mul": "torch_mul torch 2.13", "cublaslt": "cublaslt 13.1"}
FAILURES = [SweepFailed("no room"), ChildDied("SIGSEGV"), ChildHung("no answer within 600 s")]


class ScriptedChild:
    """Answers as a GPU process whose baseline "torch_mul" is missing. Raises `failures` at the requests they name."""

    made: list["ScriptedChild"]
    failures: dict[str, Exception]

    def __init__(self, setup: GpuSetup) -> None:
        if "start" in self.failures:
            raise self.failures["start"]
        self.setup, self.asked, self.closings = setup, list[tuple[dict[str, Any], float]](), 0
        self.made.append(self)

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        assert not self.closings
        self.asked.append((request, deadline_s))
        if request["ask"] in self.failures:
            raise self.failures[request["ask"]]
        if request["ask"] == "baselines":
            return {"baselines": {name: {"missing": "no"} if name == "torch_mul" else {} for name in request["names"]}}
        times_us = [[10.0 + place] * request["rounds"] for place in range(len(request["names"]))]
        return {"samples_us": times_us, "telemetry": [{"clock_mhz": 1980}]}

    def close(self) -> None:
        self.closings += 1


Fail = Callable[[dict[str, Exception]], list[ScriptedChild]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Makes processes fail at the named requests from now on. Returns the list of processes that were started."""

    def script(failures: dict[str, Exception]) -> list[ScriptedChild]:
        monkeypatch.setattr(ScriptedChild, "made", [], raising=False)
        monkeypatch.setattr(ScriptedChild, "failures", failures, raising=False)
        monkeypatch.setattr(baseline_process, "GpuChild", ScriptedChild)
        return ScriptedChild.made

    return script


def test_baselines_that_are_there_are_timed_under_their_stored_names(scripted: Fail) -> None:
    made = scripted({})
    process = BaselineProcess(SETUP, STORED, {"environment": "next"})
    assert process.details == {
        "torch_add torch 2.13": {"environment": "next"},
        "torch_mul torch 2.13": {"environment": "next", "missing": "no"},
        "cublaslt 13.1": {"environment": "next"},
    }
    assert process.names == ("torch_add torch 2.13", "cublaslt 13.1")
    samples_us, telemetry = process.time_block(3, 7)
    assert samples_us == {"torch_add torch 2.13": [10.0] * 3, "cublaslt 13.1": [11.0] * 3}
    assert telemetry == [{"clock_mhz": 1980}]
    (child,) = made
    assert child.asked == [
        ({"ask": "baselines", "names": list(STORED)}, BASELINES_DEADLINE_S),
        ({"ask": "rounds", "ids": [], "names": ["torch_add", "cublaslt"], "rounds": 3, "seed": 7}, ROUNDS_DEADLINE_S),
    ]
    process.close()
    process.close()
    assert (child.setup, child.closings) == (SETUP, 1)
    assert process.time_block(3, 7) == ({}, []), "a closed one times nothing"


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("at", ["start", "baselines", "rounds"])
def test_a_process_that_fails_is_closed_and_each_of_its_baselines_says_why(
    scripted: Fail, at: str, failure: Exception
) -> None:
    made = scripted({at: failure})
    process = BaselineProcess(SETUP, STORED, {})
    assert process.time_block(3, 7) == ({}, [])
    assert process.details == {name: {"missing": str(failure)} for name in STORED.values()}
    assert process.names == ()
    assert [each.closings for each in made] == [1] * (at != "start")
    assert process.time_block(3, 7) == ({}, []), "it is not asked again"


@pytest.mark.parametrize(
    ("start", "started"),
    [
        (lambda: BaselineProcess(SETUP, {}, {}), 0),
        (lambda: BaselineProcess(SETUP, {"torch_mul": "torch_mul"}, {}), 1),
        (lambda: start_watch_file(SETUP, ["copy"]), 0),
    ],
    ids=["none", "one that is missing", "a copy, which the measuring process times"],
)
def test_where_no_baseline_can_be_timed_no_round_is_asked_for(
    scripted: Fail, start: Callable[[], BaselineProcess], started: int
) -> None:
    made = scripted({})
    process = start()
    assert process.time_block(3, 7) == ({}, [])
    process.close()
    assert [[request["ask"] for request, _ in each.asked] for each in made] == [["baselines"]] * started


def test_an_environment_times_each_version_that_no_other_one_has_timed(scripted: Fail, tmp_path: Path) -> None:
    made = scripted({})
    environment = Toolchain("next", tmp_path, (Package("torch", "2.13.0", "0a"), Package("numpy", "2.3.0", "0b")))
    baselines = ["torch_residual_add", "torch_softmax", "deepgemm", "copy"]
    process = start_environment(environment, SETUP, baselines, {"torch_softmax torch 2.13.0"})
    about = {"environment": "next", "packages": {"torch": "2.13.0", "numpy": "2.3.0"}}
    assert process.details == {"torch_residual_add torch 2.13.0": about}
    assert (made[0].setup.packages, made[0].asked[0][0]["names"]) == (tmp_path, ["torch_residual_add"])


def test_a_watch_file_s_own_baselines_are_timed_by_a_process_that_may_run_its_code(scripted: Fail) -> None:
    made = scripted({})
    process = start_watch_file(SETUP, ["tile_table", "copy", "mine"])
    assert set(process.details) == {"mine"}
    assert process.details["mine"] == {"timed_by": "a process of the library's"}
    assert made[0].setup.by_library == "it times the watch file's own baselines"
