"""The texts of messages: about one commit or a range, the code or the toolchain, slower or faster."""

import ast
import datetime as dt
import inspect
from dataclasses import replace

import pytest

from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.page_reads import alarms as alarm_reads
from tilewatch.db.page_reads.alarms import AlarmRow
from tilewatch.db.page_reads.messages import MessageRow, RegressionStory
from tilewatch.db.page_reads.regressions import EventRow, RegressionRow, RegressionSeriesRow
from tilewatch.worker.notify import alarms, wording
from tilewatch.worker.notify.wording import Day

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
ROW = RegressionRow(
    id=7,
    direction="regression",
    repository="kernels",
    kernel="gemm",
    category="code",
    cause="the commit changed the machine code",
    explanation=["registers 96 -> 128"],
    good_sha="a" * 40,
    good_subject="Fine",
    bad_sha="b" * 40,
    bad_subject="Turn it\noff",
    commits_in_range=1,
    size=0.042,
    low=0.039,
    high=0.045,
    state="new",
    owner="ada",
    note=None,
    link=None,
    opened_at=NOW,
    changed_at=NOW,
    series=3,
    gpu_models=["b200", "h200"],
    right=0,
    wrong=0,
    recorded=False,
    simulated=False,
    counted=True,
)
SERIES = RegressionSeriesRow("gemm", "1x2x3", "h200", "H200", 11, 10, 0.042, 0.039, 0.045, None)
CALM = Day(opened=[], ended=[], still_open=[], improvements=[], alarms=[], nights=[], failed_messages=[])


def text_of(kind: str = "opened", **changed: object) -> wording.Text:
    events = (
        EventRow(NOW, "tilewatch", "open", None, "new", "why"),
        EventRow(NOW, "tilewatch", "recover", "new", "new", "1x2x3 on H200 recovered by -4.0% at cccccccccc Mend it"),
        EventRow(NOW, "eve", "resolve", "new", "resolved", "reverted"),
        EventRow(NOW, "eve", "note", "resolved", "resolved", "a note"),
    )
    row = replace(ROW, **changed)  # type: ignore[arg-type]  # a test's short hand
    return wording.regression_text(RegressionStory(row, (SERIES,), events, (), ()), kind, "http://here")


def test_a_headline_says_what_by_how_much_where_and_since_when() -> None:
    assert text_of().subject == "gemm of kernels on b200, h200: +4.2 % time, slower since bbbbbbbbbb (3 series)"
    assert text_of("reopened").subject.startswith("back again: gemm of kernels on b200, h200: +4.2 % time")


def test_a_text_has_the_command_that_times_both_sides_in_turns() -> None:
    wanted = f"  tilewatch replay gemm 1x2x3 --of {'b' * 40} --beside {'a' * 40}"
    assert wanted in text_of().body.splitlines()


def test_a_text_about_a_span_has_commands_that_know_the_kernel() -> None:
    """No library has a kernel "softmax span"; it is the series of a metric."""
    lines = text_of(kernel="softmax span").body.splitlines()
    assert "  python -m tilewatch.kernels sweep softmax 1x2x3" in lines
    assert f"  tilewatch replay softmax 1x2x3 --of {'b' * 40} --beside {'a' * 40} --metric span" in lines


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "First bad commit: bbbbbbbbbb Turn it off"),
        ({"commits_in_range": 4}, "First bad commit: one of 4 after aaaaaaaaaa, at the latest bbbbbbbbbb Turn it off"),
        ({"category": "toolchain"}, "First seen at: bbbbbbbbbb Turn it off"),
        ({"size": -0.042}, "First commit with it: bbbbbbbbbb Turn it off"),
        ({"series": 1}, "+4.2 % time, slower (95 %: +3.9 % to +4.5 %) at 1x2x3 on H200."),
        ({"category": "search_space"}, "Cause (search space): the commit changed the machine code"),
    ],
)
def test_a_text_contains_what_is_certain_and_no_more(changed: dict[str, object], line: str) -> None:
    assert line in text_of(**changed).body.splitlines()


def test_an_end_says_who_ended_it_and_a_recovery_that_it_ended_by_itself() -> None:
    assert text_of("resolved").body.splitlines()[0] == "By eve: reverted"
    recovered = text_of("recovered")
    was = "gemm of kernels on b200, h200: was +4.2 % time, slower since bbbbbbbbbb (3 series)"
    assert recovered.subject == f"recovered: {was}"
    assert recovered.body.splitlines()[:2] == [
        "All its series are back at their old level.",
        "1x2x3 on H200 recovered by -4.0% at cccccccccc Mend it",
    ]
    assert "eve" not in text_of("recovered").body.split()


def test_a_digest_has_only_the_sections_that_have_something_and_says_how_much_it_leaves_out() -> None:
    calm = wording.digest_text(CALM, "http://here")
    assert (calm.subject, calm.body) == (
        "Tilewatch: 0 new regressions, 0 open, 0 alarms in all repositories",
        "Dashboard: http://here",
    )
    alarm = AlarmRow(1, "k", "nightly_late", "the nightly of 2026-11-21 for H200: measuring", "", NOW, None)
    failed = MessageRow(1, "opened", "mail", "gemm is slower", "failed", 1, None, None, "no such address", NOW)
    busy = replace(CALM, still_open=[ROW] * 20, alarms=[alarm], failed_messages=[failed])
    body = wording.digest_text(busy, "http://here").body
    assert body.count("#7 gemm of kernels on b200, h200: +4.2 % time, slower") == wording.LISTED
    assert "  and 8 more" in body
    assert "Alarms:\n  the nightly is late: the nightly of 2026-11-21 for H200: measuring" in body
    assert "Could not be sent:\n  gemm is slower to mail: no such address" in body
    assert "Faster:" not in body


@pytest.mark.parametrize(("rows", "left_out"), [(wording.LISTED, []), (wording.LISTED + 1, ["  and 1 more"])])
def test_a_section_of_a_digest_lists_so_many_rows_and_counts_the_others(rows: int, left_out: list[str]) -> None:
    for section in ("opened", "ended", "still_open", "improvements"):
        day = replace(CALM, **{section: [ROW] * rows})  # type: ignore[arg-type]  # a test's short hand
        _, _, heading, *listed = wording.digest_text(day, "http://here").body.splitlines()
        assert heading.endswith(":")
        assert len(listed) == wording.LISTED + len(left_out)
        assert listed[wording.LISTED :] == left_out


def test_a_digest_says_of_each_regression_what_its_section_is_about() -> None:
    nobodys = replace(ROW, owner=None, state="reopened")
    ended, faster = replace(ROW, state="resolved"), replace(ROW, direction="improvement", size=-0.05)
    day = replace(CALM, opened=[ROW], ended=[ended], still_open=[ROW, nobodys], improvements=[faster])
    text = wording.digest_text(day, "http://here")
    line = "#7 gemm of kernels on b200, h200: +4.2 % time, slower since bbbbbbbbbb (3 series)"
    assert text.subject == "Tilewatch: 1 new regression, 2 open, 0 alarms in all repositories"
    assert text.body.split("\n\n")[1:] == [
        f"New:\n  {line}",
        f"Recovered, resolved or expected:\n  {line} [resolved]",
        f"Still open:\n  {line} [new, ada]\n  {line} [reopened, nobody]",
        f"Faster:\n  {line.replace('+4.2 % time, slower', '-5.0 % time, faster')}",
    ]


def test_a_day_of_some_repositories_keeps_their_rows_alone_and_what_belongs_to_none() -> None:
    alarm = AlarmRow(1, "k", "nightly_late", "h200", "", NOW, None)
    ours, theirs, others = (replace(ROW, repository=name) for name in ("ours", "theirs", "others"))
    day = replace(CALM, opened=[theirs, ours], ended=[ours], still_open=[others, ours, theirs], alarms=[alarm])
    assert day.list_repositories() == ["others", "ours", "theirs"]
    assert day.of("ours") == replace(CALM, opened=[ours], ended=[ours], still_open=[ours], alarms=[alarm])
    assert day.of("ours", "theirs") == replace(day, still_open=[ours, theirs])
    assert day.of() == replace(CALM, alarms=[alarm])


def test_what_is_back_again_names_no_series_that_has_recovered() -> None:
    recovered = replace(SERIES, problem="64x64x64", gpu_model="b200", gpu_name="B200", size=0.3, recovered_at=NOW)
    story = RegressionStory(replace(ROW, series=2), (recovered, SERIES), (), (), ())
    text = wording.regression_text(story, "reopened", "http://here")
    assert text.subject == "back again: gemm of kernels on h200: +4.2 % time, slower since bbbbbbbbbb (1 series)"
    assert text.body.startswith("+4.2 % time, slower (95 %: +3.9 % to +4.5 %) at 1x2x3 on H200.\n")


def test_a_message_says_what_was_not_measured_apart() -> None:
    shared = replace(SERIES, not_apart="it reads a counter\nthat it writes")
    body = wording.regression_text(RegressionStory(ROW, (shared,), (), (), ()), "opened", "http://here").body
    assert "\nNot measured apart: it reads a counter that it writes\n" in body
    assert "Not measured apart" not in text_of().body


def test_an_alarm_of_a_kind_that_nothing_opens_any_more_is_still_written() -> None:
    assert wording.write_alarm("new_toolchain", "cuda-tile 2") == "new toolchain: cuda-tile 2"
    assert wording.write_alarm("tie_lost", "gemm") == "the best config changed: gemm"


def test_every_kind_of_alarm_that_is_opened_has_its_words_and_an_action() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(alarms))) if isinstance(node, ast.Call)]
    made = [node.args[0] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "OpenAlarm"]
    opened = {kind.value for kind in made if isinstance(kind, ast.Constant)}
    assert len(opened) > 5, "they are written where the alarm is made"
    opened |= {"stopped_compiling", "became_wrong", life.FAILED_NIGHTLY, life.FAILED_REPOSITORY}
    assert opened <= set(alarm_reads.ALARMS)


def test_a_regression_that_no_gpu_showed_says_so_before_all_else() -> None:
    assert text_of("reopened", simulated=True).subject == f"simulated: {text_of('reopened').subject}"
