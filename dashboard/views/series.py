"""Shows one series over the commits, and one run with its sweep and its raw times.

The address names the series, and a run (`run=5`) or a sweep (`commit=1a2b3c4d00`). The default is the newest run.
"""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads, series_choice
from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.frames.series_choice import COMMIT, RUN, SUBMISSION, Key
from tilewatch.dashboard.panels.series import (
    run_beside,
    run_details,
    series_chart,
    sweep_comparison,
    sweep_sizes,
    sweep_winner,
)
from tilewatch.dashboard.panels.series import sweep as sweep_panel
from tilewatch.dashboard.text import RECORDINGS_COME
from tilewatch.dashboard.widgets import address, filters, page_head, plots, repository
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.db.models import TOTAL
from tilewatch.text import count_text, plain, short_sha

THIS_RUN, WHAT_MOVED, OVER_SIZES, STEPS = "This run", "What moved", "Over the sizes", "Step by step"
SWEEP_PX = 420

ABOUT = (
    "One series over the commits, with its baselines: each point is the median of one run with its 95 % interval. The "
    "run beside the chart is the newest, or the one whose point was clicked. Below them is everything about it: the "
    "sweep whose fastest config it timed, and its samples, machine code and clocks."
)


def page(url: str) -> None:
    page_head.show("Series", ABOUT)
    everything = series_choice.join_series(reads.series(url), reads.spaces(url))
    if everything.empty:
        st.info(
            "No series is measured yet. A worker on a machine with an NVIDIA GPU measures what is submitted; without "
            f"one, import a recording. {RECORDINGS_COME} The static facts of a submission appear here too."
        )
        st.code("tilewatch submit nightly\ntilewatch import FILE")
        return
    asked = _find_asked(url)
    with st.container(key="filters"):
        own = _pick_series(url, everything)
        if own is None:
            return
        key = series_choice.read_key(own)
        metric = filters.pick_metric()
        points = reads.points(url, *key, static_facts=metric.static)
        with st.popover("More", width="stretch"):
            others = series_chart.pick_others(series_choice.list_keys(everything), key)
            along = series_chart.pick_order()
            span = filters.pick_span(points.drop_duplicates("sha"), "commits")
    page_head.mark_simulated(url, key[0])
    _require_drawn(asked, [key, *others.values()])
    run_id = asked.run.run_id if asked and RUN in st.query_params else _find_run(url, key, points)
    found = None
    if own["is_measured"]:
        left, right = st.container(key="chart-and-run").columns([3, 2], gap="medium")
        with left:
            series_chart.show(url, key, others, series_chart.ChartView(span, metric.key, along), run_id)
        with right:
            found = reads.evidence(url, run_id) if run_id is not None else None
            if found is not None:
                run_beside.show(url, found)
            else:
                st.caption("This sweep has no run: its configs were compiled, or wait.")
        plots.await_drawing()
    else:
        st.info("No GPU measured this series: it has static facts alone.")
    _below(url, key, found)
    if own["is_measured"]:
        series_chart.show_table(url, key, others, series_chart.ChartView(span, metric.key, along))


def _find_asked(url: str) -> Evidence | None:
    """Returns the run that the address names, or None. Adds the run's series to the address."""
    number = st.query_params.get(RUN)
    if number is None:
        return None
    run_id = address.read_number(number)
    found = None if run_id is None else reads.evidence(url, run_id)
    if found is None:
        raise filters.name_unknown("run", number)
    for name, value in repository.series_parameters(url, vars(found.run)).items():
        st.query_params.setdefault(name, value)
    return found


def _require_drawn(asked: Evidence | None, keys: Sequence[Key]) -> None:
    """Raises UnknownChoice if the chart does not show `asked`, unless the visitor has changed the series."""
    if asked is None or series_choice.is_drawn(series_choice.find_key(asked), keys):
        return
    if not address.was_picked_by_hand():
        about = f"{asked.run.kernel} {asked.run.problem} on {asked.run.gpu_name}"
        raise filters.UnknownChoice(
            f"Run {asked.run.run_id} is of {plain(about)}, which is not the series of this address."
        )
    # The visitor chose the series by hand.
    address.remove([RUN])


def _pick_series(url: str, everything: pd.DataFrame) -> pd.Series | None:
    """Shows the filters that name a series. Returns the row of the series; None if the repository has no series."""
    names = reads.repositories(url) or [everything["repository"].iloc[0]]  # the series may have been read later
    name = repository.pick_from(names) if len(names) > 1 else names[0]
    rows = everything[everything["repository"] == name]
    if rows.empty:
        st.info(f"No series of {plain(name)} is compiled or measured yet.")
        return None
    for label, column, parameter in (("Kernel", "kernel", "kernel"), ("Problem", "problem", "problem")):
        rows = rows[rows[column] == filters.pick(label, _order(rows, column), parameter)]
    gpus = _order(rows, "gpu_model")
    picked = filters.pick("GPU", gpus, "gpu", help=plain(", ".join(sorted(set(rows["gpu_name"])))))
    return rows[rows["gpu_model"] == picked].iloc[0]


def _order(rows: pd.DataFrame, column: str) -> list[str]:
    """Returns the distinct values of a column. Values of measured series come first."""
    measured = filters.main_first(set(rows.loc[rows["is_measured"].astype(bool), column]))
    return [*measured, *filters.main_first(set(rows[column]) - set(measured))]


def _find_run(url: str, key: Key, points: pd.DataFrame) -> int | None:
    """Returns the id of the newest run in the chosen sweep, else in the series; None without a run."""
    if COMMIT in st.query_params:
        sweeps = reads.sweeps(url, *key)
        named = series_choice.name_sweeps(sweeps)
        name = series_choice.find_name(named, st.query_params[COMMIT], st.query_params.get(SUBMISSION, ""))
        if name is not None:
            if SUBMISSION in st.query_params:  # an address from before 2026-11-28
                st.query_params[COMMIT] = name
            measured = reads.measurements(url, sweeps["id"].iloc[named[name]])
            return int(measured.iloc[0]["run_id"]) if len(measured) else None
    return series_choice.find_newest_run(points)


def _below(url: str, key: Key, found: Evidence | None) -> None:
    if found is not None and found.run.kernel == TOTAL:
        run_details.show(found)
        return
    sweeps = reads.sweeps(url, *(series_choice.find_key(found) if found else key))
    named = series_choice.name_sweeps(sweeps)
    of_run = (name for name, place in named.items() if found and sweeps["id"].iloc[place] == found.run.sweep_id)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        picked = filters.pick(
            "Sweep", list(named), COMMIT, next(of_run, None), instead_of=(RUN, SUBMISSION), width=SWEEP_PX
        )
        views = [sweep_sizes.THIS_SWEEP, *([THIS_RUN] if found else ()), WHAT_MOVED, OVER_SIZES, STEPS]
        view = filters.choose("Below the chart", views, "view")
    sweep = sweeps.iloc[named[picked]]
    with show_errors():
        if view == THIS_RUN and found is not None:
            run_details.show(found)
        elif view == WHAT_MOVED:
            sweep_comparison.show(url, sweeps, sweep)
        elif view == OVER_SIZES:
            sweep_sizes.show(url, sweep)
        elif view == STEPS:  # compares several commits and GPU models
            sweep_sizes.show_steps(url, sweep)
        else:
            _sweep(url, sweeps, sweep)


def _sweep(url: str, sweeps: pd.DataFrame, sweep: pd.Series) -> None:
    words = f"{plain(sweep['gpu_name'])} ({sweep['arch']}), {count_text(sweep['space_size'], 'config')} of the space"
    whole = sweeps[list(map(sweep_winner.is_whole, sweeps["reason"], sweeps["space_size"], sweeps["axes"]))]
    if len(whole) and sweep["id"] not in set(whole["id"]):
        words += (
            f", of which this sweep tried a few; the newest of the whole space is at {short_sha(whole.iloc[0]['sha'])}"
        )
    st.caption(f"{words}.")
    not_ended = ["waiting", "compiled"] if sweep["measure"] else ["waiting"]
    is_timed = not reads.measurements(url, sweep["id"]).empty  # perhaps the winner again, and what tied with it
    unfinished = not is_timed and reads.trials(url, sweep["id"])["status"].isin(not_ended).any()
    st.fragment(sweep_panel.show, run_every=reads.LIVE_EVERY_S if unfinished else None)(url, sweep)


page(reads.database_url())
