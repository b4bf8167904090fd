"""Each page run by Streamlit's own test harness, against a real database."""

import datetime as dt
import json
import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import delete, select, update
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import small_database
from tests.dashboard.fixtures.app import APP, opened, rows
from tests.dashboard.fixtures.small_database import MACHINE, OTHER_PROBLEM, REPOSITORY
from tests.db.fixtures import one_commit
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels.series import sweep_sizes
from tilewatch.dashboard.widgets import plots
from tilewatch.db import session
from tilewatch.db.lifecycle import actions
from tilewatch.db.lifecycle import regressions as life
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.models import Commit, Regression, Run, Sweep, Verdict
from tilewatch.db.page_reads import actions as action_queries
from tilewatch.db.page_reads import queue, regressions, snapshots

PAGES = (
    "overview",
    "inbox",
    "series",
    "compare",
    "architectures",
    "regressions",
    "checks",
    "jobs",
)


@pytest.fixture(autouse=True)
def _only_what_a_test_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWATCH_DATABASE_URL", "TILEWATCH_HOME", "TILEWATCH_ANONYMOUS", "TILEWATCH_TRIAGERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def filled_app(filled_url: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", filled_url)
    return AppTest.from_file(str(APP), default_timeout=60)


@pytest.fixture
def empty_app(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", empty_url)
    return AppTest.from_file(str(APP), default_timeout=60)


def figure(app: AppTest, index: int = 0) -> Any:
    return json.loads(app.get("plotly_chart")[index].proto.spec)


def overview_cells(app: AppTest) -> dict[str, list[str]]:
    """The rows of the tables of ratios."""
    tables = [rows(each.proto.body) for each in app.get("html") if 'class="series"' in each.proto.body]
    return {head: cells for table in tables for head, *cells in table[1:]}


def words(app: AppTest) -> str:
    return " ".join(
        str(element.value) for kind in ("title", "markdown", "caption", "text") for element in app.get(kind)
    )


def subheaders(app: AppTest) -> list[str]:
    return [str(each.value) for each in app.subheader]


def test_each_page_is_shown_after_the_overview_and_after_the_others(filled_app: AppTest) -> None:
    """Streamlit hands the value of a widget to one of another page that has its key."""
    for page in PAGES[1:]:
        for each in ("overview", page):
            filled_app.switch_page(f"views/{each}.py").run()
            assert not filled_app.exception


@pytest.mark.parametrize(
    ("page", "key", "old", "shown"),
    [("overview", "from", "5e6f7a8b", "5e6f7a8b00"), ("compare", "b", "5e6f7a8b", "5e6f7a8b00")],
)
def test_an_address_with_eight_digits_of_a_commit_still_works(
    filled_app: AppTest, page: str, key: str, old: str, shown: str
) -> None:
    filled_app.query_params["since"], filled_app.query_params["gpu"] = "a commit", "h200"
    filled_app.query_params[key] = old
    assert opened(filled_app, page).session_state[key] == shown


def test_overview_answers_what_changed_since_a_commit(filled_app: AppTest) -> None:
    filled_app.query_params["since"], filled_app.query_params["from"] = "a commit", "5e6f7a8b00"
    filled_app.query_params["movers"] = "true"
    app = opened(filled_app, "overview")
    asked = "0 faster, 1 slower since 5e6f7a8b00 (against commits of 2026-11-19), in 1 of 2 series of"
    assert f"{asked} https://example.org/kernels.git" in words(app)
    movers = app.dataframe[0].value
    first = movers.iloc[0]
    assert (first["ratio"], first["change"]) == ("0.83x DeepGEMM", "+9.3 %")
    assert first["finding"] == "slower, confirmed at 9c0d1e2f00"
    assert len(movers) == 2, "a series stands once, as in the table of ratios"


def test_overview_draws_the_board_with_one_cell_per_series(filled_app: AppTest) -> None:
    filled_app.query_params["since"], filled_app.query_params["from"] = "a commit", "5e6f7a8b00"
    assert overview_cells(opened(filled_app, "overview")) == {
        "320x32576x7168": ["0.83 ▼+9.3%"],
        "4096x4096x4096": ["0.63"],
    }


def test_a_series_draws_the_ratios_of_its_last_commits(filled_app: AppTest, filled_url: str) -> None:
    app = opened(filled_app, "overview")
    (html,) = [each.proto.body for each in app.get("html") if 'class="series"' in each.proto.body]
    (line,) = [part for part in html.split("<tr>") if ">320x32576x7168<" in part]
    assert line.count("drawn spark") == html.count("drawn spark") == 1, "the other series has one commit, and no line"
    drawings = [json.loads(each.proto.json).get("drawings", []) for each in app.get("bidi_component")]
    (spark,) = [each for drawn in drawings for each in drawn if 'class="spark"' in each]
    (points,) = re.findall(r'points="([^"]+)"', spark)
    assert len(points.split()) == 3, "one for each commit that was measured here, not of the recording"
    with session.session(filled_url) as opened_session:
        newest = snapshots.list_recent_ratios(opened_session, REPOSITORY, 2)
    ratios = {(row.problem, row.origin): row.ratios for row in newest}
    first, last = ratios["320x32576x7168", "measured"]
    assert first > last, "the newest two, the oldest first"


def test_what_a_commit_of_this_hour_measured_is_on_the_overview(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_filled_database() as url:
        with session.session(url) as opened_session:
            newest = opened_session.query(Commit).order_by(Commit.position.desc()).first()
            assert newest is not None
            newest.committed_at = dt.datetime.now(dt.UTC)
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = opened(AppTest.from_file(str(APP), default_timeout=60), "overview")
        assert overview_cells(app)["320x32576x7168"] == ["0.83 ▼+9.3%"]


def test_what_came_after_the_repositories_were_read_is_shown(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read is kept for some seconds of its own, so a page may meet a series of a repository that it does not know.
    The Series page crashed in the first minute of `make up` (2026-11-28)."""
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", database_url)
    assert reads.repositories(database_url) == []
    with session.session(database_url) as opened_session:
        small_database.fill(opened_session)
    for page in ("series", "overview", "compare", "architectures"):
        opened(AppTest.from_file(str(APP), default_timeout=60), page)


def test_only_regressions_leaves_the_other_series_out(filled_app: AppTest) -> None:
    filled_app.query_params["since"], filled_app.query_params["from"] = "a commit", "5e6f7a8b00"
    app = opened(filled_app, "overview")
    app.toggle(key="regressions").set_value(True).run()
    assert list(overview_cells(app)) == ["gemm_fp8 320x32576x7168"]


def test_a_regression_of_the_chosen_commit_itself_is_not_since_it(filled_app: AppTest) -> None:
    filled_app.query_params["since"], filled_app.query_params["from"] = "a commit", "9c0d1e2f00"
    filled_app.query_params["regressions"] = "true"
    (success,) = opened(filled_app, "overview").success
    assert success.value == "No series was judged a regression since 9c0d1e2f00."


def test_overview_tells_how_each_gpu_models_night_went(filled_app: AppTest) -> None:
    line = next(one for one in words(opened(filled_app, "overview")).split("**") if "-badge" in one)
    assert "H200: " in line
    assert "B200: " in line


def regressed_run(url: str) -> str:
    with session.session(url) as opened_session:
        return str(regressions.list_series(opened_session, 1)[0].run_id)


def test_the_evidence_of_a_run_is_a_permalink(filled_app: AppTest, filled_url: str) -> None:
    filled_app.query_params["run"], filled_app.query_params["view"] = regressed_run(filled_url), "This run"
    app = opened(filled_app, "series")
    assert [each.proto.ignore_rerun for each in app.get("download_button")] == [True, True], "a run would end the file"
    assert "compared with 5e6f7a8b00." in words(app)
    assert "1 commit in this database after the run before, up to this one." in words(app)
    assert "9.3 % slower than its history" in words(app)
    assert {trace["name"] for trace in figure(app, 1)["data"]} == {"gemm_fp8", "deepgemm", "cublaslt"}
    assert "confirmed: slower in 6 of 6 launches" in words(app)
    assert "5e6f7a8b00 → 9c0d1e2f00: +8.8 % time, slower over 6 launches" in words(app)
    assert "gemm.py:61 does something else" in words(app)
    tables = [frame.value for frame in app.dataframe]
    assert tables[0].iloc[0]["time"] == "+9.3 %"
    assert tables[0]["least"].tolist() == ["140.6 us", "116.8 us", "124.7 us"]
    assert tables[0]["ran"].tolist()[1:] == [
        "block_m=128 block_n=192 num_stages=4",
        "nvjet_sm90_qqtst_128x160_128x5_1x2_h_bz_TNT",
    ]
    assert "deepgemm_as_called could not run: it was not asked." in words(app)
    assert "process of its own, which had ended before the first timed launch. It was kept from network" in words(app)
    assert "Mechanism of the change: lost TMA (TMA loads 2 -> 1, global loads 0 -> 8)" in words(app)
    counted = next(table for table in tables if "counter" in table)
    assert counted.iloc[-1].tolist()[:4] == ["instructions", "4,200,000", "4,200,000", "+0.0 %"]
    assert "Nsight Compute read them after the last round." in words(app)
    assert "The winner: 1 of 2 lines kept." in words(app)
    guide = next(table for table in tables if "line of the guide" in table)
    assert guide[["line of the guide", "kept", "before"]].values.tolist() == [
        ["TMA loads", "✗ no", ""],
        ["no spills", "✓ yes", ""],
    ]
    assert "Toolchain: driver 580.82 → 590.11." in words(app)
    assert app.code[-1].value.splitlines()[:2] == [
        "git checkout 9c0d1e2f" + "0" * 32,
        "python -m tilewatch.kernels sweep gemm_fp8 320x32576x7168",
    ]


def test_the_first_run_of_a_series_speaks_of_no_run_before(filled_app: AppTest) -> None:
    filled_app.query_params["run"], filled_app.query_params["view"] = "1", "This run"
    shown = words(opened(filled_app, "series"))
    assert "the first of its series" in shown
    assert "in this database: no run of this series was before." in shown


@pytest.mark.parametrize("run", ["999999999", "x'; drop table runs", "9" * 40])
def test_a_link_to_a_run_that_is_not_there_says_so(filled_app: AppTest, run: str) -> None:
    filled_app.query_params["run"] = run
    app = opened(filled_app, "series")
    assert "There is no run" in app.warning[0].value


def test_compare_holds_the_newest_commit_against_the_one_before(filled_app: AppTest) -> None:
    filled_app.query_params["all"] = "true"
    app = opened(filled_app, "compare")
    assert "0 faster, 1 slower, of 1 series on both sides" in words(app)
    row = app.dataframe[-1].value.iloc[0]
    assert (row["A"], row["B"]) == ("0.91x DeepGEMM, 130.0 us", "0.83x DeepGEMM, 142.0 us")
    assert row["finding"] == "slower, confirmed at 9c0d1e2f00"


def test_step_by_step_is_headed_by_no_commit_and_gpu_of_its_own(filled_app: AppTest) -> None:
    """Its bars are of several."""
    filled_app.query_params["view"] = "Step by step"
    app = opened(filled_app, "series")
    assert "A step's worth is its time against the step above it" in words(app)
    assert "of the space" not in words(app)


def test_steps_that_nobody_measured_are_a_sentence(filled_app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_sizes, "_list_bars", lambda *_: iter(()))
    filled_app.query_params["view"] = "Step by step"
    app = opened(filled_app, "series")
    assert "No GPU model has measured a step" in app.info[0].value
    assert "A step's worth" not in words(app)


def test_compare_of_two_older_commits_has_their_recordings_too(filled_app: AppTest) -> None:
    for name, value in {"a": "1a2b3c4d00", "b": "5e6f7a8b00", "all": "true"}.items():
        filled_app.query_params[name] = value
    app = opened(filled_app, "compare")
    assert set(app.dataframe[-1].value["GPU"]) == {"H200", "H200 (recorded)"}


def test_compare_of_the_oldest_commit_asks_for_a_later_one(filled_app: AppTest) -> None:
    app = opened(filled_app, "compare")
    app.selectbox(key="b").select("1a2b3c4d00").run()
    assert not app.exception
    assert "oldest measured commit" in words(app)


def test_compare_of_gpu_models_needs_two_that_are_measured(filled_app: AppTest) -> None:
    app = opened(filled_app, "compare")
    app.get("button_group")[0].set_value("Two GPU models").run()
    assert not app.exception
    assert "Both sides are the same GPU model." in app.info[0].value


def test_compare_of_a_commit_with_itself_says_that_it_is_the_same(filled_app: AppTest) -> None:
    filled_app.query_params["a"] = filled_app.query_params["b"] = "5e6f7a8b00"
    assert "Both sides are the same commit." in opened(filled_app, "compare").info[0].value


def test_architectures_tell_what_moved_between_two_commits(filled_app: AppTest) -> None:
    app = opened(filled_app, "architectures")
    assert app.session_state["gpu"] == "sm_100 NVIDIA B200"
    names = {trace["name"] for trace in figure(app)["data"]}
    assert {"compiled", "with spills", "timeout", "every load through TMA"} <= names
    assert "**Spills appeared or grew: 3 configs**" in words(app)
    assert "**Lost TMA loads: 3 configs**" in words(app)
    lost = app.dataframe[0].value
    assert set(lost["TMA loads"]) == {"1 → 0", "2 → 0"}


def test_architectures_where_nothing_moved_say_so(filled_app: AppTest) -> None:
    app = opened(filled_app, "architectures")
    app.get("button_group")[0].set_value("sm_90 NVIDIA H200").run()
    assert not app.exception
    assert "No config that compiled at both" in app.success[0].value


def test_architectures_open_with_the_branch_s_newest_commit_and_not_with_a_removed_one(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_filled_database() as url:
        with session.session(url) as opened_session:
            removed = opened_session.query(Commit).filter_by(sha=small_database.SHAS[2]).one()
            removed.left_branch_at = dt.datetime.now(dt.UTC)
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = AppTest.from_file(str(APP), default_timeout=60)
        app.query_params["gpu"] = "sm_90 NVIDIA H200"
        assert "1a2b3c4d00 Walk tiles along M first → 5e6f7a8b00 Load B through TMA" in words(
            opened(app, "architectures")
        )


def test_compare_lays_the_changes_over_the_shapes_of_problems(filled_app: AppTest) -> None:
    app = opened(filled_app, "compare")
    assert "Over the shapes of the problems" in subheaders(app)
    marks = figure(app, 1)["data"][0]
    assert (marks["text"], "320x32576x7168" in marks["customdata"][0]) == (["+9.3 %"], True)


def test_regressions_that_wait_for_somebody_come_first(filled_app: AppTest) -> None:
    app = opened(filled_app, "regressions")
    table = app.dataframe[0].value
    assert table["state"].tolist() == ["new"]
    assert table["time"].tolist() == ["+9.3 % (+8.9 % to +9.7 %)"]
    assert "time" in table.columns[:4], "a phone shows no more"
    app.toggle(key="improvements").set_value(True).run()
    assert "No improvement matches these choices" in app.success[0].value


def test_the_scoreboard_says_how_little_it_stands_on(filled_app: AppTest) -> None:
    app = opened(filled_app, "regressions")
    score = {metric.label: metric.value for metric in app.metric}
    assert (score["Precision so far"], score["False alarms per 1,000"]) == ("none yet", "none yet")
    assert "1 suspicion: 1 confirmed, 0 refuted, 0 undecided" in words(app)


def test_the_inbox_has_a_card_for_all_that_needs_a_person(filled_app: AppTest) -> None:
    """Of the two confirmed changes one is expected by somebody."""
    app = opened(filled_app, "inbox")
    assert "2 things need a person: 1 regression, 1 alarm" in words(app)
    assert "**gemm_fp8 on h200: +9.3 % time, slower (+8.9 to +9.7 %)**" in words(app)
    assert "**The nightly is late: NVIDIA B200**" in words(app)
    assert app.code[0].value == "git log --patch 1a2b3c4d" + "0" * 32 + "..9c0d1e2f" + "0" * 32


def test_undecided_series_of_two_repositories_have_a_button_each(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cards with one title had one key, which ended the page (2026-11-30)."""
    monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
    with new_filled_database() as url:
        with session.session(url) as opened_session:
            shas = [small_database.add_branch(opened_session, name, 1.0) for name in ("one", "two")]
            for name, sha in zip(("one", "two"), shas, strict=True):
                commit = opened_session.query(Commit).filter_by(sha=sha).one()
                commit.repository = name
                opened_session.query(Sweep).filter_by(commit_id=commit.id).update({"repository": name})
            runs = opened_session.query(Run).join(Sweep).join(Commit).filter(Commit.sha.in_(shas)).all()
            judged = {"verdict": "undecided", "history_points": 9, "policy": "v1", "reason": "not sure enough"}
            opened_session.add_all(Verdict(run_id=run.id, **judged) for run in runs)
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = opened(AppTest.from_file(str(APP), default_timeout=60), "inbox")
        app.text_input(key="who").set_value("kim").run()
        assert not app.exception
        assert [button.label for button in app.button].count("Replay now") == len(runs) == 2


def test_a_replay_is_offered_where_it_is_possible(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
    with new_filled_database() as url:
        with session.session(url) as opened_session:
            sha = small_database.add_branch(opened_session, "one", 1.0)
            of_branch = opened_session.query(Run).join(Sweep).join(Commit).filter(Commit.sha == sha).one().id
            main, asked, *_ = opened_session.scalars(select(Run.id).where(Run.origin == "measured").order_by(Run.id))
            reasons = {main: "not sure", asked: f"not sure{AWAITS_REPLAY}", of_branch: "not sure"}
            opened_session.execute(delete(Verdict).where(Verdict.run_id.in_(reasons)))
            judged = {"verdict": "undecided", "history_points": 9, "policy": "v1"}
            opened_session.add_all(Verdict(run_id=id_, **judged, reason=reason) for id_, reason in reasons.items())
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        offers = []
        for run_id in reasons:
            app = AppTest.from_file(str(APP), default_timeout=60)
            app.query_params["run"] = str(run_id)
            offers.append("Ask for a replay" in {button.label for button in opened(app, "series").button})
        assert offers == [True, False, False]


def test_a_bisection_is_offered_where_a_commit_may_be_the_cause(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
    with new_filled_database() as url:
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        for category, disabled in (("code", False), ("node", True)):
            with session.session(url) as opened_session:
                opened_session.execute(update(Regression).where(Regression.id == 1).values(category=category))
            st.cache_data.clear()
            app = AppTest.from_file(str(APP), default_timeout=60)
            app.query_params["regression"] = "1"
            opened(app, "regressions").text_input(key="who").set_value("kim").run()
            assert app.button(key="bisect").disabled is disabled
        assert app.button(key="bisect").help == "It is of the node and of no commit: nothing to bisect."


def test_no_filter_changes_the_sentence_of_what_needs_a_person(filled_app: AppTest) -> None:
    """Since "yesterday" a series had looked slower, and since the newest commit nothing was wrong (2026-11-27)."""
    for name, value in (("since", "a commit"), ("from", "9c0d1e2f00"), ("regressions", "true")):
        filled_app.query_params[name] = value
        assert "2 things need a person" in words(opened(filled_app, "overview"))


def test_an_expected_improvement_is_found_by_its_state(filled_app: AppTest) -> None:
    filled_app.query_params["state"], filled_app.query_params["improvements"] = "expected", "true"
    table = opened(filled_app, "regressions").dataframe[0].value
    assert table["category"].tolist() == ["toolchain"]


def test_a_regression_is_a_permalink_with_its_series_and_its_life(filled_app: AppTest) -> None:
    filled_app.query_params["regression"] = "1"
    app = opened(filled_app, "regressions")
    assert "#1 gemm_fp8: +9.3 % time, slower" in words(app)
    assert "its loads lost TMA" in words(app)
    assert app.dataframe[0].value["GPU"].tolist() == ["NVIDIA H200"]
    assert "tilewatch, open, → new: The winner" in words(app)


def test_a_regression_has_a_picture_of_its_step_its_replay_its_code_and_its_commands(filled_app: AppTest) -> None:
    filled_app.query_params["regression"] = "1"
    app = opened(filled_app, "regressions")
    step, replayed = figure(app, 0), figure(app, 1)
    assert {"gemm_fp8", "regression"} <= {trace.get("name") for trace in step["data"]}
    assert "#1" in " ".join(each["text"] for each in step["layout"]["annotations"])
    assert [trace["x"] for trace in replayed["data"]] == [["old cubin", "new cubin"]] * 6
    assert "gemm.py:61 does something else" in words(app)
    assert "| gemm_fp8 | 130.0 us | 142.0 us | +9.3 % | 0.83x |" in words(app)
    commands = " ".join(code.value for code in app.code)
    assert "git log --patch 1a2b3c4d00..9c0d1e2f00" in words(app)
    assert "tilewatch replay gemm_fp8 320x32576x7168 --of 9c0d1e2f" in commands


def test_nobody_acts_where_nobody_is_allowed_to(filled_app: AppTest) -> None:
    filled_app.query_params["regression"] = "1"
    app = opened(filled_app, "regressions")
    assert [button.label for button in app.button] == ["Search"]
    assert "Nobody may act here" in words(app)


def test_the_work_on_a_regression_is_one_click_away(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_filled_database() as url:
        with session.session(url) as opened_session:
            life.edit(opened_session, 1, "kim", "link", "https://example.org/issues/12")
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = AppTest.from_file(str(APP), default_timeout=60)
        app.query_params["regression"] = "1"
        urls = [each.proto.url for each in opened(app, "regressions").get("link_button")]
    assert "https://example.org/issues/12" in urls


def test_a_regression_that_is_not_there_says_so(filled_app: AppTest) -> None:
    filled_app.query_params["regression"] = "9' or 1=1"
    assert "There is no regression" in opened(filled_app, "regressions").warning[0].value


def test_triage_is_written_down_with_who_did_it(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_filled_database() as url:
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
        app = AppTest.from_file(str(APP), default_timeout=60)
        app.query_params["regression"] = "1"
        opened(app, "regressions")
        assert [button.label for button in app.button] == ["Search"], "no name yet"
        app.text_input(key="who").set_value("kim").run()
        app.text_input(key="why-new").set_value("it is mine").run()
        app.button(key="acknowledge").click().run()
        assert not app.exception
        assert app.success[0].value == "Acknowledge: done."
        app.button(key="It was right").click().run()
        app.button(key="bisect").click().run()
        app.button(key="resolve").click().run()
        app.button(key="reopen").click().run()
        app.button(key="rerun").click().run()
        assert not app.exception
        assert app.success[0].value == "Asked for new runs."
        with session.session(url) as opened_session:
            row = regressions.find_regression(opened_session, 1)
            assert row is not None
            assert (row.state, row.owner, row.right) == ("reopened", "kim (not signed in)", 1)
            life = [(event.who, event.action, event.note) for event in regressions.list_events(opened_session, 1)]
            assert life[:4] == [
                ("kim (not signed in)", "reopen", None),
                ("kim (not signed in)", "resolve", None),
                ("kim (not signed in)", "mark right", None),
                ("kim (not signed in)", "acknowledge", "it is mine"),
            ]
            asked = actions.find_next_request(opened_session)
            assert asked is not None
            assert (asked.who, asked.action) == ("kim (not signed in)", "bisect")
            assert {row.action for row in action_queries.list_actions(opened_session)} == {"bisect", "sweep"}
            assert asked.wanted == {"regression": 1}


def test_where_people_sign_in_a_stranger_sees_the_button_and_no_data(filled_app: AppTest) -> None:
    filled_app.secrets["auth"] = {"redirect_uri": "https://tilewatch.example.org/oauth2callback"}
    app = opened(filled_app, "overview")
    assert [button.label for button in app.button] == ["Sign in"]
    assert app.info[0].value == "Sign in to see this Tilewatch."
    assert not app.dataframe
    assert not app.get("plotly_chart")


def test_a_right_that_is_misspelt_closes_the_door(filled_app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_ANONYMOUS", "everything")
    app = opened(filled_app, "overview")
    assert "expected one of nothing, browse, act" in app.error[0].value
    assert not app.dataframe


def test_trends_draw_the_kernel_its_baselines_and_its_recordings(filled_app: AppTest) -> None:
    names = {trace["name"] for trace in figure(opened(filled_app, "series"))["data"]}
    here = {"gemm_fp8", "deepgemm", "cublaslt"}
    recorded = {f"{name}, recorded on {MACHINE}" for name in here}
    assert names == here | recorded | {"regression", "this run"}


def test_a_part_of_the_history_and_a_series_beside_it_are_in_the_link(filled_app: AppTest) -> None:
    filled_app.query_params["commits"] = ["5e6f7a8b00", "newest"]
    app = opened(filled_app, "series")
    assert figure(app)["layout"]["xaxis"]["categoryarray"] == ["5e6f7a8b00", "9c0d1e2f00"]
    app.multiselect(key="beside").select(f"gemm_fp8 {OTHER_PROBLEM} on h200").run()
    assert not app.exception
    names = {trace["name"] for trace in figure(app)["data"]}
    assert {f"gemm_fp8 {OTHER_PROBLEM} on h200", "gemm_fp8 320x32576x7168 on h200"} <= names


def test_trends_run_along_dates_on_request(filled_app: AppTest) -> None:
    filled_app.query_params["along"] = "Date"
    assert figure(opened(filled_app, "series"))["layout"]["xaxis"]["type"] == "date"


def test_trends_of_another_problem_and_metric_follow_the_pickers(filled_app: AppTest) -> None:
    app = opened(filled_app, "series")
    app.selectbox(key="problem").select(OTHER_PROBLEM).run()
    app.selectbox(key="show").select("% of roofline").run()
    assert not app.exception
    shown = figure(app)
    assert shown["layout"]["yaxis"]["title"]["text"].startswith("% of the datasheet roofline")
    assert shown["layout"]["xaxis"]["categoryarray"] == ["9c0d1e2f00"]


def test_a_link_names_the_series_and_the_metric(filled_app: AppTest) -> None:
    filled_app.query_params["problem"] = OTHER_PROBLEM
    filled_app.query_params["show"] = "Time"
    app = opened(filled_app, "series")
    assert app.selectbox(key="problem").value == OTHER_PROBLEM
    assert figure(app)["layout"]["yaxis"]["title"]["text"] == "median time, us"


def test_a_link_to_what_is_not_there_says_so_and_shows_nothing_else(filled_app: AppTest) -> None:
    """It drew another series under the same address (2026-11-27)."""
    filled_app.query_params["gpu"] = "gtx1080"
    app = opened(filled_app, "series")
    assert app.warning[0].value == "There is no GPU 'gtx1080' here. The link may belong to another Tilewatch."
    assert not app.get("plotly_chart")
    app.selectbox(key="gpu").select("h200").run()
    assert figure(app)["data"]
    assert app.query_params["gpu"] == ["h200"] or app.query_params["gpu"] == "h200"


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [
        ("view", "Nope", "Below the chart"),
        ("beside", "nope on h200", "Other series"),
        ("everywhere", "maybe", "Every GPU model"),
        ("commits", "0000000000", "Commit"),
        ("along", "Size", "Order"),
        ("commit", "0000000000", "Sweep"),
        ("run", "77", "run"),
    ],
)
def test_every_choice_of_an_address_that_is_not_there_is_named(
    filled_app: AppTest, name: str, value: str, label: str
) -> None:
    filled_app.query_params[name] = value
    assert opened(filled_app, "series").warning[0].value.startswith(f"There is no {label} '{value}' here.")


def test_a_run_of_another_series_than_the_address_is_named(filled_app: AppTest, filled_url: str) -> None:
    filled_app.query_params["run"], filled_app.query_params["problem"] = regressed_run(filled_url), OTHER_PROBLEM
    shown = opened(filled_app, "series")
    assert "is of gemm_fp8 320x32576x7168 on NVIDIA H200, which is not the series" in shown.warning[0].value
    assert not shown.get("plotly_chart")


def test_another_series_that_is_picked_takes_the_run_out_of_the_address(filled_app: AppTest, filled_url: str) -> None:
    filled_app.query_params["run"] = regressed_run(filled_url)
    app = opened(filled_app, "series")
    app.selectbox(key="problem").select(OTHER_PROBLEM).run()
    assert not app.exception
    assert "run" not in app.query_params
    assert "the first of its series" in words(app)


def test_a_compiling_sweep_shows_its_static_facts_so_far(filled_app: AppTest) -> None:
    filled_app.query_params["gpu"] = "b200"
    app = opened(filled_app, "series")
    assert app.info[0].value == "No GPU measured this series: it has static facts alone."
    names = {trace["name"] for trace in figure(app)["data"]}
    assert names == {"compiled 15", "compile error 3", "waiting 36"}
    assert app.selectbox(key="fact").options[0] == "Registers"
    assert "| compiled | 15 of 54 |" in words(app)


def test_a_kernel_over_its_sizes_at_one_commit(filled_app: AppTest) -> None:
    filled_app.query_params["gpu"], filled_app.query_params["view"] = "h200", "Over the sizes"
    app = opened(filled_app, "series")
    assert not app.exception
    assert {trace["name"] for trace in figure(app, 1)["data"]} == {"gemm_fp8", "deepgemm", "cublaslt"}
    rates = app.dataframe[0].value.set_index("problem").loc["320x32576x7168"]
    assert rates["gemm_fp8, TFLOP/s"] == pytest.approx(2 * 320 * 32576 * 7168 / 142.0 / 1e6, rel=0.001)


def test_the_failures_of_a_sweep_are_counted_by_kind_and_first_line(filled_app: AppTest) -> None:
    filled_app.query_params["failed"], filled_app.query_params["gpu"] = "true", "b200"
    failed = opened(filled_app, "series").dataframe[0].value
    assert failed.to_dict("records") == [
        {"outcome": "compile error", "reason": "error: tile of 256x64 is not legal in a cluster of 2", "configs": 3}
    ]


def test_a_measured_sweep_shows_the_record_and_the_fastest_configs(filled_app: AppTest) -> None:
    app = opened(filled_app, "series")
    assert "The fastest config takes 142.0 us: slower than DeepGEMM (0.83x DeepGEMM)" in words(app)
    regrets = app.dataframe[0].value
    assert regrets["the config of"].tolist() == [
        "the library's host code",
        "the tile table",
        "the winner of the commit before, 5e6f7a8b00",
    ]
    assert regrets["slower than the fastest"].tolist()[2] == "+0.0 %"
    best = next(each.value for each in app.dataframe if "tile_m" in each.value).iloc[0]
    assert (best["tile_m"], best["tile_n"], best["tile_k"], best["num_ctas"]) == (64, 256, 128, 2)
    assert app.selectbox(key="fact").options[0] == "Time"


def test_an_older_commit_is_picked_by_its_hash(filled_app: AppTest) -> None:
    filled_app.query_params["gpu"] = "h200"
    filled_app.query_params["commit"] = "1a2b3c4d00"
    app = opened(filled_app, "series")
    assert "Walk tiles along M first" in words(app)
    names = app.selectbox(key="commit").options
    assert [name[:10] for name in names] == ["9c0d1e2f00", "5e6f7a8b00", "5e6f7a8b00", "1a2b3c4d00", "1a2b3c4d00"]
    assert app.selectbox(key="commit").value == "1a2b3c4d00 Walk tiles along M first, nightly of 2026-11-18"
    app.query_params["submission"] = f"recorded on {MACHINE}"
    assert app.run().selectbox(key="commit").value == names[-1], "an address of before 2026-11-28"
    app.selectbox(key="commit").select(names[1]).run()
    assert "submission" not in app.query_params
    app.selectbox(key="commit").select(names[-1]).run()
    assert f"recorded on {MACHINE}, 2026-11-18" in words(app), "the run beside the chart is that of the sweep"


def test_two_commits_of_a_search_space_tell_which_configs_moved(filled_app: AppTest) -> None:
    filled_app.query_params["gpu"], filled_app.query_params["view"] = "h200", "What moved"
    app = opened(filled_app, "series")
    assert "5e6f7a8b00 Load B through TMA → 9c0d1e2f00" in words(app)
    assert "**Newly failing: 2 configs**" in words(app)
    assert "2 are more than 2 % slower and 0 as much faster" in words(app)
    assert app.success[0].value == "The same config won both."
    newly = app.dataframe[1].value
    assert set(newly["before"]) == {"timed"}
    assert set(newly["after"]) == {"hung"}
    app.selectbox(key="before").select("1a2b3c4d00").run()
    assert not app.exception
    assert "1a2b3c4d00 Walk tiles along M first → 9c0d1e2f00" in words(app)


def test_the_oldest_sweep_has_nothing_to_be_compared_with(filled_app: AppTest) -> None:
    filled_app.query_params["gpu"], filled_app.query_params["view"] = "h200", "What moved"
    filled_app.query_params["commit"] = "1a2b3c4d00"
    assert "oldest commit of this search space" in opened(filled_app, "series").info[0].value


def test_a_sweep_that_nothing_came_of_yet_says_so(filled_app: AppTest) -> None:
    filled_app.query_params["problem"], filled_app.query_params["gpu"] = OTHER_PROBLEM, "b200"
    app = opened(filled_app, "series")
    assert [info.value for info in app.info[1:]] == [
        "None of the 54 configs is compiled yet. A compile worker takes them in batches."
    ]


def test_jobs_say_what_runs_what_failed_and_what_waits_for_nobody(filled_app: AppTest) -> None:
    app = opened(filled_app, "jobs")
    assert {metric.label: metric.value for metric in app.metric}["failed"] == "1"
    assert [expander.label for expander in app.expander] == [
        "gemm_fp8 320x32576x7168 for sm_100, configs 1-18: OSError: \\[Errno 28\\] No space left on device",
    ]
    trace, log = app.expander[0].code
    assert "Traceback" in trace.value
    assert log.value.splitlines() == ["level='info' event='claimed'", "level='error' event='failed'"]
    (warned,) = [warning.value for warning in app.warning]
    assert warned.splitlines() == [
        "Jobs wait for workers of which none was seen in the last minute:",
        "",
        "- 1 job waits in queue `gpu.b200` for a worker with a GPU of model **b200**",
        "- 1 job waits in queue `gpu.h200` for a worker with a GPU of model **h200**",
    ]


def test_running_jobs_tell_how_long_they_will_take(filled_app: AppTest) -> None:
    running = opened(filled_app, "jobs").dataframe[0].value
    assert running["progress"].tolist() == [pytest.approx(100 * 7 / 18)]
    assert running["left"].iloc[0].endswith(("s", "min", "h", "d"))


def test_jobs_show_how_the_canaries_of_each_gpu_sing(filled_app: AppTest) -> None:
    app = opened(filled_app, "jobs")
    assert "Health of the GPUs" in subheaders(app)
    assert {trace["name"] for trace in figure(app)["data"]} == {"node-1 GPU-0, arithmetic", "node-1 GPU-0, memory"}


def test_work_is_submitted_and_cancelled_from_the_page_under_a_name(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_filled_database() as url:
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
        app = opened(AppTest.from_file(str(APP), default_timeout=60), "jobs")
        assert "Submit" not in {button.label for button in app.button}, "no name yet"
        app.text_input(key="who").set_value("kim").run()
        app.text_input(key="submit-commit").set_value("v1.2").run()
        app.button(key="submit-now").click().run()
        assert not app.exception
        assert app.success[0].value == "A worker submits it within a minute."
        retry = next(button for button in app.button if button.label == "Retry")
        retry.click().run()
        assert not app.exception
        assert app.success[0].value.startswith("Queued job ")
        with session.session(url) as opened_session:
            found = action_queries.list_actions(opened_session)
            assert [(row.who, row.action, row.state) for row in found] == [
                ("kim (not signed in)", "retry", "done"),
                ("kim (not signed in)", "nightly", "asked"),
            ]
            assert found[1].wanted == {"commit": "v1.2", "gpus": []}
            assert not queue.list_jobs(opened_session, ("failed",))


@pytest.mark.parametrize(
    ("page", "words_shown"),
    [
        ("overview", "submitted"),
        ("series", "measured"),
        ("compare", "measured"),
        ("architectures", "sweep"),
        ("regressions", "No regression or improvement was opened here"),
        ("checks", "check"),
        ("jobs", "job"),
    ],
)
def test_an_empty_database_is_explained_with_what_to_do(empty_app: AppTest, page: str, words_shown: str) -> None:
    app = opened(empty_app, page)
    assert words_shown in app.info[0].value
    assert not app.error
    assert app.code or app.get("page_link")


@pytest.mark.parametrize("page", ["overview", "series", "compare"])
def test_a_page_without_measurements_says_that_recordings_are_on_their_way(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """Who opened the page in the first minute of `tilewatch up` read that an import is the visitor's work."""
    with new_database() as url:
        if page == "overview":
            with session.session(url) as opened_session:
                one_commit.submit(opened_session)
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = opened(AppTest.from_file(str(APP), default_timeout=60), page)
        assert "`tilewatch up` itself imports the recordings that came with it" in app.info[0].value


@pytest.mark.parametrize("page", ["overview", "inbox"])
def test_where_nothing_is_measured_no_page_says_that_nothing_needs_a_person(empty_app: AppTest, page: str) -> None:
    shown = words(opened(empty_app, page))
    assert "Nothing is measured yet." in shown
    assert "Nothing needs a person" not in shown


@pytest.mark.parametrize("page", PAGES)
def test_a_database_that_is_down_is_one_sentence_without_its_password(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", "postgresql://tilewatch:hunter2@127.0.0.1:1/tilewatch")
    app = opened(AppTest.from_file(str(APP), default_timeout=60), page)
    assert len(app.error) == 1
    assert "127.0.0.1:1/tilewatch does not answer" in app.error[0].value
    assert "hunter2" not in app.error[0].value


def test_a_database_without_tables_is_told_to_be_migrated(empty_database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with empty_database() as url:
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = opened(AppTest.from_file(str(APP), default_timeout=60), "overview")
    assert "tilewatch migrate" in app.error[0].value


def test_without_any_setting_the_page_says_how_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = opened(AppTest.from_file(str(APP), default_timeout=60), "overview")
    assert app.error[0].value.startswith("No database is configured. Start Tilewatch with `make up`")


def test_what_up_wrote_down_in_its_home_is_enough(
    filled_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connection.json").write_text(json.dumps({"database_url": filled_url, "broker_url": "redis://"}))
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    app = opened(AppTest.from_file(str(APP), default_timeout=60), "overview")
    assert not app.error
    assert overview_cells(app)


def test_a_counter_is_drawn_over_the_commits(filled_app: AppTest) -> None:
    filled_app.query_params["gpu"], filled_app.query_params["show"] = "h200", "Counter: L2 hits, %"
    app = opened(filled_app, "series")
    assert not app.exception
    assert figure(app)["layout"]["yaxis"]["title"]["text"] == "L2 hits, %"
    assert "gemm_fp8" in {trace["name"] for trace in figure(app)["data"]}
    assert "deepgemm" not in {trace["name"] for trace in figure(app)["data"]}, "a baseline has no counters"


def test_a_browser_may_draw_the_chart_of_a_series_before_it_gets_the_sweep(
    filled_app: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "runtime", SimpleNamespace(exists=lambda: True))
    monkeypatch.setattr(plots, "time", SimpleNamespace(sleep=lambda _: st.stop()))
    app = opened(filled_app, "series")
    assert app.get("plotly_chart")
    assert "Sweep" not in [each.label for each in app.selectbox]
    app.run()
    assert "Sweep" in [each.label for each in app.selectbox], "only the first run of a session waits"


def test_the_slider_of_commits_names_them_as_the_axis_does(filled_app: AppTest) -> None:
    filled_app.query_params["commits"] = ["5e6f7a8b00", "newest"]
    app = opened(filled_app, "series")
    labels = [unescape(label) for label in figure(app)["layout"]["xaxis"]["ticktext"]]
    assert app.select_slider(key="commits").options[-1 - len(labels) : -1] == labels, "of the newest commits"
    assert app.select_slider(key="commits").value == ("5e6f7a8b00", "newest"), "as in the address"


@pytest.mark.parametrize("page", PAGES)
def test_no_list_and_no_axis_names_a_commit_by_its_hash_alone(filled_app: AppTest, page: str) -> None:
    app = opened(filled_app, page)
    layouts = [json.loads(each.proto.spec)["layout"] for each in app.get("plotly_chart")]  # type: ignore[attr-defined]
    axes = [layout[axis] for layout in layouts for axis in layout if axis.startswith(("xaxis", "yaxis"))]
    labels = [text for axis in axes for text in axis.get("ticktext") or ()]
    options = [option for each in (*app.selectbox, *app.select_slider) for option in each.options]
    assert [words for words in (*labels, *options) if re.fullmatch("[0-9a-f]{10}", str(words))] == []
