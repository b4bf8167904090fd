"""Made runs give the downloads of the evidence page and the differences between two runs."""

import csv
import datetime as dt
import json
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from tests.dashboard.fixtures.small_database import SHAS
from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.frames import evidence, reads
from tilewatch.db.page_reads import regressions
from tilewatch.db.page_reads.replays import ReplayRow
from tilewatch.text import WORD_JOINER


def found(filled: Session, url: str) -> reads.Evidence:
    shown = reads.evidence(url, regressions.list_series(filled, 1)[0].run_id)
    assert shown is not None
    return shown


def test_the_commands_repeat_the_sweep_and_time_both_winners_in_turns(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    assert shown.winner is not None
    lines = evidence.repeat_commands(shown).splitlines()
    assert lines[:2] == [f"git checkout {SHAS[2]}", "python -m tilewatch.kernels sweep gemm_fp8 320x32576x7168"]
    config = ",".join(f"{name}={value}" for name, value in sorted(shown.winner.params.items()))
    replay = f"tilewatch replay gemm_fp8 320x32576x7168 --of {SHAS[2]} --beside {SHAS[1]} --config {config}"
    assert lines[-1] == replay
    assert len(lines) == 4
    of_graph = replace(shown, run=replace(shown.run, kernel="gemm_fp8 graph"))
    by_graph = replay.replace(" --config", " --metric graph --config")
    assert evidence.repeat_commands(of_graph).splitlines() == [*lines[:-1], by_graph]
    for unknown in ({"winner": None}, {"winner_before": None}):
        plain = evidence.repeat_commands(replace(shown, **unknown)).splitlines()  # type: ignore[arg-type]
        assert plain == [*lines[:-1], replay.partition(" --config")[0]]
    assert evidence.repeat_commands(replace(shown, before=None)).splitlines() == lines[:2]


def test_the_csv_has_every_sample_of_both_runs(filled: Session, filled_url: str) -> None:
    rows = list(csv.DictReader(evidence.samples_csv(found(filled, filled_url)).splitlines()))
    assert len(rows) == 2 * 3 * 21
    assert {row["sha"] for row in rows} == {SHAS[2], SHAS[1]}
    assert [int(row["round"]) for row in rows[:21]] == list(range(1, 22))
    first = replace(found(filled, filled_url), before=None, sampled_before=())
    assert len(evidence.samples_csv(first).splitlines()) == 1 + 3 * 21


def test_the_csv_has_no_formula(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    sampled = replace(shown.sampled[0], implementation="=1+1")
    rows = list(csv.DictReader(evidence.samples_csv(replace(shown, sampled=[sampled])).splitlines()))
    assert rows[0]["implementation"] == f"{WORD_JOINER}=1+1"


def test_the_json_has_everything(filled: Session, filled_url: str) -> None:
    written = json.loads(evidence.as_json(found(filled, filled_url)))
    assert written["run"]["verdict"] == "regression"
    assert len(written["sampled"][0]["samples_us"]) == 21
    assert written["before"]["sha"] == SHAS[1]


def test_only_what_differs_is_a_difference() -> None:
    changed = evidence.differences({"driver": "580", "torch": "2.11"}, {"driver": "590", "torch": "2.11", "cupy": "14"})
    assert changed.to_numpy().tolist() == [["driver", "580", "590"], ["cupy", "none", "14"]]
    assert evidence.differences({"rate": 1.25}, {"rate": 1234.5}).to_numpy().tolist() == [["rate", "1.2", "1,234.5"]]
    assert list(evidence.differences({"torch": "2.11"}, {"torch": "2.11"})) == ["", "before", "this run"]


def test_static_facts_stand_beside_each_other(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    facts = evidence.static_facts(before=shown.winner_before, this_run=shown.winner)
    assert list(facts.columns) == ["", "before", "this run"]
    registers = facts[facts[""] == "registers per thread"].iloc[0]
    assert registers["before"] == registers["this run"] == "192"
    assert shown.winner is not None
    new = replace(shown.winner, code_sha256="0123456789abcdef", stack_bytes=None, median_us=1234.56)
    old = replace(new, code_sha256=None, median_us=None, stack_bytes=96)
    rows = evidence.static_facts(next_best=old, this_run=new).set_index("")
    assert list(rows) == ["next best", "this run"]
    assert rows.loc["machine code"].tolist() == ["none", "0123456789ab"]
    assert rows.loc["stack (spills), bytes"].tolist() == ["96", "none"]
    assert rows.loc["time in the sweep, us"].tolist() == ["none", "1,234.6"]
    assert "compiled" not in evidence.static_facts(this_run=replace(new, compile_status=None))[""].tolist()
    assert evidence.static_facts(before=None, this_run=None).empty


def test_a_remark_that_only_one_cubin_has_is_told(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    assert evidence.changed_remarks(shown.winner, shown.winner).empty
    assert evidence.changed_remarks(None, shown.winner)[""].tolist() == ["only this run"] * 2
    assert evidence.changed_remarks(shown.winner, None)[""].tolist() == ["only before"] * 2
    assert shown.winner is not None
    tma, mma = shown.winner.remarks or []
    moved = replace(shown.winner, remarks=[mma, {**tma, "text": "not lowered", "shape": None}] * 2)
    assert evidence.changed_remarks(shown.winner, moved).to_numpy().tolist() == [
        ["only before", "load_view_tko", tma["shape"], "lowered to TMA"],
        ["only this run", "load_view_tko", "", "not lowered"],
    ]


def test_the_clock_and_the_power_have_an_axis_each_and_unreadable_readings_are_left_out() -> None:
    reading = {"when": "before rounds", "unix_s": 5.0, "sm_clock_mhz": 1980, "power_w": 400.0, "temperature_c": 50}
    missing = {"when": "prepared", "unix_s": 4.0, "missing": "NVML: no permission"}
    capped = {**reading, "unix_s": 7.0, "throttled": ["sw power cap"]}
    figure = evidence_charts.telemetry([missing, reading, capped])
    assert [list(trace.x) for trace in figure.data] == [[0.0, 2.0]] * 2
    assert [trace.yaxis for trace in figure.data] == ["y", "y2"]
    assert "sw power cap" in figure.data[0].customdata[1]


def test_throttling_that_cannot_be_read_is_not_denied() -> None:
    read, unread = ({"sm_clock_mhz": 1980, "throttled": reasons} for reasons in ([], None))
    assert "The GPU was not throttled in any reading." in evidence.describe_clocks([read, {"when": "prepared"}])
    assert "Whether it was throttled is not known." in evidence.describe_clocks([read, unread])


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ([{"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1200}, {"sm_clock_mhz": None}], "SM clock 1,200 to 1,980 MHz. "),
        ([{"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1980}], "SM clock 1,980 MHz. "),
        ([{"sm_clock_mhz": 1, "throttled": ["power"]}, {"throttled": ["heat", "power"]}, {"throttled": None}],
         "SM clock 1 MHz. Throttled: heat, power."),
    ],
)  # fmt: skip
def test_clocks_are_told_from_the_lowest_to_the_highest_with_why_they_were_low(
    readings: list[dict[str, object]], words: str
) -> None:
    assert evidence.describe_clocks(readings).startswith(words)


@pytest.mark.parametrize("readings", [[], [{"when": "prepared", "missing": "NVML: no permission"}]])
def test_a_run_without_a_readable_clock_has_no_telemetry(readings: list[dict[str, object]]) -> None:
    assert evidence.describe_clocks(readings) == "This run has no telemetry."


def test_who_else_used_the_gpu_is_told() -> None:
    warm, alone = {"when": "prepared", "unreadable": {"temperature_c": "Not Supported"}}, {"others": []}
    unknown = {"others": None, "unreadable": {"others": "NVML: Driver Not Loaded"}}
    assert evidence.describe_others([warm]) == "", "an old run"
    assert evidence.describe_others([warm, alone]) == "No other process was seen on the GPU."
    assert evidence.describe_others([warm, alone, {"others": ["9 b", "4711 a"]}, {"others": ["9 b"]}]) == (
        "Also used by 4711 a, 9 b: what was timed meanwhile was dropped and timed again."
    )
    not_known = "Whether another process used the GPU meanwhile is not known"
    assert evidence.describe_others([warm, unknown]) == f"{not_known}: NVML: Driver Not Loaded."
    assert evidence.describe_others([alone, {"others": None}]) == f"{not_known}.", "of a recording"


def replay(**other: object) -> ReplayRow:
    about = {
        "axis": "commit",
        "good_sha": "1" * 40,
        "bad_sha": "2" * 40,
        "good_code_sha256": "a",
        "bad_code_sha256": "b",
        "good_toolchain": "tileiras 13.4",
        "bad_toolchain": "tileiras 13.5",
        "good_us": [100.0, 101.0, 99.0],
        "bad_us": [110.0, 109.0, 111.0],
        "failure": None,
        "host": "node-1",
        "gpu_uuid": "GPU-0",
        "origin": "measured",
        "at": dt.datetime(2026, 11, 20, tzinfo=dt.UTC),
    }
    return ReplayRow(**{**about, **other})  # type: ignore[arg-type]


def test_a_replay_is_told_by_its_medians_over_launches() -> None:
    assert evidence.replay_sentence(replay()) == "1111111111 → 2222222222: +10.0 % time, slower over 3 launches"


def test_identical_code_has_no_difference_to_tell() -> None:
    assert evidence.replay_sentence(replay(bad_code_sha256="a")).endswith("identical machine code")
    unknown = evidence.replay_sentence(replay(good_code_sha256=None, bad_code_sha256=None))
    assert unknown.endswith("+10.0 % time, slower over 3 launches")


def test_a_replay_of_two_configs_names_both_and_one_launch_is_one() -> None:
    words = evidence.replay_sentence(replay(axis="config", good_us=[100.0], bad_us=[95.0]))
    assert words == "best of the short list → winner, same commit 2222222222: -5.0 % time, faster over 1 launch"


def test_a_replay_along_an_axis_of_a_newer_release_has_a_sentence() -> None:
    """The database takes any axis, and a recording may come from a newer release."""
    assert evidence.replay_sentence(replay(axis="moon")).startswith("two sides along moon: +10.0 %")


def test_a_replay_of_toolchains_names_them_and_one_that_failed_says_why() -> None:
    words = evidence.replay_sentence(replay(axis="toolchain", failure="the cubin is gone", good_us=[], bad_us=[]))
    assert words == ("tileiras 13.4 → tileiras 13.5, same commit 2222222222: could not be replayed: the cubin is gone")


def test_a_node_against_another_is_told_with_its_own_time() -> None:
    """Each of the two has a replay: what differs between them is read from both."""
    one_cubin = replay(axis="node", host="n2", bad_code_sha256="a", good_us=[104.0] * 3, bad_us=[106.0] * 3)
    assert evidence.replay_sentence(one_cubin) == (
        "node n2, for comparison with another: the cubin of 2222222222: 105.0 us over 3 launches"
    )
    assert evidence.replay_sentence(replay(axis="node", host=None)).startswith("node unknown, for comparison")
    two = evidence.replay_sentence(replay(axis="node", host="n2"))
    assert two == (
        "node n2, for comparison with another: the cubins of 1111111111 and 2222222222: "
        "100.0 us and 110.0 us over 3 launches"
    )


def test_each_launch_is_a_line_in_the_colour_of_what_it_says() -> None:
    figure = evidence_charts.replay([100.0] * 3, [110.0, 109.0, 98.0])
    assert [line.line.color for line in figure.data] == [colours.WORSE, colours.WORSE, colours.BETTER]


def test_a_run_says_whether_the_commits_code_ran_beside_the_timer() -> None:
    apart = {"library_runs_apart": True, "sandbox": "network"}
    assert evidence.describe_boundary(apart).endswith("before the first timed launch. It was kept from network.")
    assert "the process that timed and checked it" in evidence.describe_boundary({"library_runs_apart": False})
    why = "its host code makes its result 1 itself"
    assert f"checked it, because {why}: a" in evidence.describe_boundary(
        {"library_runs_apart": False, "not_apart": why}
    )
    stated = {"library_runs_apart": False, "not_apart": why, "stated": "it adds the parts with PyTorch"}
    assert evidence.describe_boundary(stated).startswith("Not measured apart: ")
    assert evidence.describe_boundary(stated).endswith("Its watch file says: it adds the parts with PyTorch.")
    assert evidence.describe_boundary({"sandbox": "network"}) == "", "a run of before says nothing of it"
    unchecked = {"library_runs_apart": True, "unchecked": "the tile decides its shape"}
    assert evidence.describe_boundary(unchecked).endswith(
        "not checked. Its watch file says: the tile decides its shape."
    )


def test_a_replay_names_the_configs_that_are_known_and_the_base_one_only_if_it_differs() -> None:
    tiles, others = {"tile": 64}, {"tile": 128}
    line = "tilewatch replay gemm 1x2x3 --of b --beside a"

    def command(new: dict[str, int] | None, old: dict[str, int] | None) -> str:
        return evidence.replay_command("gemm", "1x2x3", ("b", new), ("a", old))

    assert command(None, None) == line
    assert command(tiles, None) == f"{line} --config tile=64"
    assert command(tiles, tiles) == f"{line} --config tile=64"
    assert command(tiles, others) == f"{line} --config tile=64 --beside-config tile=128"
    assert command(None, others) == f"{line} --beside-config tile=128"


def test_each_time_stands_beside_that_of_its_implementation_in_the_run_before(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    ours, *_ = shown.sampled
    versioned = replace(shown.sampled[1], detail={"version": "0.2.5+cu13"})
    pairs = list(
        evidence.pair_times(replace(shown, sampled=(ours, versioned), sampled_before=shown.sampled_before[:1]))
    )
    assert [(name, row.implementation, old and old.implementation) for name, row, old in pairs] == [
        ("gemm_fp8", "gemm_fp8", "gemm_fp8"),
        ("deepgemm 0.2.5", "deepgemm", None),
    ]
    assert pairs[0][2] == shown.sampled_before[0]
    assert list(evidence.pair_times(replace(shown, sampled=()))) == []
