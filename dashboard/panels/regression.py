"""Shows one regression: its series with a picture, its commits, its events, and the buttons that change its state."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import regression_picture, run_action, toolchains
from tilewatch.dashboard.panels.series import code_diff, run_beside
from tilewatch.dashboard.text import moment
from tilewatch.dashboard.widgets import badges, tables
from tilewatch.db.lifecycle import actions, regressions
from tilewatch.db.page_reads.regressions import describe_origin
from tilewatch.text import change_text, count_text, plain, shorten, write_change

BUTTONS = {
    "acknowledge": ("Acknowledge", "Somebody works on it", regressions.acknowledge),
    "expect": ("Mark as expected", "Its new level is right; later nights are compared with that", regressions.expect),
    "resolve": ("Resolve", "It is fixed, or needs no fix", regressions.resolve),
    "reopen": ("Reopen", "It is back, or was closed too early", regressions.reopen),
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
                regression_picture.show_step(url, found, chosen)
            regression_picture.show_replays(measured)
    with right:
        _explain(url, found)
        _act(url, found)
        regression_picture.show_commits(found)
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
    """Shows a table of the series that changed. Returns the selected row, else the worst; None if there are none."""
    st.subheader(f"{count_text(len(series), 'series')} changed", anchor=False)
    table = pd.DataFrame(
        [
            {
                "series": f"{row['kernel']} {row['problem']}",
                "GPU": row["gpu_name"],
                "time": f"{change_text(row['size'])} ({change_text(row['low'])} to {change_text(row['high'])})",
                "recovered": "" if pd.isna(row["recovered_at"]) else moment(row["recovered_at"]),
            }
            for row in series.to_dict("records")
        ]
    )
    row = tables.pick_row(table, series, "series")
    row = row if row is not None else next((worst for _, worst in series.iterrows()), None)
    if row is not None:
        st.page_link("views/series.py", label="Open its run", query_params={"run": str(row["run_id"])})
    return row


def _events(events: pd.DataFrame) -> None:
    st.subheader("What happened to it", anchor=False)
    st.markdown("\n".join(f"- {_event_text(row)}" for row in events.to_dict("records")))


def _event_text(row: Mapping[Any, Any]) -> str:
    """Returns an event as one line of Markdown. Unlike a table, such a line also shows the note in a narrow window."""
    state = row["to_state"] if row["from_state"] == row["to_state"] else f"→ {row['to_state']}"
    note = f": {plain(row['note'])}" if row["note"] else ""
    return f"{moment(row['at'])}, {plain(row['who'])}, {row['action']}, {state}{note}"


def _state(url: str, found: pd.Series, who: str) -> None:
    st.subheader("Triage", anchor=False)
    # The field's key contains the state, so that a reason is not stored again with the next change.
    why = st.text_input("Why (kept with the change)", key=f"why-{found['state']}")
    with st.container(horizontal=True):
        for action in regressions.list_possible_actions(found["state"]):
            label, tip, act = BUTTONS[action]
            if st.button(label, help=tip, key=action):
                change = partial(act, regression_id=int(found["id"]), who=who, note=why or None)
                run_action.run(url, change, f"{label}: done")


def _texts(url: str, found: pd.Series, who: str) -> None:
    """Shows a form to edit the owner, the note and the link of a regression."""
    with st.form("words", border=True):
        owner = st.text_input("Owner", found["owner"] or "")
        note = st.text_area("Note", found["note"] or "", height=80)
        link = st.text_input("Link to the work on it", found["link"] or "")
        saved = st.form_submit_button("Save")
    if saved:
        wanted = {"owner": owner, "note": note, "link": link}
        changed = {name: text for name, text in wanted.items() if text.strip() != (found[name] or "")}
        if changed:
            run_action.run(url, partial(_write, found=found, who=who, changed=changed), f"Saved {', '.join(changed)}")


def _write(opened: Session, *, found: pd.Series, who: str, changed: dict[str, str]) -> None:
    acts = {"owner": regressions.assign, "note": regressions.note, "link": regressions.link}
    for name, text in changed.items():
        acts[name](opened, int(found["id"]), who, text)


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
    tip = (
        "The range is one commit."
        if commits <= 1
        else "Replays commits of the range on its worst series, halving it each time."
    )
    with st.container(horizontal=True):
        if st.button("Measure again", key="rerun", help="Runs its series once more at the first bad commit."):
            ask = partial(actions.measure_again, regression_id=number, who=who)
            run_action.run(url, ask, "Asked for new runs")
        if st.button("Bisect", key="bisect", disabled=commits <= 1, help=tip):
            ask = partial(actions.bisect, regression_id=number, who=who)
            run_action.run(url, ask, f"Asked for a bisection of {count_text(commits, 'commit')}")
