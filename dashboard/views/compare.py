"""Compares all series of two commits or of two GPU models."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import changes_by_shape, sorted_changes
from tilewatch.dashboard.frames import changes, differences, reads
from tilewatch.dashboard.text import RECORDINGS_COME, ratio_to, time_text
from tilewatch.dashboard.widgets import address, filters, page_head, plots, repository, tables
from tilewatch.text import change_text, count_text, plain, short_sha

COMMITS, GPUS, TOOLCHAINS = "Two commits", "Two GPU models", "Two toolchains"
WORDS = {
    COMMITS: (differences.CHANGE_OF_TIME, "minus is faster", (differences.FASTER, differences.SLOWER)),
    GPUS: (
        "difference of time or of its share of the baseline",
        "minus is better on B",
        (differences.HIGHER, differences.LOWER),
    ),
}
"""For each kind of comparison: the quantity, the meaning of a minus sign, the findings that are counted even if 0."""
MOST_BACK = 10
"""The most commits before B that are tried as the default A, which is the newest with a measurement of a series of B.
The commit right before B may have none, because the recordings of two machines alternate."""

ABOUT = (
    "All series at two commits, or on two GPU models. Between two commits only what the judge confirmed is called "
    "faster or slower."
)


def page(url: str) -> None:
    page_head.show("Compare", ABOUT)
    if st.query_params.get("compare") == TOOLCHAINS:  # links of earlier versions contain this
        asked = {name: st.query_params[name] for name in st.query_params if name != "compare"}
        address.open_page("views/toolchains.py", asked)
    _compare_series(url)
    with st.container(horizontal=True):
        st.page_link("views/architectures.py", label="What the compiler made: static facts by architecture")


def _compare_series(url: str) -> None:
    pairs = None
    with st.container(key="filters"):  # page.css gives sentences in it a line
        kind = filters.choose("Compare", [COMMITS, GPUS], "compare")
        name = repository.pick_repository(url)
        if not (commits := reads.commits(url, name)).empty:
            pairs = _commits(url, name, commits) if kind == COMMITS else _gpu_models(url, name)
    if pairs is None:
        st.info(f"Nothing is measured yet. Submit a nightly, or import a recording. {RECORDINGS_COME}")
        st.code("tilewatch submit nightly\ntilewatch import FILE")
        return
    compared = pairs.dropna(subset="change")
    if compared.empty:
        is_same = pairs["run_id"].eq(pairs["run_id_before"]).any()
        same = f"Both sides are the same {'commit' if kind == COMMITS else 'GPU model'}"
        st.info(f"{same if is_same else 'The two sides have no series in common'}. Pick other sides above.")
        return
    label, minus, always = WORDS[kind]
    counts = differences.count_findings(compared, always)
    with st.container(key="two-lines-counts"):
        st.markdown(f"#### {counts}, of {len(compared):,} series on both sides, in {plain(name)}")
    figure = sorted_changes.draw_sorted_changes(compared, label, minus)
    plots.show(figure, "differences", f"The largest values of {label}, with their intervals")
    st.caption(
        f"Up to {sorted_changes.AT_EACH_END} at each end, the slowest first. The bars combine the 95 % intervals of "
        "both medians and how much runs of a series differ without any change. "
        + (
            "Only what is faster or slower is filled; an open circle is within noise, a square identical code, a "
            "diamond any other."
            if kind == COMMITS
            else "What is within noise is an open circle."
        )
    )
    if kind == COMMITS:
        st.caption(
            "Faster and slower are what the judge confirmed between A and B. Undecided: the judge had too few nights "
            "or replays. Not confirmed: the judge found no change. Identical code: the machine code is the same, or "
            "the source and the compiler, so a difference is the GPU's, the driver's or noise. Within noise: noise "
            "explains it."
        )
    if kind == COMMITS and compared["gpu_model"].nunique() > 1:
        _where(changes.one_row_per_series(compared))
    _shapes(compared, label, "what is confirmed of it" if kind == COMMITS else "what noise does not explain of it")
    tables.show_in_expander(
        f"{count_text(len(compared), 'difference')} as a table, slowest first",
        "all",
        lambda: _table(compared),
        {"change": st.column_config.NumberColumn(format="percent")},
    )


def _where(compared: pd.DataFrame) -> None:
    """Shows a table of the problems that changed, by GPU model."""
    st.subheader("Everywhere, or on one architecture?", anchor=False)
    moved = changes_by_shape.list_moved(compared)
    if moved.empty:
        st.caption("On no GPU model is a series different, other than by noise or with identical code.")
        return
    tables.show(moved, key="where")
    st.caption("The problems that differ on some GPU model; ≈ where that is noise or the code is identical.")


def _shapes(compared: pd.DataFrame, label: str, coloured: str) -> None:
    shaped = changes_by_shape.keep_shaped(compared)
    if shaped.empty:
        return
    st.subheader("Over the shapes of the problems", anchor=False)
    kernel = filters.pick("Kernel", filters.main_first(set(shaped["kernel"])), "kernel")
    figure = changes_by_shape.shape_map(shaped[shaped["kernel"] == kernel], label)
    plots.show(figure, "shapes", f"Change of {kernel} over M, N and K")
    st.caption(
        f"A mark's size is K; its number is the median change over the series of that problem, its colour {coloured}."
    )


def _commits(url: str, repository: str, commits: pd.DataFrame) -> pd.DataFrame:
    left = st.container()
    b = filters.pick_or_newest(commits, "B", "b").iloc[0]
    with left:
        picked = filters.pick_commit(commits, "A", "a", filters.PREVIOUS)
    is_before = commits["position"] < b["position"]
    earlier = commits[is_before if picked == filters.PREVIOUS else commits["sha"].map(short_sha) == picked]
    if earlier.empty:
        st.caption(f"{short_sha(b['sha'])} is the oldest measured commit; pick a later B.")
        st.stop()
    after = reads.snapshot_at_commit(url, repository, b["sha"])
    for _, a in earlier.head(MOST_BACK).iterrows():
        pairs = changes.pair_snapshots(reads.snapshot_at_commit(url, repository, a["sha"]), after)
        if pairs["change"].notna().any():
            break
    with st.container(key="two-lines-sides"):
        for side, commit in (("A", a), ("B", b)):
            st.caption(f"{side}: {short_sha(commit['sha'])} {plain(commit['subject'])}")
    pairs = differences.add_findings(pairs, reads.judged_changes(url, repository, reads.EVER))
    origins = pairs["origin"].map(lambda origin: "" if origin == "measured" else f" ({origin})")
    return pairs.assign(where=pairs["gpu_name"].str.removeprefix("NVIDIA ") + origins)


def _gpu_models(url: str, repository: str) -> pd.DataFrame:
    newest = changes.one_row_per_series(reads.snapshot(url, repository, reads.this_hour()))
    names = sorted(set(newest["gpu_model"]))
    a = filters.pick("A", names, "gpu_a")
    b = filters.pick("B", [*names[1:], names[0]], "gpu_b")
    pairs = changes.pair_snapshots(
        newest[newest["gpu_model"] == a], newest[newest["gpu_model"] == b], ("kernel", "problem")
    )
    st.caption(
        "The newest point of each series on both, B against A. Ratios are compared where both have one to the same "
        "version of the same baseline: a lower ratio may well be less time. The others are compared by their times."
    )
    return differences.add_findings_between_gpus(pairs).assign(where="")


def _table(compared: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "kernel": row["kernel"],
                "problem": row["problem"],
                "GPU": row["where"] or row["gpu_name"],
                "change": row["change"],
                "interval": f"{change_text(row['change_low'])} to {change_text(row['change_high'])}",
                "finding": differences.write(row),
                "A": _side(row["ratio_before"], row["baseline_before"], row["median_us_before"]),
                "B": _side(row["ratio"], row["baseline"], row["median_us"]),
            }
            for row in compared.sort_values("change", ascending=False).to_dict("records")
        ]
    )


def _side(ratio: float | None, baseline: str | None, median_us: float) -> str:
    time = time_text(median_us)
    return time if ratio is None or pd.isna(ratio) else f"{ratio_to(ratio, baseline)}, {time}"


page(reads.database_url())
