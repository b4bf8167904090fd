"""One regression with everything to decide what becomes of it, and the buttons to say so."""

from functools import partial

import pandas as pd
import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import run_action
from tilewatch.dashboard.text import moment
from tilewatch.dashboard.widgets import badges, repository
from tilewatch.db.lifecycle import actions, regressions
from tilewatch.text import change_text, count_text, short_sha

BUTTONS = {
    "acknowledge": ("Acknowledge", "Somebody looks after it", regressions.acknowledge),
    "expect": ("Mark as expected", "It starts a new level that later nights are judged against", regressions.expect),
    "resolve": ("Resolve", "It is gone or dealt with", regressions.resolve),
    "reopen": ("Reopen", "It is back, or was closed too early", regressions.reopen),
}


def show(url: str, found: pd.Series) -> None:
    _headline(found)
    run_action.show_outcome()
    left, right = st.columns([3, 2], gap="medium")
    series = reads.regression_series(url, int(found["id"]))
    with left:
        _series(url, found, series)
        _life(reads.events(url, int(found["id"])))
    with right:
        who = run_action.find_actor()
        if who is None:
            return
        _state(url, found, who)
        _words(url, found, who)
        _mark(url, found, who)
        _again(url, found, series, who)


def _headline(found: pd.Series) -> None:
    colour = badges.REGRESSIONS[found["state"]]
    size = f"{change_text(found['size'])} time ({change_text(found['low'])} to {change_text(found['high'])})"
    st.markdown(f"#### #{found['id']} {found['kernel']}: {size} :{colour}-badge[{found['state']}]")
    st.text(found["cause"])
    for sentence in found["explanation"]:
        st.caption(sentence)
    st.text(
        f"after {short_sha(found['good_sha'])} {found['good_subject']}\n"
        f"up to {short_sha(found['bad_sha'])} {found['bad_subject']}"
        + (f" ({count_text(found['commits_in_range'], 'commit')} in range)" if found["commits_in_range"] > 1 else "")
    )
    told = [
        f"{found['category']}, opened {moment(found['opened_at'])}",
        f"of {found['repository']}" + (", recorded elsewhere" if found["recorded"] else ""),
        f"owner {found['owner']}" if found["owner"] else "nobody's yet",
        f"called right {found['right']} and wrong {found['wrong']} times" if found["right"] + found["wrong"] else "",
    ]
    st.caption(", ".join(filter(None, told)))
    if found["note"]:
        st.text(found["note"])
    if found["link"]:
        st.text(f"Work on it: {found['link']}")


def _series(url: str, found: pd.Series, series: pd.DataFrame) -> None:
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
    picked = st.dataframe(table, hide_index=True, on_select="rerun", selection_mode="single-row", key="series")
    if picked.selection.rows and picked.selection.rows[0] < len(series):
        row = series.iloc[picked.selection.rows[0]]
        about = repository.series_parameters(url, {**row, "repository": found["repository"]})
        with st.container(horizontal=True):
            st.page_link("views/evidence.py", label="Its evidence", query_params={"run": str(row["run_id"])})
            st.page_link("views/trends.py", label="Its trend", query_params=about)


def _life(events: pd.DataFrame) -> None:
    st.subheader("What happened to it", anchor=False)
    rows = [
        {
            "when": moment(row["at"]),
            "who": row["who"],
            "did": row["action"],
            "state": row["to_state"] if row["from_state"] == row["to_state"] else f"→ {row['to_state']}",
            "note": row["note"] or "",
        }
        for row in events.to_dict("records")
    ]
    st.dataframe(pd.DataFrame(rows, columns=["when", "who", "did", "state", "note"]), hide_index=True, key="events")


def _state(url: str, found: pd.Series, who: str) -> None:
    st.subheader("Triage", anchor=False)
    why = st.text_input("Why (kept with the change)", key="why")
    with st.container(horizontal=True):
        for action in regressions.list_possible_actions(found["state"]):
            label, told, act = BUTTONS[action]
            if st.button(label, help=told, key=action):
                made = partial(act, regression_id=int(found["id"]), who=who, note=why or None)
                run_action.run(url, made, f"{label}: done")


def _words(url: str, found: pd.Series, who: str) -> None:
    """Owner, note and link in one form."""
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
    regression_id = int(found["id"])
    if "owner" in changed:
        regressions.assign(opened, regression_id, who, changed["owner"])
    if "note" in changed:
        regressions.note(opened, regression_id, who, changed["note"])
    if "link" in changed:
        regressions.link(opened, regression_id, who, changed["link"])


def _mark(url: str, found: pd.Series, who: str) -> None:
    st.caption("Was Tilewatch right to raise it? Marks are what the scoreboard counts.")
    with st.container(horizontal=True):
        for right, label in ((True, "It was right"), (False, "It was wrong")):
            if st.button(label, key=label):
                made = partial(regressions.mark, who=who, right=right, regression_id=int(found["id"]))
                run_action.run(url, made, f"Marked as {'right' if right else 'wrong'}")


def _again(url: str, found: pd.Series, series: pd.DataFrame, who: str) -> None:
    """Measure it again, or the commits in between: asked here, carried out by a worker within a minute."""
    st.caption("Asked here, a worker queues it within a minute.")
    gpus = sorted(set(series["gpu_model"]))
    with st.container(horizontal=True):
        if st.button("Measure it again", key="rerun", disabled=series.empty):
            run_action.run(url, partial(_measure_again, found=found, series=series, who=who), "Asked for a re-run")
        narrow = int(found["commits_in_range"]) <= 1
        told = "There is no commit in between." if narrow else "Test every commit in the range, which narrows it down."
        if st.button("Bisect", key="bisect", disabled=narrow or series.empty, help=told):
            revisions = f"{found['good_sha']}..{found['bad_sha']}"
            made = partial(_ask_range, who=who, revisions=revisions, gpus=gpus)
            run_action.run(url, made, f"Asked to test {count_text(int(found['commits_in_range']), 'commit')}")


def _measure_again(opened: Session, *, found: pd.Series, series: pd.DataFrame, who: str) -> None:
    for (kernel, problem), rows in series.groupby(["kernel", "problem"]):
        actions.ask_sweep(opened, who, kernel, problem, commit=found["bad_sha"], gpus=sorted(set(rows["gpu_model"])))


def _ask_range(opened: Session, *, who: str, revisions: str, gpus: list[str]) -> None:
    actions.ask_backfill(opened, who, revisions, gpus=gpus)
