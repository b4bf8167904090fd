"""Shows a report on whether a newer toolchain is safe, overall and per operator."""

import json
import shlex
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from tilewatch.compilers import CompilerChange
from tilewatch.configs import config_text
from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.charts import toolchains
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.text import day
from tilewatch.dashboard.widgets import badges, filters, plots, tables
from tilewatch.db.page_reads.toolchain_reports import LadderRow, OperatorRow, ReportRow, ReportStory, TimeChange
from tilewatch.text import change_text, plain, plain_code, without_links

ALL, MOST_URGENT = "all", "the most urgent"
LADDERS = (
    "In points of 1 % of the base's time, with 95 % intervals. Dependencies are swapped one at a time, in two orders. "
    "A share is the mean of both, and the shares add up to the loss. A baseline that became faster is a loss too."
)
ORDER = ("not safe", "safe if re-tuned", "unknown", "safe")
"""The verdicts on a newer toolchain, the most urgent first."""


def show(url: str) -> None:
    rows = reads.toolchain_reports(url)
    if not rows:
        st.info("No toolchains were compared yet. A comparison says whether a newer compiler is safe to take.")
        st.code("tilewatch toolchain compare installed next\ntilewatch import installed..next.json")
        return
    row = _pick(rows)
    found = reads.toolchain_report(url, row.id)
    if row.failure is not None:
        st.error(plain(f"The comparison {row.title} failed: {row.failure}"))
    elif row.is_open:
        st.info(f"{plain(row.title)} is being compared. Load the page again for what is new.")
    if found is None:
        return
    _answer(found)
    shown = _filter(found.operators)
    if not shown:
        st.caption("No kernel and problem has this verdict here.")
        return
    if any(row.frozen is not None for row in shown):
        plots.show(toolchains.changes(shown), "changes", f"Change of the time of each operator, {found.report.title}")
        st.caption(toolchains.LEGEND)
    _name_compilers(found)
    _table(shown, found.report.toolchains[1:])
    _ladders([row for row in found.ladders if row.gpu_model == shown[0].gpu_model])
    _launches(found, shown)
    _keep(found)


def show_link(url: str, cause: str) -> None:
    """Shows links to toolchain reports if the cause of a regression is a compiler."""
    change = CompilerChange.read(cause)
    if change is None:
        return
    reports = reads.toolchain_reports_of(url, change.without_limits)
    for row in reports:
        about = {"report": f"#{row.id}"}
        label = f"Report on all operators: {plain(row.title)}, {row.state}"
        st.page_link("views/toolchains.py", label=label, query_params=about)
    if not reports:
        st.caption("Both can be compared over all operators, as soon as a compile worker has the earlier one:")
        name = change.toolchain_before or "before"
        packages = [f"{package}=={version}" for package, version in change.versions_before.items()]
        add = shlex.join(["tilewatch", "toolchain", "add", name, *packages])
        st.code(f"{add}\n{shlex.join(['tilewatch', 'submit', 'toolchain', name, 'installed'])}")


def _pick(rows: Sequence[ReportRow]) -> ReportRow:
    """Shows a select box and returns the chosen report, by default the newest with the most urgent verdict."""
    # Two toolchains may be compared twice, so a name begins with the number of the report.
    named = {f"#{row.id} {row.title}, {day(row.made_at)}": row for row in rows}
    # A safe compiler must not hide an unsafe one.
    most_urgent = min(rows, key=lambda row: ORDER.index(row.safety or "unknown"))
    return named.get(filters.pick("Report", [MOST_URGENT, *named], "report"), most_urgent)


def _answer(found: ReportStory) -> None:
    safety = found.report.safety or "unknown"
    with st.container(key="answer"):
        lines = "\n\n".join(map(plain, found.sentence.splitlines()))
        st.markdown(f":{badges.SAFETIES[safety]}-badge[{safety}] {lines}")


def _name_compilers(found: ReportStory) -> None:
    where = ", ".join(found.gpus) or "no GPU: the compilers alone"
    named = zip(found.report.toolchains, found.compilers, strict=True)
    st.caption(plain(f"On {where}. {' '.join(f'{name}: {compiler}.' for name, compiler in named)}"))


def _filter(operators: Sequence[OperatorRow]) -> list[OperatorRow]:
    """Shows the choices of GPU model and verdict, and returns the matching operators."""
    places = list(dict.fromkeys(_place(row) for row in operators))
    place = filters.choose("On", places, "on") if len(places) > 1 else (places or [ALL])[0]
    here = [row for row in operators if _place(row) == place]
    picked = filters.choose(
        "Verdict", [ALL, *(word for word in ORDER if word in {row.safety for row in here})], "safety"
    )
    matching = {(row.kernel, row.problem) for row in here if picked in (ALL, row.safety)}
    return order_operators([row for row in here if (row.kernel, row.problem) in matching])


def order_operators(rows: Sequence[OperatorRow]) -> list[OperatorRow]:
    """Returns the operators sorted by verdict and then by loss of speed, the worst first."""
    return sorted(rows, key=lambda row: (ORDER.index(row.safety), -_change(row.frozen)))


def _table(shown: Sequence[OperatorRow], heads: Sequence[str]) -> None:
    table = tabulate_operators(shown, heads)
    verdicts = ["verdict"] if len(heads) == 1 else list(heads)
    style = table.style.map(lambda cell: badges.word_colour(cell.partition(":")[0]), subset=verdicts)
    tables.show(style, key="operators")


def tabulate_operators(shown: Sequence[OperatorRow], heads: Sequence[str]) -> pd.DataFrame:
    """Returns a table with one row per operator, without empty columns."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in shown:
        named = {"kernel": row.kernel, "problem": row.problem}
        same, retuned = _write(row.frozen) or row.static, _write(row.retuned)
        if len(heads) > 1:
            cells = rows.setdefault((row.kernel, row.problem), {**named, **dict.fromkeys(heads, "-")})
            cells[row.head] = f"{row.safety}: {same}{f'; re-tuned {retuned}' if retuned else ''}"
            continue
        rows[row.kernel, row.problem] = {
            "verdict": row.safety,
            **named,
            "same config": same,
            "re-tuned": retuned,
            "what moved in the code": ", ".join(row.moved),
            "new best config": "" if row.moved_to is None else config_text(row.moved_to),
        }
    table = pd.DataFrame(list(rows.values()))
    return table.loc[:, (table != "").any()]  # nothing may have been timed or re-tuned


def _ladders(rows: Sequence[LadderRow]) -> None:
    """Shows, for each slower operator, how much of the slowdown each dependency caused."""
    if rows:
        st.subheader("What took it", anchor=False)
        tables.show(tabulate_ladders(rows), key="ladders")
        st.caption(LADDERS)


def tabulate_ladders(rows: Sequence[LadderRow]) -> pd.DataFrame:
    """Returns a table with each dependency's part of an operator's slowdown, in % of the old time."""
    table = pd.DataFrame(
        [
            {
                "kernel": row.kernel,
                "problem": row.problem,
                "toolchain": row.head,
                "loss": f"{row.loss:+.1f}",
                **{
                    name: f"{points:+.1f} ({low:.1f} to {high:.1f})" for name, (points, low, high) in row.shares.items()
                },
                "caused by": ", ".join(row.blamed),
            }
            for row in rows
        ]
    ).fillna("")
    return table[[*table.columns.drop("caused by"), "caused by"]]


def _launches(found: ReportStory, shown: Sequence[OperatorRow]) -> None:
    """Shows the launches of one operator, and the command that compares its machine code."""
    times = {(each.kernel, each.problem, each.gpu_model, each.head): each for each in found.frozen}
    timed = [row for row in shown if _key(row) in times]
    if not timed:
        return
    st.subheader("Evidence: both cubins in turns, in fresh processes", anchor=False)
    names = toolchains.name_operators(timed)
    row = timed[names.index(filters.pick("Kernel and problem", names, "operator"))]
    launches = times[_key(row)]
    left, right = st.columns([3, 2], gap="medium")
    with left:
        figure = evidence_charts.replay(launches.base_us, launches.head_us)
        plots.show(figure, "launches", "Times of the old and the new cubin by launch")
    with right:
        st.text(row.reason)
        st.markdown(f"config {plain_code(config_text(row.config))}")
        if row.moved:
            st.caption("  \n".join(map(plain, row.moved)))
    st.caption("To see what differs in its machine code, with the report file from below:")
    file = f"{_file_name(found.report)}.json"
    head = ["--head", row.head] if len(found.compilers) > 2 else []
    words = ["tilewatch", "toolchain", "reproduce", file, row.kernel, row.problem, "--arch", row.arch, *head]
    st.code(shlex.join([*words, "--out", "case"]), language="bash", wrap_lines=True)


def _keep(found: ReportStory) -> None:
    name = _file_name(found.report)
    with st.container(horizontal=True):
        st.download_button("The report as Markdown", found.markdown, f"{name}.md", "text/markdown", on_click="ignore")
        contents = json.dumps(found.contents)
        st.download_button("The report file", contents, f"{name}.json", "application/json", on_click="ignore")
    with tables.open_expander("The whole report", "whole") as is_open:
        if is_open:
            st.markdown(without_links(found.markdown))


def _file_name(report: ReportRow) -> str:
    return "..".join(report.toolchains)


def _key(row: OperatorRow) -> tuple[str, str, str, str]:
    return row.kernel, row.problem, row.gpu_model or "", row.head


def _place(row: OperatorRow) -> str:
    return row.gpu_model or f"{row.arch}, compiled only"


def _change(change: TimeChange | None) -> float:
    return 0.0 if change is None else change.change


def _write(change: TimeChange | None) -> str:
    """Returns a change in words; an empty text for None."""
    if change is None:
        return ""
    low, high = ("?" if end is None else f"{100 * end:.1f}" for end in (change.low, change.high))
    return f"{change_text(change.change)} ({low} to {high}), {change.kind}"
