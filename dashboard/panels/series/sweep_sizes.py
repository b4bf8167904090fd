"""Shows a kernel's throughput on all problems at one commit, and the gain of each tuning step."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import sizes, step_by_step
from tilewatch.dashboard.charts.step_by_step import B200_DEEPGEMM_US, B200_SIZE, B200_US, BASELINES, STEPS, Bar
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.series_choice import COMMIT, RUN, SUBMISSION
from tilewatch.dashboard.text import count_decimals, label_baseline, time_text
from tilewatch.dashboard.widgets import address, plots, tables
from tilewatch.text import plain, short_sha

THIS_SWEEP = "This sweep"
"""The view of the page Series that opens after a click on a bar."""


def show(url: str, sweep: pd.Series) -> None:
    rows = reads.sizes(url, sweep["repository"], sweep["kernel"], sweep["gpu_model"], sweep["sha"])
    if rows.empty:
        st.info("No problem of this kernel is measured at this commit. Pick another sweep.")
        return
    rated = sizes.rate_sizes(rows)
    unit = rated["unit"].iloc[0]
    plots.show(sizes.sizes(rated), "sizes", f"{unit} of {sweep['kernel']} over its problems")
    machines = sorted(set(rated["origin"] + " on " + rated["machine"]))
    st.caption(
        f"Medians of careful runs with their 95 % interval, the newest of each problem at this commit; "
        f"{plain(', '.join(machines))}."
    )
    table = sizes.rate_table(rated)
    form = f"%.{count_decimals(rated['value'])}f"
    numbers = {name: st.column_config.NumberColumn(format=form) for name in table.columns[1:]}
    tables.show(table, key="rates", column_config=numbers)


def show_steps(url: str, sweep: pd.Series) -> None:
    """Shows the tuning steps of an FP8 matrix product on each GPU model."""
    size = sweep["problem"].partition("-")[0]
    spaces = reads.spaces(url)
    spaces = spaces[(spaces["repository"] == sweep["repository"]) & spaces["kernel"].isin({s.kernel for s in STEPS})]
    spaces = spaces[spaces["problem"].isin({size, f"{size}-fp8"})]
    if spaces.empty:
        st.info("The steps are those of an FP8 product: pick the kernel gemm_fp8 of a repository that measures it.")
        return
    drawn = False
    for gpu_model, models in spaces.groupby("gpu_model"):
        bars = list(_list_bars(url, models))
        if not any(bar.is_baseline for bar in bars) or len(bars) <= len(BASELINES):
            continue
        drawn = True
        name = plain(models["gpu_name"].iloc[0])
        st.subheader(f"{name}, FP8 {size}", anchor=False)
        alt = f"Time of each step on {name}"
        plots.show_clickable(step_by_step.draw(bars), f"steps-{gpu_model}", alt, partial(_pick, bars))
        tables.show(step_by_step.tabulate(bars), key=f"steps-{gpu_model}-table", height="content")
        missing = [step.name for step in STEPS if step.name not in {bar.name for bar in bars}]
        if missing:
            st.caption(f"Not measured on this GPU model: {', '.join(missing)}.")
    if not drawn:
        st.info("No GPU model has measured a step and a baseline of this problem.")
        return
    st.caption(
        "Medians of the samples of the largest sweep of each kernel; a click on a bar opens that sweep. A step's worth "
        "is its time against the step above it. The first two read B as K x N, the others as N x K. Fast accumulation "
        "sums in fewer bits than the steps before it. DeepGEMM scales its inputs by block, which these kernels do not."
    )
    st.caption(
        "Tiles of 512x512x512, the guide's default for one byte, are for B200 and B300 (sm_100, sm_103): the tile "
        "compiler makes them in clusters of 4 and 8 blocks. For Hopper (sm_90) and RTX Blackwell (sm_120) it needs "
        "more than its limits of time or memory."
    )
    if size == B200_SIZE:
        reported = ", ".join(f"{name} {time_text(us)}" for name, us in B200_US)
        st.caption(
            "On a B200, as the engineers who asked for this product reported it, not measured here: "
            f"{reported}, DeepGEMM {time_text(B200_DEEPGEMM_US)}."
        )


def _list_bars(url: str, spaces: pd.DataFrame) -> Iterator[Bar]:
    """Yields a bar for each tuning step that was measured, then a bar for each baseline."""
    found, baselines = dict[str, tuple[pd.Series, pd.DataFrame]](), dict[str, Bar]()
    for space in spaces.to_dict("records"):
        sweeps = reads.sweeps(url, *(space[name] for name in ("repository", "kernel", "problem", "gpu_model")))
        largest = sweeps.sort_values("space_size", ascending=False, kind="stable")
        trials = ((each, reads.trials(url, each["id"])) for _, each in largest.iterrows())
        timed = next((pair for pair in trials if pair[1]["median_us"].notna().any()), None)
        if timed is None:  # the trials of a waiting night have no times
            continue
        sweep, _ = found[space["kernel"]] = timed
        measured = reads.measurements(url, sweep["id"])
        for row in measured[measured["implementation"].isin(BASELINES)].to_dict("records") if len(measured) else ():
            name = label_baseline(row["implementation"])
            baselines[row["implementation"]] = Bar(name, row["implementation"], row["median_us"], {}, sweep)
    for step in STEPS:
        if step.kernel in found:
            sweep, trials = found[step.kernel]
            bar = step_by_step.find_bar(step, trials, sweep)
            if bar is not None:
                yield bar
    yield from (baselines[name] for name in BASELINES if name in baselines)


def _pick(bars: Sequence[Bar], point: Mapping[str, object]) -> None:
    """Selects the sweep of a clicked bar."""
    sweep = bars[int(str(point["customdata"]))].sweep
    about = {"kernel": sweep["kernel"], "problem": sweep["problem"], "gpu": sweep["gpu_model"]}
    address.pick({**about, COMMIT: short_sha(sweep["sha"]), "view": THIS_SWEEP}, instead_of=(RUN, SUBMISSION))
