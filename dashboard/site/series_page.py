"""Makes the page of a series for a published site."""

import pandas as pd
from sqlalchemy.orm import Session

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import marks, search_space, trend
from tilewatch.dashboard.charts import sweep as sweep_charts
from tilewatch.dashboard.frames import baseline_texts, evidence, explanation
from tilewatch.dashboard.frames.metrics import find_drawable
from tilewatch.dashboard.frames.reads import Evidence, find_evidence
from tilewatch.dashboard.frames.row_frames import to_frame, trials_frame
from tilewatch.dashboard.frames.series_choice import find_newest_run
from tilewatch.dashboard.panels.series import run_beside, run_details, series_chart, sweep_winner
from tilewatch.dashboard.panels.series import sweep as sweep_panel
from tilewatch.dashboard.panels.series.series_chart import list_meanings
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.site_content import Block, SitePage, name_series_page
from tilewatch.dashboard.text import commit_text, day, moment, timer_text
from tilewatch.db.models import TOTAL
from tilewatch.db.page_reads import regressions, series, sweeps
from tilewatch.db.row_columns import SeriesRow
from tilewatch.text import count_text, short_sha

MOST_POINTS = 12
"""The most rows of the table below a trend. With 20 rows, a site of all recordings had 21.4 MB; 20 MB are allowed."""


def read_series_page(opened: Session, row: SeriesRow) -> SitePage | None:
    """Returns the page of a series; None if no run of the series has a time."""
    key = (row.repository, row.kernel, row.problem, row.gpu_model)
    points = read_points(opened, key)
    run_id = find_newest_run(points)
    found = None if run_id is None else find_evidence(opened, run_id)
    if found is None:
        return None
    shown = series_chart.tabulate_points(points.iloc[-MOST_POINTS:].iloc[::-1]).drop(columns="toolchain")
    return SitePage(
        file=name_series_page(*key),
        title=f"{row.kernel} {row.problem} on {row.gpu_name}",
        blocks=(
            *read_trend(opened, key, points, found.run.run_id),
            *_list_run_blocks(found),
            *_list_sweep_blocks(opened, key),
            blocks.heading("The newest measurements behind the chart"),
            blocks.table(shown),
        ),
        provenance=list_provenance(found),
    )


def list_provenance(found: Evidence) -> tuple[tuple[str, str], ...]:
    run = found.run
    return (
        ("repository", run.repository),
        ("commit", f"{run.sha} {commit_text(run.subject, run.author, run.committed_at)}"),
        ("GPU", f"{run.device_name} ({run.arch}){timer_text(run.timer)}"),
        ("host", f"{run.origin} on {run.machine}"),
        ("measured", moment(run.measured_at)),
        ("versions", ", ".join(f"{name} {version}" for name, version in run.toolchain.items())),
    )


def _list_run_blocks(found: Evidence) -> list[Block]:
    """Lists blocks about the newest run, such as its verdict and its times."""
    run = found.run
    detail = explanation.read_detail(found.sampled)
    verdict = f"{run.verdict}: {run.reason}" if run.verdict else ""
    listed = [
        blocks.heading(f"Newest run: {short_sha(run.sha)} {run.subject}"),
        *([blocks.text(verdict)] if verdict else ()),
        *(blocks.text(sentence) for sentence in run_beside.list_causes(found)),
        blocks.table(run_details.tabulate_times(found)),
        blocks.note(*baseline_texts.list_missing(detail), evidence.describe_boundary(detail)),
        blocks.note(*run_beside.list_circumstances(found)),
    ]
    if run.kernel != TOTAL:
        listed += [blocks.heading("Repeat it"), Block("code", evidence.repeat_commands(found))]
    return listed


def _list_sweep_blocks(opened: Session, key: tuple[str, str, str, str]) -> list[Block]:
    """Lists blocks about a sweep, preferably of the whole search space; empty if no sweep has a winner."""
    rows = to_frame(sweeps.SweepRow, sweeps.list_sweeps(opened, *key))
    rows = rows[rows["measure"].astype(bool)]
    whole = rows[list(map(sweep_winner.is_whole, rows["reason"], rows["space_size"], rows["axes"]))]
    for sweep in (each for shown in (whole, rows) for _, each in shown.iterrows()):
        measured = to_frame(sweeps.MeasurementRow, sweeps.list_measurements(opened, int(sweep["id"])))
        kernel = measured[measured["role"] == "kernel"]
        if len(kernel) and kernel.iloc[0]["params"] is not None:
            trials = trials_frame(sweeps.list_trials(opened, int(sweep["id"])))
            return _describe_sweep(sweep_charts.prepare(trials, sweep["axes"]), kernel.iloc[0], sweep)
    return []


def _describe_sweep(trials: pd.DataFrame, winner: pd.Series, sweep: pd.Series) -> list[Block]:
    tie = set(winner["tie"])
    params = {name: winner["params"][name] for name, _ in sweep["axes"] if name in winner["params"]}
    listed = [
        blocks.heading(f"Sweep of {short_sha(sweep['sha'])} {sweep['subject']}, {day(sweep['committed_at'])}"),
        blocks.text(f"{sweep_winner.headline(winner)}."),
        Block("code", config_text(params)),
        blocks.text(*sweep_winner.list_reasons(trials, winner, sweep["ships"], tie)),
    ]
    axes = [name for name, values in sweep["axes"] if len(values) > 1]
    if len(axes) > 1 and trials["median_us"].notna().any():
        fact = sweep_charts.FACTS[0]
        across, down = sorted(axes, key=lambda name: -trials[f"param.{name}"].nunique())[:2]
        words = f"{fact.label} over {across} and {down}"
        listed += [
            blocks.chart(sweep_charts.cells(trials, across, down, fact), words),
            blocks.note(f"{words}. Each cell: {fact.cell}, of the configs that differ in the other parameters."),
        ]
    fastest = sweep_panel.list_fastest(trials)
    if len(fastest):
        listed += [
            blocks.heading(f"The {len(fastest)} fastest configs"),
            blocks.table(sweep_panel.tabulate_fastest(fastest, tie, sweep)[0]),
        ]
    failed = trials[trials["outcome"].isin(search_space.FAILURES)]
    if len(failed):
        listed += [
            blocks.heading(f"{count_text(len(failed), 'config')} failed"),
            blocks.table(sweep_panel.group_failures(failed)),
        ]
    return listed


Key = tuple[str, str, str, str]
"""The repository, kernel, problem and GPU model of a series."""

SHOWN_COMMITS = 60
"""The most commits in a trend. More would make a week too narrow to see."""


def read_points(opened: Session, key: Key) -> pd.DataFrame:
    """Returns the points of a series, in commit order."""
    return to_frame(series.PointRow, series.list_points(opened, *key, static_facts=False))


def read_trend(opened: Session, key: Key, points: pd.DataFrame, run_id: int | None) -> list[Block]:
    """Returns blocks with the chart of the points and its legend; empty if no point has a value."""
    metric = find_drawable(points)
    if metric is None:
        return []
    levels = to_frame(regressions.LevelRow, regressions.list_levels(opened, *key))
    lines = marks.list_marks(points, levels, of_ratio=metric.key == "ratio")
    figure = trend.ring(trend.trend(points, metric, marks=lines), run_id)
    words = f"{metric.label} of {key[1]} {key[2]} over {count_text(points['sha'].nunique(), 'commit')}"
    return [blocks.chart(figure, words), blocks.note(", ".join(list_meanings(points, lines)) + ".")]


def keep_newest(points: pd.DataFrame) -> pd.DataFrame:
    shas = list(dict.fromkeys(points["sha"]))[-SHOWN_COMMITS:]
    return points[points["sha"].isin(shas)].reset_index(drop=True)
