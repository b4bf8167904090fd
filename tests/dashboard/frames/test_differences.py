"""Made differences get the finding that the judge, the code and the noise allow, and no other."""

from typing import Any

import pandas as pd
import pytest

from tests.dashboard.fixtures.snapshots import series_row
from tilewatch.dashboard.charts import hover
from tilewatch.dashboard.frames import changes, differences

NONE = pd.DataFrame(columns=[*changes.SERIES, "origin", "position", "verdict", "sha", "reason"])


def judged_at(position: int, verdict: str = "regression", **other: Any) -> pd.DataFrame:
    return pd.DataFrame([series_row(position, 1.0, verdict=verdict, **{"reason": "few nights", **other})])


def finding(after: dict[str, Any], judged: pd.DataFrame = NONE, before: dict[str, Any] | None = None) -> str:
    pairs = changes.pair_snapshots(pd.DataFrame([before or series_row(3, 1.0)]), pd.DataFrame([after]))
    return str(differences.add_findings(pairs, judged).iloc[0]["finding"])


@pytest.mark.parametrize(("ratio", "verdict", "claim"), [(1.2, "improvement", "faster"), (0.8, "regression", "slower")])
def test_a_difference_is_faster_or_slower_where_the_judge_confirmed_a_change_between_both(
    ratio: float, verdict: str, claim: str
) -> None:
    assert finding(series_row(5, ratio, verdict="unchanged"), judged_at(4, verdict)) == claim
    assert finding(series_row(5, ratio, verdict=verdict), judged_at(5, verdict)) == claim


@pytest.mark.parametrize(("ratio", "verdict", "claim"), [(1.2, "regression", "faster"), (0.8, "improvement", "slower")])
def test_an_older_commit_beside_a_newer_one_is_claimed_as_the_judge_confirmed_it_backwards(
    ratio: float, verdict: str, claim: str
) -> None:
    """The page said that the judge found no change."""
    newer = series_row(5, 1.0)
    assert finding(series_row(3, ratio, verdict="unchanged"), judged_at(4, verdict), newer) == claim
    assert finding(series_row(3, ratio, verdict="unchanged"), judged_at(3, verdict), newer) == "not confirmed"


def test_a_verdict_of_the_other_direction_confirms_nothing() -> None:
    assert finding(series_row(5, 1.2, verdict="unchanged"), judged_at(4, "regression")) == "not confirmed"
    assert finding(series_row(5, 0.8, verdict="unchanged"), judged_at(4, "improvement")) == "not confirmed"


def test_a_claim_names_the_newest_commit_whose_verdict_says_so() -> None:
    judged = pd.concat([judged_at(4), judged_at(5), judged_at(6, "improvement")])
    pairs = changes.pair_snapshots(pd.DataFrame([series_row(3, 1.0)]), pd.DataFrame([series_row(6, 0.8)]))
    (row,) = differences.add_findings(pairs, judged).to_dict("records")
    assert differences.write(row) == "slower, confirmed at 0000000000"
    assert row["confirmed_at"] == f"{5:040x}"


def test_what_the_judge_left_undecided_on_the_way_is_undecided_though_the_newest_commit_changed_nothing() -> None:
    newest = series_row(5, 1.2, verdict="unchanged")
    assert finding(newest, judged_at(4, "undecided")) == "undecided"
    assert finding(newest, pd.concat([judged_at(4, "undecided"), judged_at(4, "improvement")])) == "faster"
    assert finding(newest, judged_at(3, "undecided")) == "not confirmed", "of the earlier side, about what was before"


def test_what_is_undecided_on_the_way_says_what_decides_it() -> None:
    judged = pd.concat(
        judged_at(at, "undecided", reason=f"{nights} of the 5 earlier nights needed") for at, nights in ((4, 1), (5, 3))
    )
    pairs = changes.pair_snapshots(
        pd.DataFrame([series_row(3, 1.0)]), pd.DataFrame([series_row(6, 1.2, verdict="unchanged")])
    )
    (row,) = differences.add_findings(pairs, judged).to_dict("records")
    assert differences.write(row) == "undecided: 2 more nights on this machine decide, or a replay"


@pytest.mark.parametrize(
    "judged",
    [
        judged_at(3),
        judged_at(6),
        judged_at(4, problem="1x1x1"),
        judged_at(4, gpu_model="b200"),
        judged_at(4, origin="recorded"),
    ],
)
def test_a_change_of_another_series_or_time_confirms_nothing(judged: pd.DataFrame) -> None:
    assert finding(series_row(5, 0.8, verdict="unchanged"), judged) == "not confirmed"


def test_a_change_that_is_too_new_is_not_judged_yet() -> None:
    assert finding(series_row(5, 1.27, verdict=None)) == "not judged yet"


def test_identical_machine_code_is_never_faster_or_slower_by_itself() -> None:
    before = series_row(3, 1.0, code_sha256="same")
    assert finding(series_row(5, 0.8, code_sha256="same"), before=before) == "identical code"
    assert finding(series_row(5, 0.8, code_sha256="other"), before=before) == "not judged yet"


def test_a_confirmed_change_of_identical_code_is_the_toolchain_s_or_the_node_s_and_is_counted() -> None:
    before = series_row(3, 1.0, code_sha256="same")
    assert finding(series_row(5, 0.8, code_sha256="same"), judged_at(5), before) == "slower"


@pytest.mark.parametrize(
    ("after", "name"),
    [
        ({"source_sha256": "same", "compiler": "13.4"}, "identical code"),
        ({"source_sha256": "same", "compiler": "13.5"}, "not judged yet"),
        ({"source_sha256": "same", "compiler": None}, "not judged yet"),
        ({"source_sha256": "other", "compiler": "13.4"}, "not judged yet"),
    ],
)
def test_another_winner_of_the_same_source_and_compiler_is_no_change_of_code(after: dict[str, Any], name: str) -> None:
    assert finding(series_row(5, 0.8, **after), before=series_row(3, 1.0, source_sha256="same")) == name


def test_unknown_code_is_not_the_same_as_unknown_code() -> None:
    before = series_row(3, 1.0, code_sha256=None, compiler=None)
    assert finding(series_row(5, 0.8, code_sha256=None, compiler=None), before=before) == "not judged yet"


def test_what_noise_explains_is_not_apart_and_one_run_has_nothing_to_compare() -> None:
    assert finding(series_row(5, 1.005), judged_at(5)) == "within noise"
    assert finding(series_row(3, 1.0)) == ""


def test_between_gpu_models_the_intervals_alone_decide_and_code_may_be_the_same() -> None:
    before = [series_row(1, 1.0, code_sha256="same"), series_row(2, 1.0, problem="1x1x1")]
    after = [series_row(3, 0.8, code_sha256="same", gpu_model="b200"), series_row(4, 1.0, problem="1x1x1")]
    pairs = changes.pair_snapshots(pd.DataFrame(before), pd.DataFrame(after), ("kernel", "problem"))
    assert differences.add_findings_between_gpus(pairs)["finding"].tolist() == ["lower ratio", "within noise"]


def test_of_two_gpu_models_only_what_takes_more_time_is_slower() -> None:
    """On the second one the baseline gained more than the kernel, which takes less time; the other one has no ratio."""
    before = [series_row(1, 1.2), series_row(2, None, problem="1x1x1")]
    after = [
        series_row(3, 1.0, gpu_name="NVIDIA B200", median_us=50.0),
        series_row(4, None, gpu_name="NVIDIA B200", problem="1x1x1", median_us=150.0, low_us=149.0, high_us=151.0),
    ]
    pairs = changes.pair_snapshots(pd.DataFrame(before), pd.DataFrame(after), ("kernel", "problem"))
    found = differences.add_findings_between_gpus(pairs)
    assert found["finding"].tolist() == ["lower ratio", "slower"]
    always = (differences.HIGHER, differences.LOWER)
    assert differences.count_findings(found, always) == "0 with a higher ratio, 1 with a lower ratio, 1 slower"
    lines = ["\n".join(hover.series_lines(row)) for row in found.to_dict("records")]
    assert "+20.0 % beside the baseline against NVIDIA H200 (" in lines[0]
    assert "+50.0 % time, slower against NVIDIA H200 (" in lines[1]


def test_findings_are_counted_with_what_is_claimed_first() -> None:
    pairs = pd.DataFrame({"finding": ["identical code", "slower", "not judged yet", "identical code"]})
    assert differences.count_findings(pairs) == "0 faster, 1 slower, 1 not judged yet, 2 with identical code"


def test_only_a_claim_names_the_commit_that_confirmed_it() -> None:
    """A change on the way that the noise of both ends hides is no claim."""
    pairs = changes.pair_snapshots(pd.DataFrame([series_row(3, 1.0)]), pd.DataFrame([series_row(5, 1.0001)]))
    (row,) = differences.add_findings(pairs, judged_at(4, "improvement")).to_dict("records")
    assert (row["finding"], row["confirmed_at"]) == ("within noise", None)


def test_counts_name_the_first_and_the_last_day_of_the_commits_compared_with() -> None:
    days = pd.to_datetime([f"2026-11-{day:02} 12:00Z" for day in (14, 9, 19, 3, 11, 1)])
    pairs = pd.DataFrame(
        {"finding": ["slower"] * 5 + [None], "change": [-0.1] * 5 + [None], "committed_at_before": days}
    )
    counts = "0 faster, 5 slower since 2026-11-02 (against commits of 2026-11-03 to 2026-11-19), in 5 of 6 series"
    assert differences.write_counts(pairs, "2026-11-02") == counts
    assert "(against commits of 2026-11-14)" in differences.write_counts(pairs[:1], "2026-11-02")


@pytest.mark.parametrize(
    ("finding", "cell"),
    [
        ("faster", "-2.0 %"),
        ("slower", "-2.0 %"),
        ("higher ratio", "-2.0 %"),
        ("lower ratio", "-2.0 %"),
        ("not judged yet", "-2.0 % not judged yet"),
        ("undecided", "-2.0 % undecided"),
        ("not confirmed", "-2.0 % not confirmed"),
        ("identical code", "≈ -2.0 %"),
        ("within noise", "≈ -2.0 %"),
    ],
)
def test_a_cell_marks_a_change_that_is_no_claim(finding: str, cell: str) -> None:
    assert differences.write_cell({"change": -0.02, "finding": finding}) == cell


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"finding": "slower", "confirmed_at": "1a2b3c4d00" + "0" * 30}, "slower, confirmed at 1a2b3c4d00"),
        ({"finding": "within noise", "confirmed_at": None}, "within noise"),
        ({"finding": "undecided", "origin": "recorded"}, "undecided: a later recording or a run here decides"),
        ({"finding": "undecided", "origin": "measured"}, "undecided: a replay with more launches decides"),
    ],
)
def test_a_finding_has_its_commit_or_what_decides(row: dict[str, Any], words: str) -> None:
    assert differences.write({"undecided": "8 launches", "confirmed_at": None, **row}) == words


def test_between_gpu_models_each_finding_follows_the_side_and_what_is_compared() -> None:
    pairs = pd.DataFrame(
        [
            (-0.1, True, True),
            (0.1, True, True),
            (-0.1, True, False),
            (0.1, True, False),
            (0.1, False, True),
            (None, True, True),
        ],
        columns=["change", "apart", "of_ratio"],
    )
    found = differences.add_findings_between_gpus(pairs)
    assert found["finding"].tolist() == ["higher ratio", "lower ratio", "faster", "slower", "within noise", ""]


def test_counts_say_how_many_series_could_be_compared() -> None:
    at = pd.Timestamp("2026-11-20 12:00Z")
    pairs = pd.DataFrame({"finding": ["slower", "faster"], "change": [0.1, -0.1], "committed_at_before": [at, at]})
    words = "1 faster, 1 slower since a week ago (against commits of 2026-11-20), in 2 series"
    assert differences.write_counts(pairs, "a week ago") == words
    none = differences.write_counts(pairs.assign(change=None), "a week ago")
    assert none == "No series has a newer run to compare since a week ago, of 2 series"
