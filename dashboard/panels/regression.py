"""Shows one regression: its series, commits and events, and buttons that change its state."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.charts import marks, trend
from tilewatch.dashboard.frames import evidence, reads
from tilewatch.dashboard.frames.metrics import find_drawable
from tilewatch.dashboard.panels import run_action, toolchains
from tilewatch.dashboard.panels.series import code_diff, run_beside
from tilewatch.dashboard.text import moment
from tilewatch.dashboard.widgets import badges, plots, tables
from tilewatch.db.lifecycle import actions, regressions
from tilewatch.db.page_reads.regressions import describe_origin
from tilewatch.text import change_text, count_text, plain, short_sha, shorten, write_change

BUTTONS = {
    "acknowledge": ("Acknowledge", "Somebody works on it"),
    "expect": ("Mark as expected", "Its new level is right; later nights are compared with that"),
    "resolve": ("Resolve", "It is fixed, or needs no fix"),
    "reopen": ("Reopen", "It is back, or was closed too early"),
}


def show(url: str, found: pd.Series) -> None:
    _headline(found)
    run_action.show_outcome()
    series = reads.regression_series(url, int(found["id"]))
    left, right = st.container(key="chart-and-run").columns([3, 2], gap="medium")
    with left:
        picture = st.container()  # above the table whose selected row it shows
        chosen = _series(series)
        measured = None if chosen is None else reads.evidence(url, int(chosen["run_id"]))
        if chosen is not None:
            with picture:
                _show_step(url, found, chosen)
            _show_replays(measured)
    with right:
        _explain(url, found)
        _act(url, found)
        _show_commits(found)
        if measured is not None:
            run_beside.show_change(measured)
            if measured.diff_to_before is not None:
                code_diff.show_changes(measured.diff_to_before, code_diff.BEFORE)
            run_beside.show_repeat(measured)
    _events(reads.events(url, int(found["id"])))


def _act(url: str, found: pd.Series) -> None:
    who = run_action.find_actor()
    if who is None:
        return
    _state(url, found, who)
    with st.expander("Owner, note, a mark, more runs", key="more"):
        _texts(url, found, who)
        _mark(url, found, who)
        _more_runs(url, found, who)


def _headline(found: pd.Series) -> None:
    # Improvements need no alarm in any state.
    colour = badges.WELL if found["direction"] == "improvement" else badges.REGRESSIONS[found["state"]]
    size = f"{write_change(found['size'])} ({change_text(found['low'])} to {change_text(found['high'])})"
    name = plain(shorten(found["kernel"], 40))  # the size fits on the same two lines
    with st.container(key="two-lines-regression"):
        st.markdown(f"#### :{colour}-badge[{found['state']}] #{found['id']} {name}: {size}")
        st.text(found["cause"])


def _explain(url: str, found: pd.Series) -> None:
    for sentence in found["explanation"]:
        st.caption(plain(sentence))
    toolchains.show_link(url, found["cause"])
    facts = [
        f"{found['category'].replace('_', ' ')}, opened {moment(found['opened_at'])}",
        f"of {found['repository']}{describe_origin(found)}",
        f"owner {found['owner']}" if found["owner"] else "no owner",
        f"marked right {found['right']} and wrong {found['wrong']} times" if found["right"] + found["wrong"] else "",
    ]
    st.caption(plain(", ".join(filter(None, facts))))
    if found["note"]:
        st.text(found["note"])
    if found["link"]:
        st.link_button(f"Work on it: {plain(found['link'])}", found["link"], type="tertiary")


def _series(series: pd.DataFrame) -> pd.Series | None:
    """Shows a table of the changed series. Returns the selected row, by default the worst; None without rows."""
    st.subheader(f"{count_text(len(series), 'series')} changed", anchor=False)
    row = tables.pick_row(tabulate_series(series.to_dict("records")), series, "series")
    row = row if row is not None else next((worst for _, worst in series.iterrows()), None)
    if row is not None:
        st.page_link("views/series.py", label="Open its run", query_params={"run": str(row["run_id"])})
    return row


def tabulate_series(rows: Iterable[Mapping[Any, Any]]) -> pd.DataFrame:
    """Returns a table of the series that a regression changed."""
    return pd.DataFrame(
        [
            {
                "series": f"{row['kernel']} {row['problem']}",
                "GPU": row["gpu_name"],
                "time": f"{change_text(row['size'])} ({change_text(row['low'])} to {change_text(row['high'])})",
                "recovered": "" if pd.isna(row["recovered_at"]) else moment(row["recovered_at"]),
            }
            for row in rows
        ]
    )


def _events(events: pd.DataFrame) -> None:
    st.subheader("What happened to it", anchor=False)
    st.markdown("\n".join(f"- {_event_text(row)}" for row in events.to_dict("records")))


def _event_text(row: Mapping[Any, Any]) -> str:
    """Returns an event as one line of Markdown."""
    state = row["to_state"] if row["from_state"] == row["to_state"] else f"→ {row['to_state']}"
    note = f": {plain(row['note'])}" if row["note"] else ""
    return f"{moment(row['at'])}, {plain(row['who'])}, {row['action']}, {state}{note}"


def _state(url: str, found: pd.Series, who: str) -> None:
    st.subheader("Triage", anchor=False)
    # The field's key contains the state, so that a reason is not stored again with the next change.
    why = st.text_input("Why (kept with the change)", key=f"why-{found['state']}")
    with st.container(horizontal=True):
        for action in regressions.list_possible_actions(found["state"]):
            label, tip = BUTTONS[action]
            if st.button(label, help=tip, key=action):
                change = partial(
                    regressions.triage, regression_id=int(found["id"]), action=action, who=who, note=why or None
                )
                run_action.run(url, change, f"{label}: done")


def _texts(url: str, found: pd.Series, who: str) -> None:
    """Shows a form for the owner, note and link of a regression, and stores changed texts."""
    with st.form("words", border=True):
        owner = st.text_input("Owner", found["owner"] or "")
        note = st.text_area("Note", found["note"] or "", height=80)
        link = st.text_input("Link to the work on it", found["link"] or "")
        saved = st.form_submit_button("Save")
    if saved:
        wanted: dict[regressions.Field, str] = {"owner": owner, "note": note, "link": link}
        changed = {name: text for name, text in wanted.items() if text.strip() != (found[name] or "")}
        if changed:
            run_action.run(url, partial(_write, found=found, who=who, changed=changed), f"Saved {', '.join(changed)}")


def _write(opened: Session, *, found: pd.Series, who: str, changed: dict[regressions.Field, str]) -> None:
    for name, text in changed.items():
        regressions.edit(opened, int(found["id"]), who, name, text)


def _mark(url: str, found: pd.Series, who: str) -> None:
    st.caption("Was Tilewatch right about this change? The score of the alerts is counted from these marks.")
    with st.container(horizontal=True):
        for right, label in ((True, "It was right"), (False, "It was wrong")):
            if st.button(label, key=label):
                mark = partial(regressions.mark, who=who, right=right, regression_id=int(found["id"]))
                run_action.run(url, mark, f"Marked as {'right' if right else 'wrong'}")


def _more_runs(url: str, found: pd.Series, who: str) -> None:
    st.caption("A worker queues these within a minute.")
    number, commits = int(found["id"]), int(found["commits_in_range"])
    why_not = actions.why_no_bisection(found)
    tip = "Replays commits on the regression's worst series. Each replay halves the range."
    with st.container(horizontal=True):
        if st.button("Measure again", key="rerun", help="Runs its series once more at the first bad commit."):
            ask = partial(actions.measure_again, regression_id=number, who=who)
            run_action.run(url, ask, "Asked for new runs")
        if st.button("Bisect", key="bisect", disabled=why_not is not None, help=f"It {why_not}." if why_not else tip):
            ask = partial(actions.bisect, regression_id=number, who=who)
            run_action.run(url, ask, f"Asked for a bisection of {count_text(commits, 'commit')}")


COMMITS_BEFORE, COMMITS_AFTER = 25, 15
"""The numbers of commits in the picture before and after the first bad commit. More would make the step too narrow."""


def _show_step(url: str, found: pd.Series, row: pd.Series) -> None:
    points = reads.points(url, found["repository"], row["kernel"], row["problem"], row["gpu_model"], static_facts=False)
    points = around(points, found["bad_sha"])
    metric = find_drawable(points)
    with st.container(key="two-lines-step"):
        st.markdown(plain(f"{row['kernel']} {row['problem']} on {row['gpu_name']}"))
    if metric is None:
        st.caption("No point of this series is in this database.")
    else:
        levels = reads.levels(url, found["repository"], row["kernel"], row["problem"], row["gpu_model"])
        lines = [*marks.level_changes(levels), *marks.toolchain_changes(points)]
        figure = go.Figure(trend.trend(points, metric, marks=lines))
        plots.show(figure, "step", f"{metric.label} around the change")


def _show_replays(measured: reads.Evidence | None) -> None:
    """Shows the replays of a run, with a figure for each replay that ran."""
    for i, replay in enumerate(measured.replays if measured else ()):
        st.text(evidence.replay_sentence(replay))
        if replay.failure is None:
            figure = evidence_charts.replay(replay.good_us, replay.bad_us)
            plots.show(figure, f"replay-{i}", "Times of the old and the new cubin by launch")


def around(points: pd.DataFrame, sha: str) -> pd.DataFrame:
    """Returns the points of `sha` and of neighbouring commits; the newest points if `sha` has no point."""
    commits = list(dict.fromkeys(points["sha"]))
    at = commits.index(sha) if sha in commits else len(commits)
    wanted = commits[max(at - COMMITS_BEFORE, 0) : at + COMMITS_AFTER]
    return points[points["sha"].isin(wanted)].reset_index(drop=True)


def _show_commits(found: pd.Series) -> None:
    """Shows which commits may have caused the change, and how to see their diff."""
    one = found["commits_in_range"] <= 1
    st.subheader("The commit" if one else f"{count_text(found['commits_in_range'], 'commit')} in range", anchor=False)
    st.text(
        f"{short_sha(found['bad_sha'])} {found['bad_subject']}"
        + ("" if one else f"\nand all after {short_sha(found['good_sha'])} {found['good_subject']}")
    )
    run_beside.show_diff(found["repository"], None if one else found["good_sha"], found["bad_sha"])
