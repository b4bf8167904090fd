"""The pure parts of panels: the canaries' figure and the cards of the scoreboard."""

import datetime as dt

import pandas as pd

from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.dashboard.panels import gpu_health, judge_score, queue, submit_form
from tilewatch.dashboard.panels.series import code_diff, sweep
from tilewatch.db.page_reads.evidence import CodeDiffRow, CubinRow
from tilewatch.db.page_reads.judge_score import Delay, Score
from tilewatch.db.page_reads.queue import WorkerRow

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def canary(compute_us: float, hours: int, uuid: str = "GPU-0") -> dict[str, object]:
    at = NOON + dt.timedelta(hours=hours)
    about = {"gpu_uuid": uuid, "gpu_name": "NVIDIA H200", "host": "node-1", "measured_at": at}
    return {**about, "compute_us": compute_us, "memory_us": 100.0}


def test_a_canary_is_held_against_the_best_of_its_own_gpu() -> None:
    canaries = pd.DataFrame([canary(200.0, 0), canary(200.0, 1), canary(220.0, 2), canary(400.0, 0, "GPU-1")])
    figure = gpu_health.canary_figure(canaries, pd.DataFrame())
    slow, *_ = [trace for trace in figure.data if trace.name == "node-1 GPU-0, arithmetic"]
    other, *_ = [trace for trace in figure.data if trace.name == "node-1 GPU-1, arithmetic"]
    assert [round(value) for value in slow.y] == [0, 0, 10]
    assert list(other.y) == [0], "another GPU's best is no measure"


def test_a_quarantine_that_goes_on_is_shaded_up_to_the_last_canary() -> None:
    quarantines = pd.DataFrame([{"began_at": NOON, "ended_at": pd.NaT}])
    shade, *_ = gpu_health.canary_figure(pd.DataFrame([canary(200.0, 0), canary(230.0, 5)]), quarantines).layout.shapes
    assert (shade.x0, shade.x1) == (NOON, NOON + dt.timedelta(hours=5))


def test_an_action_is_a_line_with_short_shas_and_its_cost() -> None:
    about = {"asked_at": NOON, "who": "token ci", "action": "check", "state": "done", "outcome": None, "gpu_s": 37.25}
    wanted = {"base": "ab" * 20, "head": "main", "kernel": None, "gpus": ["h200", "b200"], "checks": [7]}
    asked = {**about, "action": "nightly", "wanted": {}, "gpu_s": None}
    line, other = submit_form.tabulate_actions(pd.DataFrame([{**about, "wanted": wanted}, asked])).to_dict("records")
    assert line["of"] == "base ababababab, head main, gpus h200 b200, checks 7"
    assert (line["who"], line["GPU s"], line["outcome"]) == ("token ci", "37.2", "")
    assert other["GPU s"] == ""


def test_the_time_left_follows_how_it_went_and_is_not_guessed_at_the_start() -> None:
    started = NOON - dt.timedelta(minutes=10)
    assert queue.left_text(25, 100, started, NOON) == "30 min"
    assert queue.left_text(0, 100, started, NOON) == ""
    assert queue.left_text(5, 10, None, NOON) == ""


def score(**other: object) -> Score:
    about: dict[str, object] = {
        "since": None,
        "points": 2_000,
        "regressions": 4,
        "improvements": 1,
        "right": 3,
        "wrong": 1,
        "missed": 0,
        "from_commit": Delay(4, 50.0, 90.0),
        "from_run": Delay(4, 1.5, 3.0),
        "suspicions": 9,
        "confirmed": 4,
        "refuted": 3,
        "undecided": 2,
        "launches": 100,
        "runs": 400,
    }
    return Score(**{**about, **other})  # type: ignore[arg-type]


def test_the_score_comes_with_what_it_stands_on() -> None:
    precision, time_to_tell, false_alarms, replays = judge_score.cards(score())
    assert precision[1] == "75 %"
    assert precision[2].endswith("of 4 marks")
    assert time_to_tell[1:] == ("1.5 h", "from the run that showed it; 2.1 d from its commit")
    assert false_alarms[1] == "0.50"
    assert "budget 0.05" in false_alarms[2]
    assert replays[1] == "0.25"


def test_a_score_of_nothing_claims_nothing() -> None:
    cards = judge_score.cards(score(points=0, right=0, wrong=0, runs=0, from_run=Delay(0, None, None)))
    assert [value for _, value, _ in cards] == ["none yet", "none yet", "none yet", "none"]


def test_static_facts_of_a_kernel_without_mmas_are_no_bad_news() -> None:
    """A product whose MMAs all miss the Tensor Cores shows 0; a copy has none that could."""
    compiled = pd.DataFrame(
        {
            "stack_bytes": [0, 8],
            "tensor_core_share": [float("nan")] * 2,
            "tma_share": [100.0, 50.0],
            "registers": [32, 64],
            "compile_s": [0.5, 1.5],
        }
    )
    assert sweep.list_ranges(compiled, 3, 4.0) == {
        "compiled": "2 of 3",
        "without spills": "1",
        "every MMA on Tensor Cores": "there is no MMA",
        "every load through TMA": "1",
        "registers per thread": "32 to 64",
        "compile time, median": "1.0 s",
        "compile time, all": "4 s",
    }
    product = sweep.list_ranges(compiled.assign(tensor_core_share=[0.0, 50.0]), 3, 600.0)
    assert (product["every MMA on Tensor Cores"], product["compile time, all"]) == ("0", "10.0 min")


def test_an_instruction_stands_on_the_side_that_has_it() -> None:
    row = {"line": "gemm.py:61", "loop_depth": 1, "kind": "TMA loads", "text": "UTMALDG.2D", "base": 2, "head": 0}
    table = code_diff.tabulate_instructions(CodeDiffRow("", [], [row]), "before", "this run")
    assert table[["before", "this run"]].to_numpy().tolist() == [["2 x UTMALDG.2D", ""]]


def test_a_night_ends_when_its_sweeps_are_measured_at_the_speed_so_far() -> None:
    night = {"measure": True, "state": "measuring", "requested_at": NOON, "trials": 900, "settled_trials": 900}
    night |= {"gpu_model": "h200", "sweeps": 80}
    later = NOON + dt.timedelta(minutes=20)

    def ends(row: dict[str, object], *queues: str, alive: bool = True) -> str:
        return queue.ends_text(row, later, pd.DataFrame({"alive": [alive], "queues": [list(queues)]}))

    assert ends({**night, "runs": 20}, "gpu.h200") == "about 2026-11-20 13:20 UTC"
    assert ends({**night, "runs": 0}, "gpu.h200") == "", "nothing is known of its speed"
    assert ends({**night, "runs": 20, "state": "waiting for a GPU"}, "gpu.h200", "compile") == ""
    assert ends({**night, "runs": 20}, "gpu.b200", "compile") == "", "nobody measures it"
    assert ends({**night, "runs": 20}, "gpu.h200", alive=False) == ""
    assert queue.ends_text({**night, "runs": 20}, later, to_frame(WorkerRow, [])) == "", "none was ever seen"
    compiled = {**night, "measure": False, "state": "compiling", "runs": 0, "settled_trials": 450}
    assert ends(compiled, "compile") == "about 2026-11-20 12:40 UTC"
    assert ends(compiled, "gpu.h200") == ""


def test_a_page_says_why_it_has_no_diff_of_the_code() -> None:
    facts: dict[str, object] = dict.fromkeys(CubinRow.__dataclass_fields__)
    one, other = (CubinRow(**{**facts, "code_sha256": code}) for code in "ab")  # type: ignore[arg-type]
    assert code_diff.why_missing(one, one, "measured") == "The machine code is identical."
    assert "recorded run are not here" in code_diff.why_missing(one, other, "recorded")
    assert code_diff.why_missing(one, other, "measured").startswith("Not compared yet")
