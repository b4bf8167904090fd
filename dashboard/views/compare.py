"""Two commits, or two GPU models, over all series: what differs, by how much, and everywhere or on one architecture."""

import datetime as dt

import pandas as pd
import streamlit as st

from dashboard import change_charts, changes, data, filters
from dashboard.wording import change_text, plural, ratio_text, short, time_text

NEWEST, THE_ONE_BEFORE = "newest", "the one before"
COMMITS, GPUS = "Two commits", "Two GPU models"


def page(url: str) -> None:
    st.title("Compare", anchor=False)
    commits = data.commits(url)
    if commits.empty:
        st.info("Nothing is measured yet, so there is nothing to compare. Submit a nightly, or import a recording.")
        st.code("tilewatch submit nightly\ntilewatch import FILE")
        return
    kind = st.segmented_control(
        "Compare", [COMMITS, GPUS], default=COMMITS, required=True, key="compare", bind="query-params"
    )
    pairs = _commits(url, commits) if kind == COMMITS else _gpu_models(url)
    known = pairs.dropna(subset="change")
    if known.empty:
        st.info("The two sides have no series in common. Pick others above.")
        return
    apart = known[known["apart"]]
    faster = int((apart["change"] > 0).sum())
    st.markdown(
        f"#### {faster:,} faster, {len(apart) - faster:,} slower, {len(known) - len(apart):,} not apart, "
        f"of {len(known):,} series on both sides"
    )
    if kind == COMMITS and known["gpu_model"].nunique() > 1:
        st.subheader("Everywhere, or on one GPU model?", anchor=False)
        figure = change_charts.change_map(changes.one_record(known))
        st.plotly_chart(figure, key="map", config={"displaylogo": False}, alt="Change by series and GPU model")
    st.subheader("Sorted differences", anchor=False)
    st.plotly_chart(
        change_charts.differences(known, "change of speed"),
        key="differences",
        config={"displaylogo": False},
        alt="The largest changes of speed with their intervals",
    )
    st.caption(
        f"Up to {change_charts.AT_EACH_END} at each end, the slowest first. The interval is of the two medians' 95 % "
        "intervals at their worst; an open circle means that it holds zero."
    )
    _table(known)


def _commits(url: str, commits: pd.DataFrame) -> pd.DataFrame:
    left, right = st.columns(2)
    names = commits["sha"].map(short)
    with right:
        picked = filters.pick("B", [NEWEST, *names], "b")
    b = commits.iloc[0] if picked == NEWEST else commits[names == picked].iloc[0]
    with left:
        picked = filters.pick("A", [THE_ONE_BEFORE, *names], "a")
    wanted = commits["position"] < b["position"] if picked == THE_ONE_BEFORE else names == picked
    earlier = commits[wanted]
    if earlier.empty:
        st.caption(f"{short(b['sha'])} is the oldest commit that something was measured of; pick a later B.")
        st.stop()
    a = earlier.iloc[0]
    st.caption(f"A: {short(a['sha'])} {a['subject']}. B: {short(b['sha'])} {b['subject']}.")
    pairs = changes.pair(data.standing_at(url, a["sha"]), data.standing_at(url, b["sha"]))
    return pairs.assign(where=pairs["gpu_name"].str.removeprefix("NVIDIA ") + pairs["origin"].map(_record))


def _record(origin: str) -> str:
    return " (recorded)" if origin == "recorded" else ""


def _gpu_models(url: str) -> pd.DataFrame:
    now = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)  # by the hour: readers share the answers
    newest = changes.one_record(data.standing(url, now))
    names = sorted(set(newest["gpu_model"]))
    left, right = st.columns(2)
    with left:
        a = filters.pick("A", names, "gpu_a")
    with right:
        b = filters.pick("B", [*names[1:], names[0]], "gpu_b")
    pairs = changes.pair(newest[newest["gpu_model"] == a], newest[newest["gpu_model"] == b], ("kernel", "problem"))
    st.caption("The newest point of each series on both. The ratio to DeepGEMM is compared where both have one.")
    return pairs.assign(where="")


def _table(known: pd.DataFrame) -> None:
    order = known["change"].sort_values().index
    with st.expander(f"{plural(len(known), 'difference')} as a table, slowest first"):
        rows = [
            {
                "kernel": row["kernel"],
                "problem": row["problem"],
                "GPU": row["where"] or row["gpu_name"],
                "change": row["change"],
                "interval": f"{change_text(row['change_low'])} to {change_text(row['change_high'])}",
                "apart": "yes" if row["apart"] else "",
                "A": _side(row["ratio_before"], row["median_us_before"]),
                "B": _side(row["ratio"], row["median_us"]),
                "verdict of B": row["verdict"] or "",
            }
            for _, row in known.loc[order].iterrows()
        ]
        number = st.column_config.NumberColumn(format="percent")
        st.dataframe(pd.DataFrame(rows), hide_index=True, key="all", column_config={"change": number})


def _side(ratio: float | None, median_us: float) -> str:
    time = time_text(median_us)
    return time if ratio is None or pd.isna(ratio) else f"{ratio_text(ratio)}, {time}"


page(data.database_url())
