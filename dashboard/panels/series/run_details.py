"""Shows everything stored about a run, and the commands to repeat it."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.frames import baseline_texts, evidence, explanation, metrics
from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.panels.series import code_diff, run_beside, sweep_winner
from tilewatch.dashboard.text import moment, ratio_to, time_text
from tilewatch.dashboard.widgets import address, plots, tables
from tilewatch.db.page_reads.evidence import PartRow, SamplesRow
from tilewatch.text import change_text, count_text, plain, plain_code, short_sha


def show(found: Evidence) -> None:
    """Shows the details of a run, such as its samples, replays, winner and clocks."""
    st.subheader("What was measured, and what changed" if found.before else "What was measured", anchor=False)
    _measurements(found)
    left, right = st.columns(2, gap="medium")
    kernel = next((row for row in found.sampled if row.role == "kernel"), None)
    with left:
        st.subheader("Paired samples", anchor=False)
        plots.show(evidence_charts.samples(found.sampled), "samples", "Every sample by paired round")
    with right:
        st.subheader("Distribution of the kernel's samples", anchor=False)
        if kernel is None:
            st.info("No config gave a correct result in this run, so the kernel has no time.")
        else:
            before = next((row for row in found.sampled_before if row.role == "kernel"), None)
            figure = evidence_charts.distribution(kernel, before)
            plots.show(figure, "distribution", "Distribution of the samples of this run and of the run before")
    _replays(found)
    left, right = st.columns(2, gap="medium")
    with left:
        if found.parts:
            _parts(found.parts)
        else:
            _winner(found)
    with right:
        _circumstances(found)
    if not found.parts:
        _counters(found)
        sweep_winner.show_checklist(
            explanation.read_detail(found.sampled), explanation.read_detail(found.sampled_before)
        )
        code_diff.show(found)
        _repeat(found)


def _measurements(found: Evidence) -> None:
    tables.show(tabulate_times(found), key="implementations")
    for sentence in baseline_texts.list_missing(found.sampled[0].detail) if found.sampled else ():
        st.caption(plain(sentence))
    if boundary := evidence.describe_boundary(explanation.read_detail(found.sampled)):
        st.caption(plain(boundary))


def tabulate_times(found: Evidence) -> pd.DataFrame:
    """Returns a table of each implementation's times in this run and in the run before."""
    rows = [
        {
            "implementation": name,
            "before": _interval(old) if old else "",
            "this run": _interval(row),
            "least": time_text(min(row.samples_us)),
            "time": change_text(row.median_us / old.median_us - 1) if old else "",
            "ratio before": ratio_to(old.ratio, old.baseline) if old and old.ratio is not None else "",
            "ratio": ratio_to(row.ratio, row.baseline) if row.ratio is not None else "",
            "samples": str(len(row.samples_us)),
            "ran": baseline_texts.describe_choice(row.params, row.detail),
        }
        for name, row, old in evidence.pair_times(found)
    ]
    table = pd.DataFrame(rows)
    return table if found.sampled_before else table.drop(columns=["before", "time", "ratio before"], errors="ignore")


def _replays(found: Evidence) -> None:
    """Shows the replays, which timed the old and the new cubin alternately on one GPU."""
    if not found.replays:
        return
    st.subheader("Replays: old and new cubin side by side", anchor=False)
    for i, row in enumerate(found.replays):
        words, drawing = st.columns([2, 3], gap="medium", vertical_alignment="center")
        with words:
            st.text(evidence.replay_sentence(row))
            st.caption(f"{row.origin} on {plain(row.host or 'an unknown machine')}, {moment(row.at)}")
        with drawing:
            if row.failure is None:
                figure = evidence_charts.replay(row.good_us, row.bad_us)
                plots.show(figure, f"replay-{i}", "Times of the old and the new cubin by launch")


def _interval(row: SamplesRow) -> str:
    return f"{time_text(row.median_us)} ({row.low_us:,.1f} to {row.high_us:,.1f})"


def _winner(found: Evidence) -> None:
    st.subheader("The winner's config and cubin", anchor=False)
    if found.winner is None:
        st.caption("This run has no winner.")
        return
    st.markdown(f"this run {plain_code(config_text(found.winner.params))}")
    same = found.winner_before is not None and found.winner_before.params == found.winner.params
    if found.winner_before is not None and not same:
        st.markdown(f"before {plain_code(config_text(found.winner_before.params))}")
    elif same:
        st.caption("The same config won before.")
    cubins = {"before": found.winner_before}
    if not same:
        cubins["this_config_before"] = found.same_config_before
    facts = evidence.static_facts(**cubins, this_run=found.winner)
    tables.show(facts, key="facts", height="content")
    earlier = found.same_config_before
    if earlier is None:
        return
    if earlier.code_sha256 is not None and earlier.code_sha256 == found.winner.code_sha256:
        st.caption("This config's machine code is identical at both commits, so the code did not change its time.")
    remarks = evidence.changed_remarks(earlier, found.winner)
    if len(remarks):
        st.markdown("Remarks of this config that changed")
        tables.show(remarks, key="remarks")
    else:
        st.caption("The compiler's remarks on this config are the same at both commits.")


def _circumstances(found: Evidence) -> None:
    """Shows other possible causes of the change: clocks, toolchain and commits."""
    st.subheader("Clocks and power", anchor=False)
    if any(reading.get("sm_clock_mhz") is not None for reading in found.run.telemetry):
        figure = evidence_charts.telemetry(found.run.telemetry)
        plots.show(figure, "telemetry", "SM clock and power while it was measured")
    st.caption(plain(evidence.describe_clocks(found.run.telemetry)))
    st.subheader("Toolchain", anchor=False)
    st.caption(plain(", ".join(f"{name} {version}" for name, version in found.run.toolchain.items())))
    st.subheader("Commits in range", anchor=False)
    after = " after the run before, up to this one" if found.before else ": no run of this series was before"
    st.caption(f"{count_text(len(found.commits), 'commit')} in this database{after}.")
    lines = [
        {
            "commit": short_sha(line.sha),
            "subject": line.subject,
            "author": line.author or "",
            "date": moment(line.committed_at),
        }
        for line in found.commits
    ]
    tables.show(pd.DataFrame(lines), key="commits")


def _repeat(found: Evidence) -> None:
    run_beside.show_repeat(found)
    name = f"tilewatch-run-{found.run.run_id}"
    # If the click reran the page, the file was sometimes deleted before the browser had loaded it (2026-11-24).
    save = partial(st.download_button, on_click="ignore")
    with st.container(horizontal=True):
        save("Everything as JSON", lambda: evidence.as_json(found), f"{name}.json", "application/json")
        save("Samples as CSV", lambda: evidence.samples_csv(found), f"{name}.csv", "text/csv")


def _parts(parts: Sequence[PartRow]) -> None:
    """Shows a table of the problems of a weighted total."""
    st.subheader("The parts of this total", anchor=False)
    picked = tables.pick_row(tabulate_parts(parts), pd.DataFrame({"run_id": [part.run_id for part in parts]}), "parts")
    st.caption(
        f"{count_text(len(parts), 'problem')}, each as often as the model runs it in one step. Replays are of the "
        "parts: the total changes by what they changed. A selected part opens its evidence."
    )
    if picked is not None:
        address.open_page("views/series.py", {"run": picked["run_id"]})


def tabulate_parts(parts: Sequence[PartRow]) -> pd.DataFrame:
    """Returns a table of a weighted total's problems, with each time multiplied by its weight."""
    times_us = [part.weight * part.median_us for part in parts]
    return pd.DataFrame(
        {
            "problem": [f"{part.kernel} {part.problem}" for part in parts],
            "runs": [f"{part.weight:g}" for part in parts],
            "time us": [f"{time_us:,.1f}" for time_us in times_us],
            "share": [f"{time_us / sum(times_us):.0%}" for time_us in times_us],
            "verdict": [part.verdict or "" for part in parts],
            "change": [change_text(part.change) if part.change is not None else "" for part in parts],
        }
    )


def _counters(found: Evidence) -> None:
    st.subheader("Hardware counters", anchor=False)
    table = explanation.tabulate_counters(found)
    if table.empty:
        st.caption(plain(explanation.write_counters_source(found)))
        return
    points = explanation.list_roofline_points(found)
    left, right = st.columns([3, 2] if points else [1, 0.01], gap="medium")
    with left:
        tables.show(table, key="counters", height="content")
    if points:
        with right:
            run = found.run
            tflops = metrics.find_rate_tflops(run.rate, run.fp8_tflops, f"{run.kernel} {run.problem}")
            figure = evidence_charts.roofline(points, tflops, run.bandwidth_gbps)
            plots.show(figure, "roofline", "Operations per second over operations per byte of memory")
    st.caption(plain(explanation.write_counters_source(found)))
