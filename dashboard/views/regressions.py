"""Lists the confirmed changes and the score of the alerts. `?regression=ID` shows one change."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import judge_score, regression
from tilewatch.dashboard.text import day
from tilewatch.dashboard.widgets import address, badges, filters, page_head, repository, tables
from tilewatch.db.models import OPEN_REGRESSION
from tilewatch.db.page_reads.regressions import describe_origin
from tilewatch.db.repository_names import is_example
from tilewatch.text import change_text, count_text, plain, short_sha, write_uncounted

WAITING, ALL = "open", "all"
STATES = (WAITING, "new", "acknowledged", "expected", "resolved", "reopened", ALL)
GROUPS = {"cause": "category", "kernel": "kernel", "owner": "owner", "state": "state"}

ABOUT = (
    "Confirmed changes. Each was replayed: the old and the new machine code were timed side by side on one GPU "
    "before anybody was notified."
)


def page(url: str) -> None:
    page_head.show("Regressions", ABOUT)
    number = st.query_params.get("regression", "")
    if number:
        _one(url, number)
        return
    found = reads.regressions(url)
    if found.empty:
        st.info(
            "No regression or improvement was opened here yet. Tilewatch opens one when a replay of the old "
            "and the new cubin confirms what the trend shows."
        )
        st.page_link("views/series.py", label="To the series")
        return
    scope, repositories = "all repositories", sorted(set(found["repository"]))
    if len(repositories) > 1:
        picked = repository.pick_from([ALL, *repositories])
        if picked != ALL:
            scope, found = plain(picked), found[found["repository"] == picked]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):  # takes two lines in a narrow window
        state = filters.choose("State", STATES, "state")
        group = filters.choose("Group by", list(GROUPS), "group")
        improvements = filters.toggle("Improvements", "improvements")
    shown = found[found["direction"] == ("improvement" if improvements else "regression")]
    if state == WAITING:
        shown = shown[shown["state"].isin(OPEN_REGRESSION)]
    elif state != ALL:
        shown = shown[shown["state"] == state]
    _list(shown, GROUPS[group], "improvement" if improvements else "regression", scope)
    judge_score.show(url)


def _list(shown: pd.DataFrame, group: str, word: str, scope: str) -> None:
    counted = int(shown["counted"].sum())
    st.markdown(f"#### {count_text(counted, word)} of {scope}, worst first within each {group}")
    examples = int(shown["repository"].map(is_example).sum())
    st.caption(write_uncounted(examples, len(shown) - counted - examples))
    if shown.empty:
        st.success(f"No {word} matches these choices.")
        return
    shown = shown.assign(worst=shown["size"].abs(), owner=shown["owner"].fillna("nobody"))
    shown = shown.sort_values([group, "worst"], ascending=[True, False])
    table = pd.DataFrame([_row(row, group) for row in shown.to_dict("records")])
    if shown["repository"].nunique() == 1 and not (shown["recorded"] | shown["simulated"]).any():
        table = table.drop(columns="repository")
    picked = tables.pick_row(table.style.map(badges.word_colour, subset="state"), shown, "regressions")
    st.caption("Select a row to open it. Time: how much its worst series changed, with the 95 % interval.")
    if picked is not None:
        address.open_page("views/regressions.py", {"regression": picked["id"]})


def _row(row: dict[object, object], group: str) -> dict[str, object]:
    cells = {  # a phone only shows the first four
        "#": row["id"],
        "kernel": row["kernel"],
        "time": f"{change_text(row['size'])} ({change_text(row['low'])} to {change_text(row['high'])})",  # type: ignore[arg-type]
        "state": row["state"],
        "cause": row["cause"],
        "category": str(row["category"]).replace("_", " "),
        "series": row["series"],
        "GPUs": ", ".join(row["gpu_models"]),  # type: ignore[arg-type]
        "first bad commit": f"{short_sha(str(row['bad_sha']))} {row['bad_subject']}",
        "owner": row["owner"],
        "opened": day(row["opened_at"]),  # type: ignore[arg-type]
        "repository": f"{row['repository']}{describe_origin(row)}",
    }
    return {group: cells.pop(group), **cells}


def _one(url: str, number: str) -> None:
    regression_id = address.read_number(number)
    chosen = None if regression_id is None else reads.regression(url, regression_id)
    if chosen is None:
        st.warning(
            f"There is no regression '{plain(number)}' in this database. The link may belong to another Tilewatch."
        )
        st.page_link("views/regressions.py", label="To all regressions")
        return
    with st.container(key="back"):  # page.css reserves its height
        st.page_link("views/regressions.py", label="All regressions")
    regression.show(url, chosen)


page(reads.database_url())
