"""Shows the static facts of every commit's cubins, for any architecture."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import static_facts
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import filters, page_head, plots, repository, tables
from tilewatch.text import count_text, plain, short_sha

ABOUT = (
    "What the compiler made of every commit, for each GPU architecture: registers, spills, TMA loads, Tensor Core "
    "code. No GPU is needed for it."
)

FEW = 4
"""The most architectures that are shown side by side. If there are more, a select box contains them."""


def page(url: str) -> None:
    page_head.show("Architectures", ABOUT)
    spaces = reads.spaces(url)
    if spaces.empty:
        st.info("No sweep was submitted yet. The compiler alone is enough for this page, for any architecture:")
        st.code("tilewatch submit nightly --gpu b200")
        return
    name = repository.pick_repository(url)
    spaces = spaces[spaces["repository"] == name]
    if spaces.empty:
        st.info(f"No sweep of {plain(name)} was submitted yet.")
        return
    first, second, third = st.columns(3)
    named = spaces.assign(gpu=spaces["arch"] + " " + spaces["gpu_name"])
    with first:
        names = filters.main_first(set(named["gpu"]))
        pick = filters.choose if len(names) <= FEW else filters.pick
        named = named[named["gpu"] == pick("Architecture and GPU", names, "gpu")]
    with second:
        named = filters.pick_value(named, "Kernel", "kernel", "kernel")
    with third:
        named = filters.pick_value(named, "Problem", "problem", "problem")
    space = named.iloc[0]
    counts = reads.static_facts(url, space["repository"], space["kernel"], space["problem"], space["gpu_model"])
    if counts.empty:
        st.info("None of its configs is compiled yet. A compile worker takes them in batches.")
        return
    words = f"Share of the configs with each static fact, over {count_text(len(counts), 'commit')}"
    plots.show(static_facts.over_commits(counts), "statics", words)
    _changes(url, counts)
    _spills(url, space)
    tables.show_in_expander(f"{count_text(len(counts), 'commit')} behind the chart", "counts", lambda: _table(counts))


def _spills(url: str, space: pd.Series) -> None:
    """Shows which kernels have configs that spill registers on this architecture."""
    st.subheader(f"Which kernels spill on {plain(space['arch'])}", anchor=False)
    rows = reads.spills(url, space["repository"], space["gpu_model"])
    spilling = rows[rows["spilling"] > 0]
    have = "has" if len(spilling) == 1 else "have"
    st.text(
        f"{count_text(len(spilling), 'problem')} of {len(rows):,} {have} configs that spill "
        f"for {space['gpu_name']}, of {count_text(spilling['kernel'].nunique(), 'kernel')}."
    )
    if spilling.empty:
        return
    table = pd.DataFrame(
        {
            "kernel": spilling["kernel"],
            "problem": spilling["problem"],
            "configs with spills": [f"{row.spilling:,} of {row.compiled:,}" for row in spilling.itertuples()],
            "most bytes per thread": spilling["most_stack_bytes"],
            "commit": [f"{short_sha(row.sha)} {row.subject}" for row in spilling.itertuples()],
        }
    )
    tables.show(table, key="spills")


def _changes(url: str, counts: pd.DataFrame) -> None:
    st.subheader("What changed between two commits", anchor=False)
    if len(counts) < 2:
        st.caption("Only one commit is compiled: there is nothing to compare it with.")
        return
    newest_first = counts.iloc[::-1].sort_values("left_branch_at", key=pd.Series.notna, kind="stable")
    left, right = st.columns(2)
    with right:
        after = filters.pick_or_newest(newest_first, "After", "after").iloc[0]
    earlier = newest_first[newest_first.index < after.name]
    if earlier.empty:
        st.caption("This is the oldest compiled commit; pick a later one.")
        return
    with left:
        before = filters.pick_or_newest(earlier, "Before", "before", filters.PREVIOUS).iloc[0]
    changed = reads.cubin_changes(url, int(before["sweep_id"]), int(after["sweep_id"]))
    sides = (f"{short_sha(side['sha'])} {plain(side['subject'])}" for side in (before, after))
    st.caption(" → ".join(sides))
    if before["compiler"] != after["compiler"]:
        st.caption(f"The compiler changed too: {plain(before['compiler'])} → {plain(after['compiler'])}")
    if changed.empty:
        st.success(
            "No config that compiled at both commits has other registers, spills, TMA loads or Tensor Core code."
        )
        return
    for kind, configs in static_facts.by_kind(changed).items():
        st.markdown(f"**{kind}: {count_text(len(configs), 'config')}**")
        tables.show(static_facts.table(configs), key=f"moved-{kind}")


def _table(counts: pd.DataFrame) -> pd.DataFrame:
    shown = counts.assign(commit=[f"{short_sha(row['sha'])} {row['subject']}" for row in counts.to_dict("records")])
    columns = [
        "commit",
        "settled",
        *(name for name, *_ in static_facts.COUNTS),
        "median_registers",
        "compile_s",
        "compiler",
    ]
    labels = {"median_registers": "median registers", "compile_s": "compile s", "tensor_core": "Tensor Core"}
    return shown[columns].rename(columns=labels).iloc[::-1]


page(reads.database_url())
