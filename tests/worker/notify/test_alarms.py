"""When an alarm opens, what one alarm covers, and when it closes."""

import datetime as dt
from dataclasses import replace

import pytest

from tilewatch.db.page_reads.alarms import AlarmRow
from tilewatch.db.page_reads.gpu_health import QuarantineRow
from tilewatch.db.page_reads.submissions import SubmissionRow
from tilewatch.db.worker_reads.fallen_configs import FallenConfig, SweepPair
from tilewatch.db.worker_reads.run_pairs import RunPair
from tilewatch.kernels.children.sandbox import Level
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify import alarms
from tilewatch.worker.notify.alarms import OpenAlarm

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NIGHT = dt.date(2026, 11, 21)
TIMES = NightlyTimes(nightly_at=dt.time(3, 0), nightly_limit_h=8)

SUBMITTED = SubmissionRow(
    id=7,
    reason="nightly",
    night=NIGHT,
    gpu_model="h200",
    gpu_name="H200",
    repository="tilewatch",
    sha="ab" * 20,
    subject="Tile it",
    measure=True,
    requested_at=NOW - dt.timedelta(hours=9),
    machine=None,
    recorded_at=None,
    sweeps=3,
    trials=500,
    settled_trials=480,
    not_compiled=4,
    runs=1,
    failed_jobs=0,
    cancelled_jobs=0,
    open_jobs=0,
    state="measuring",
)
PAIR = SweepPair("tilewatch", "gemm", "1x2x3", "h200", 7, "ab" * 20, NOW, before_id=1, after_id=2)
RUN = RunPair(
    repository="tilewatch",
    kernel="gemm",
    problem="1x2x3",
    gpu_model="h200",
    host="n1",
    submission_id=7,
    sha="ab" * 20,
    made_at=NOW,
    regret=0.03,
    old_table_regret=0.03,
    ships=None,
    winner={"tile_m": 64},
    old_winner={"tile_m": 128},
    old_winner_loss=None,
    toolchain={"sgl-deep-gemm": "0.1.0", "torch": "2.11.0"},
    old_toolchain={"sgl-deep-gemm": "0.1.0", "torch": "2.11.0"},
)


def opened(alarm: OpenAlarm, at: dt.datetime = NOW) -> AlarmRow:
    return AlarmRow(1, alarm.key, alarm.kind, alarm.subject, alarm.detail, at, None)


def test_what_stands_and_is_not_open_opens_and_what_stands_no_more_closes() -> None:
    new, old, over = (OpenAlarm("regret", key, "", "") for key in "abc")
    found = alarms.changes([new, old], [opened(old), opened(over)], NOW)
    assert (found.to_open, found.to_close) == ((new,), ("c",))


def test_nothing_is_missing_before_the_first_nightly_nor_when_the_last_is_the_one_that_is_due() -> None:
    assert alarms.find_late_nightlies("tilewatch", [], None, NOW, TIMES) == []
    assert alarms.find_late_nightlies("tilewatch", [], NIGHT, NOW, TIMES) == []


def test_nights_that_are_missing_in_a_row_are_one_alarm() -> None:
    last = NIGHT - dt.timedelta(days=3)
    (first,) = alarms.find_late_nightlies("tilewatch", [], last, NOW - dt.timedelta(days=1), TIMES)
    (second,) = alarms.find_late_nightlies("tilewatch", [], last, NOW, TIMES)
    assert first.key == second.key
    assert first.key.startswith("nightly_missing/2026-11-18/")


@pytest.mark.parametrize(
    ("state", "hours", "late"),
    [
        ("measuring", 9, True),
        ("measuring", 7, False),
        ("failed", 9, True),
        ("nothing measured", 9, True),
        ("measured", 9, False),
        ("static facts only", 9, False),
    ],
)
def test_a_nightly_is_late_when_its_limit_is_over_and_it_is_not(state: str, hours: int, late: bool) -> None:
    night = replace(SUBMITTED, state=state, requested_at=NOW - dt.timedelta(hours=hours))
    assert bool(alarms.find_late_nightlies("tilewatch", [night], NIGHT, NOW, TIMES)) == late


def test_a_model_that_has_no_nightly_any_more_is_not_late_for_ever() -> None:
    old = replace(SUBMITTED, night=NIGHT - dt.timedelta(days=30))
    assert alarms.find_late_nightlies("tilewatch", [old], NIGHT, NOW, TIMES) == []


def test_a_gpu_is_quarantined_until_it_is_not_and_a_second_time_is_a_second_alarm() -> None:
    ill = QuarantineRow("GPU-1", "h200", "n1", "xid", "Xid 79 at 03:12", NOW, 0, None, None, None)
    well = replace(ill, ended_at=NOW)
    (first,) = alarms.find_quarantined_gpus([ill, well])
    assert first.subject == "h200 GPU-1 on n1"
    assert first.detail.startswith("Xid 79")
    (again,) = alarms.find_quarantined_gpus([replace(ill, began_at=NOW + dt.timedelta(days=1)), well])
    assert again.key != first.key


def test_configs_that_one_submission_broke_are_one_alarm_for_each_kind() -> None:
    other = replace(PAIR, problem="4x5x6", before_id=3, after_id=4)
    broken = [FallenConfig(2, "stopped_compiling", {"tile_m": number}, "error: no\nsecond line") for number in range(6)]
    found = alarms.find_broken_configs(
        [PAIR, other],
        [*broken, FallenConfig(4, "stopped_compiling", {}, "error"), FallenConfig(4, "became_wrong", {}, "0.5")],
    )
    stopped, wrong = sorted(found, key=lambda alarm: alarm.kind, reverse=True)
    assert stopped.key == "stopped_compiling/gemm/h200/7"
    assert stopped.subject == "gemm of tilewatch on h200 since ababababab (2026-11-21)"
    assert stopped.detail.splitlines()[:2] == [
        "7 configs do not compile any more:",
        "  1x2x3 tile_m=0: error: no second line",
    ]
    assert stopped.detail.splitlines()[-1] == "  and 2 more"
    assert wrong.detail.startswith("1 config gives wrong results now:")
    assert alarms.sweep_of_key(stopped.key) == ("gemm", "h200", 7)
    assert alarms.sweep_of_key("regret/gemm/h200/7") is None


def test_a_winner_that_is_still_tied_or_narrowly_beaten_is_no_news() -> None:
    narrow = replace(RUN, old_winner_loss=0.01)
    assert alarms.find_lost_ties([RUN, narrow]) == []
    (news,) = alarms.find_lost_ties(
        [replace(RUN, old_winner_loss=0.05), replace(RUN, problem="4x5x6", old_winner_loss=0.1)]
    )
    assert "1x2x3: tile_m=128 is +5.0% now, best is tile_m=64" in news.detail
    assert "4x5x6" in news.detail


def test_a_winner_that_a_confirmed_change_dethroned_is_told_of_once_by_that_change() -> None:
    """The commit that reverted a mistake was blamed 64 s after "recovered", for seven days (2026-11-27)."""
    lost = replace(RUN, old_winner_loss=0.5)
    (open_alarm,) = alarms.find_lost_ties([lost])
    for verdict in ("regression", "improvement"):
        judged = replace(lost, verdict=verdict)
        assert alarms.find_lost_ties([judged]) == []
        assert alarms.list_explained_ties([judged, RUN]) == {open_alarm.key}
        assert alarms.list_explained_ties([judged, replace(lost, problem="4x5x6")]) == set()
    assert len(alarms.find_lost_ties([replace(lost, verdict="undecided")])) == 1


def test_regret_above_the_limit_stands_until_it_is_below_and_is_one_alarm_all_the_time() -> None:
    behind = replace(RUN, regret=0.2)
    assert alarms.find_regret([RUN, replace(RUN, regret=None)], 0.1, []) == []
    (first,) = alarms.find_regret([behind, RUN], 0.1, [])
    assert "1x2x3: the tile table is +20.0%, best is tile_m=64" in first.detail
    (later,) = alarms.find_regret([replace(behind, submission_id=8)], 0.1, [opened(first)])
    assert later.key == first.key
    (again,) = alarms.find_regret([replace(behind, submission_id=9)], 0.1, [])
    assert again.key != first.key


def test_a_kernel_whose_name_has_a_slash_has_one_alarm_for_as_long_as_it_is_behind() -> None:
    """Each night closed its alarm and opened another one."""
    behind = replace(RUN, kernel="attention/fwd", regret=0.2)
    (first,) = alarms.find_regret([behind], 0.1, [])
    (later,) = alarms.find_regret([replace(behind, submission_id=8)], 0.1, [opened(first)])
    assert later.key == first.key
    pair = replace(PAIR, kernel="attention/fwd")
    fallen = FallenConfig(pair.after_id, "stopped_compiling", {"tile_m": 64}, "a reason")
    (broken,) = alarms.find_broken_configs([pair], [fallen])
    assert alarms.sweep_of_key(broken.key) == ("attention/fwd", "h200", 7)


def test_a_table_that_is_slow_from_the_first_nightly_on_is_nobody_s_mistake() -> None:
    first = replace(RUN, regret=0.2, old_table_regret=None)
    assert alarms.find_regret([first, replace(first, old_table_regret=0.2)], 0.1, []) == []
    (alarm,) = alarms.find_regret([replace(first, old_table_regret=0.1)], 0.1, [])
    (still,) = alarms.find_regret([replace(first, old_table_regret=0.2)], 0.1, [opened(alarm)])
    assert still.key == alarm.key, "open for as long as it is behind"
    (shipped,) = alarms.find_regret([replace(first, ships={"tile_m": 32})], 0.1, [])
    assert shipped.kind == "regret", "what the library ships must be good from the first nightly on"


def test_what_a_library_says_it_ships_must_be_tied_with_the_best() -> None:
    shipped = replace(RUN, ships={"tile_m": 32})
    assert alarms.find_regret([replace(shipped, regret=alarms.LOSS_THAT_MATTERS)], 0.1, []) == []
    (alarm,) = alarms.find_regret([shipped], 0.1, [])
    assert "1x2x3: tile_m=32 is +3.0%, best is tile_m=64" in alarm.detail


def test_a_baseline_s_new_version_is_one_alarm_for_all_series_of_a_node() -> None:
    changed = replace(RUN, toolchain={"sgl-deep-gemm": "0.2.5", "torch": "2.11.0"})
    (news,) = alarms.find_changed_baselines([changed, replace(changed, problem="4x5x6")])
    assert news.subject == "DeepGEMM on n1 (h200)"
    assert "from 0.1.0 to 0.2.5" in news.detail
    assert alarms.find_changed_baselines([RUN, replace(changed, old_toolchain=None)]) == []
    cublas = [{"nvidia-cublas": version} for version in ("13.1.0.3", "13.8.0.4")]
    (news,) = alarms.find_changed_baselines([replace(RUN, old_toolchain=cublas[0], toolchain=cublas[1])])
    assert news.subject == "cuBLAS and cuBLASLt on n1 (h200)"


def test_a_problem_that_is_put_back_does_not_report_the_baseline_s_version_again() -> None:
    """Its run before is weeks old; the others were measured with the new version since then."""
    new = {"sgl-deep-gemm": "0.2.5"}
    others = replace(RUN, toolchain=new, old_toolchain=new)
    back = replace(RUN, problem="4x5x6", toolchain=new)
    two = [others, replace(others, problem="7x8x9")]
    assert alarms.find_changed_baselines([back, *two]) == []
    assert alarms.find_changed_baselines([back, *(replace(each, host="n2") for each in two)]), "that is another node"
    changed = [replace(back, problem=str(number)) for number in range(3)]
    for several in (changed, changed[:2]):
        assert len(alarms.find_changed_baselines([*several, *two])) == 1, "two were left out of the night between"


def test_a_line_of_the_checklist_that_turned_from_yes_to_no_is_an_alarm() -> None:
    def lines(**answers: str) -> list[dict[str, str]]:
        return [{"item": item, "answer": answer, "evidence": f"of {item}"} for item, answer in answers.items()]

    before = lines(spills="yes", tma="yes", swizzle="no", latency="unknown")
    run = replace(RUN, old_checklist=before, checklist=lines(spills="no", tma="yes", swizzle="no", latency="no"))
    (alarm,) = alarms.find_lost_lines([run, replace(run, problem="4x5x6")])
    assert (alarm.kind, alarm.key) == ("line_lost", "line_lost/gemm/h200/7")
    assert "1x2x3: spills: no (of spills)" in alarm.detail
    assert "4x5x6" in alarm.detail
    assert "latency" not in alarm.detail
    for checklist, old in ((before, before), (None, before), (before, None), (before, run.checklist)):
        assert alarms.find_lost_lines([replace(run, checklist=checklist, old_checklist=old)]) == []


def test_a_host_is_named_once_where_a_commit_s_code_is_kept_from_less() -> None:
    full = Level.FULL.value
    said = [("n1", full), ("n2", "network"), ("n2", "nothing"), ("n3", full), ("n3", "nothing")]
    found = alarms.find_not_confined(said)
    assert [(each.kind, each.subject) for each in found] == [("not_confined", "n2"), ("not_confined", "n3")]
    assert found[0].detail.startswith(
        "A commit's code is kept from nothing there; it should be kept from files, network"
    )
    assert len({each.key for each in found}) == 2


def test_a_host_where_host_code_is_root_is_named_with_the_reason_beside_one_without_a_sandbox() -> None:
    (found,) = alarms.find_root_on_gpus([("n2", "cudaErrorMapBufferObjectFailed")])
    assert (found.kind, found.subject) == ("not_confined", "n2")
    assert "as root, not as a user of its own: cudaErrorMapBufferObjectFailed." in found.detail
    assert found.key != alarms.find_not_confined([("n2", "network")])[0].key


def test_what_a_worker_reports_again_after_its_alarm_was_closed_is_a_new_alarm() -> None:
    """Its key was the same for ever, and an alarm with a known key stays closed."""
    current = alarms.find_not_confined([("n2", "network")])
    (first,) = alarms.changes(current, [], NOW).to_open
    assert alarms.changes(current, [opened(first)], NOW + dt.timedelta(hours=1)) == alarms.Changes((), ())
    assert alarms.changes([], [opened(first)], NOW).to_close == (first.key,)
    (again,) = alarms.changes(current, [], NOW + dt.timedelta(hours=2)).to_open
    assert again.key != first.key


def test_a_package_that_came_or_went_changes_no_baseline() -> None:
    """Ratios before and after are to two versions only where both have one."""
    versions = {"sgl-deep-gemm": "0.1.0"}
    for old, new in (({}, versions), (versions, {}), (versions, versions), ({"sgl-deep-gemm": None}, versions)):
        assert alarms.find_changed_baselines([replace(RUN, old_toolchain=old, toolchain=new)]) == []


def test_alarms_open_and_close_in_the_order_of_their_keys() -> None:
    keys = [f"regret/{number:03}" for number in range(40)]
    ends = [opened(OpenAlarm("regret", key, "", "")) for key in reversed(keys)]
    assert alarms.changes([], ends, NOW).to_close == tuple(keys)
    begins = [OpenAlarm("regret", key, "", "") for key in reversed(keys)]
    assert [each.key for each in alarms.changes(begins, [], NOW).to_open] == keys


@pytest.mark.parametrize(("lines", "left_out"), [(alarms.LISTED, []), (alarms.LISTED + 1, ["  and 1 more"])])
def test_an_alarm_lists_so_many_lines_and_counts_the_others(lines: int, left_out: list[str]) -> None:
    behind = [replace(RUN, problem=str(number), old_winner_loss=0.5) for number in range(lines)]
    (alarm,) = alarms.find_lost_ties(behind)
    listed = alarm.detail.splitlines()
    assert len(listed) == 1 + alarms.LISTED + len(left_out)
    assert listed[1 + alarms.LISTED :] == left_out
