"""Lists the checks, which compare two commits before a merge. `?check=ID` shows one check."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import check
from tilewatch.dashboard.text import moment, span_text
from tilewatch.dashboard.widgets import address, badges, page_head, tables
from tilewatch.db.page_reads.checks import CheckRow
from tilewatch.text import plain, short_sha

ABOUT = "Two commits that were compared before a merge, on the GPUs of this Tilewatch. They belong to no trend."


def page(url: str) -> None:
    page_head.show("Checks", ABOUT)
    number = st.query_params.get("check", "")
    if number:
        _one(url, number)
        return
    rows = reads.checks(url)
    if not rows:
        st.info(
            "No check was submitted yet. A check says before a merge whether a branch is slower, on the fleet's GPUs."
        )
        st.code("tilewatch submit check main..HEAD --wait")
        return
    st.caption("The newest checks. Select one to see its evidence.")
    table = pd.DataFrame([_row(row) for row in rows])
    if table["repository"].nunique() == 1:
        table = table.drop(columns="repository")
    picked = tables.pick_row(
        table.style.map(badges.word_colour, subset="state"), pd.DataFrame({"id": [row.id for row in rows]}), "checks"
    )
    if picked is not None:
        address.open_page("views/checks.py", {"check": picked["id"]})


def _row(row: CheckRow) -> dict[str, object]:
    return {
        "#": row.id,
        "state": row.state,
        "subject": row.head_subject,
        "commits": f"{short_sha(row.base_sha)}..{short_sha(row.head_sha)}",
        "GPU": row.gpu_name,
        "kernels": row.kernel or "all",
        "answered": f"{row.answered} of {row.operators}" if row.operators else "",
        "GPU time": span_text(row.gpu_s),
        "repository": row.repository,
        "by": row.who,
        "submitted": moment(row.requested_at),
    }


def _one(url: str, number: str) -> None:
    check_id = address.read_number(number)
    found = None if check_id is None else reads.check(url, check_id)
    if found is None:
        st.warning(f"There is no check '{plain(number)}' in this database. The link may belong to another Tilewatch.")
        st.page_link("views/checks.py", label="To all checks")
        return
    with st.container(key="back"):  # page.css reserves its height
        st.page_link("views/checks.py", label="All checks")
    is_open = found.check.exit_code is None
    st.fragment(check.show, run_every=reads.LIVE_EVERY_S if is_open else None)(url, found.check.id)


page(reads.database_url())
