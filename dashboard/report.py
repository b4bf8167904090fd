"""Writes the weekly report: the dashboard's charts of one week as a single page that can be mailed and opened anywhere.

    python -m tilewatch.dashboard.report --week [--html FILE] [--png FILE] [--until DATE] [--repository NAME]

`tilewatch report` starts it as a process of its own, because workers do not import the dashboard, pandas or Plotly.
The page contains Plotly's script, and loads nothing from outside.
"""

import argparse
import datetime as dt
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from sqlalchemy.exc import DBAPIError

from tilewatch.dashboard import weekly
from tilewatch.dashboard.charts import grid, marks, scoreboard, sorted_changes
from tilewatch.dashboard.charts import trend as charts
from tilewatch.dashboard.frames import changes, gpu_time
from tilewatch.dashboard.frames.metrics import METRICS
from tilewatch.dashboard.score_picture import draw_picture
from tilewatch.dashboard.text import day, moment
from tilewatch.dashboard.weekly import Trend, Week
from tilewatch.db.page_reads.regressions import describe_origin
from tilewatch.db.repository_names import is_example
from tilewatch.db.session import DatabaseUnreachable, address, session
from tilewatch.text import change_text, count_text, short_sha, write_uncounted

EXPECTED_ERROR = 2
SHOWN_COMMITS = 60
"""Most commits in a trend. With more, the week would be too narrow to see."""
# Readable on a light and on a dark background; the reader's machine chooses.
INK, GRID = "#6b7686", "rgba(128, 138, 152, 0.25)"
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2rem; } p.small { color: #6b7686; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid rgba(128, 138, 152, 0.35); }
div.wide { overflow-x: auto; }
"""


def page(week: Week) -> str:
    """Returns the whole page. Pure."""
    parts = [
        f"<h1>Tilewatch, {day(week.since)} to {day(week.until)}</h1>",
        f"<p>{escape(headline(week))}</p>",
        f'<div class="scoreboard">{scoreboard.draw_scores(week.scores)}</div>',
        *_regressions("Confirmed this week", week.opened),
        *_regressions("Open at its end", week.waiting),
        *_ratios(week),
        *_movers(week),
        *(part for trend in week.trends for part in _trend(trend)),
        *_nights(week),
        f'<p class="small">Written {moment(week.until)}. Times are medians; intervals are of 95 %.</p>',
    ]
    head = f"<title>Tilewatch, week to {day(week.until)}</title><style>{STYLE}{grid.STYLE}{scoreboard.STYLE}</style>"
    script = f"<script>{get_plotlyjs()}</script>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}{script}</head>'
        f"<body>{''.join(parts)}</body></html>"
    )


def headline(week: Week) -> str:
    directions = week.opened.loc[week.opened["counted"].astype(bool), "direction"].value_counts()
    regressions, improvements = int(directions.get("regression", 0)), int(directions.get("improvement", 0))
    waiting = int(week.waiting["counted"].sum())
    series = len(week.pairs[list(changes.SERIES)].drop_duplicates())
    return (
        f"{count_text(regressions, 'regression')} and {count_text(improvements, 'improvement')} were confirmed, "
        f"{count_text(waiting, 'regression')} {'is' if waiting == 1 else 'are'} open, in {series:,} series of "
        f"{week.repository}; {count_text(len(week.judged), 'verdict')} of a change. {_write_uncounted(week)}"
    ).rstrip()


def _write_uncounted(week: Week) -> str:
    shown = pd.concat([week.opened, week.waiting]).drop_duplicates("id")
    count = int((~shown["counted"].astype(bool)).sum())
    return write_uncounted(count, 0) if is_example(week.repository) else write_uncounted(0, count)


def _regressions(title: str, found: pd.DataFrame) -> Iterable[str]:
    yield f"<h2>{title}</h2>"
    if found.empty:
        yield "<p>None.</p>"
        return
    rows = [
        {
            "#": row["id"],
            "state": row["state"],
            "kernel": row["kernel"] + describe_origin(row),
            "time": f"{change_text(row['size'])} ({change_text(row['low'])} to {change_text(row['high'])})",
            "cause": row["cause"],
            "series": row["series"],
            "GPUs": ", ".join(row["gpu_models"]),
            "first bad commit": f"{short_sha(row['bad_sha'])} {row['bad_subject']}",
            "owner": row["owner"] or "nobody",
        }
        for row in found.to_dict("records")
    ]
    yield _table(rows)


def _ratios(week: Week) -> Iterable[str]:
    shown = changes.one_row_per_series(week.pairs)
    if len(shown) and shown["ratio"].notna().any():
        yield "<h2>Ratio to the main baseline</h2>"
        yield f'<div class="series-grid">{grid.ratio_table(shown)}</div>'
        words = "Over 1.00 is faster than the baseline, which is DeepGEMM unless a cell names another"
        moved = "▲ ▼ faster or slower than a week before, △ ▽ not judged yet, undecided or not confirmed"
        yield f'<p class="small">{words}; {moved}.</p>'


def _movers(week: Week) -> Iterable[str]:
    compared = week.pairs.dropna(subset="change")
    if len(compared):
        yield "<h2>Biggest movers of the week</h2>"
        where = compared["gpu_name"].str.removeprefix("NVIDIA ")
        yield _figure(sorted_changes.draw_sorted_changes(compared.assign(where=where)))


def _trend(trend: Trend) -> Iterable[str]:
    shas = list(dict.fromkeys(trend.points["sha"]))[-SHOWN_COMMITS:]
    points = trend.points[trend.points["sha"].isin(shas)].reset_index(drop=True)
    metric = next(each for each in METRICS if each.values(points)["value"].notna().any())  # the ratio if there is one
    lines = [*marks.level_changes(trend.levels), *marks.toolchain_changes(points), *marks.node_changes(points)]
    lines += marks.rewrites(points)
    yield f"<h2>{escape(trend.name)}</h2>"
    yield _figure(go.Figure(charts.trend(points, metric, marks=lines)))


def _nights(week: Week) -> Iterable[str]:
    yield "<h2>Nights</h2>"
    if week.nights.empty:
        yield "<p>No nightly was submitted this week.</p>"
        return
    yield _table(week.nights.rename(columns={"gpu_name": "GPU"}).to_dict("records"))
    if not week.gpu_times.empty:
        yield _table(gpu_time.tabulate(week.gpu_times).to_dict("records"))


def _figure(figure: go.Figure) -> str:
    """Returns one chart without Plotly's script, which is at the top of the page."""
    axes = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID}
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": INK})
    figure.update_xaxes(**axes)
    figure.update_yaxes(**axes)
    drawn: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return f'<div class="wide">{drawn}</div>'


def _table(rows: Sequence[dict[str, object]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _read_day(text: str) -> dt.date:
    """Reads a day. Raises ArgumentTypeError, also for years before 2000."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        day = dt.date.min
    if day.year < 2000:
        raise argparse.ArgumentTypeError(f"'{text}' is no day since 2000; expected YYYY-MM-DD")
    return day


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tilewatch report", description="Write the weekly report as one page.")
    parser.add_argument("--week", action="store_true", required=True, help="the seven days up to --until")
    parser.add_argument("--html", type=Path, metavar="FILE", help="where to write the page")
    parser.add_argument("--png", type=Path, metavar="FILE", help="where to write the scoreboard as a picture")
    parser.add_argument("--until", type=_read_day, metavar="DATE", help="through this day; else until now")
    parser.add_argument("--repository", metavar="NAME", help="of several, this one; else the one watched here")
    options = parser.parse_args(arguments)
    url = os.environ.get("TILEWATCH_DATABASE_URL", "")
    now = dt.datetime.now(dt.UTC)
    until = now if options.until is None else dt.datetime.combine(options.until, dt.time.max, dt.UTC)
    try:
        with session(url) as opened:
            week = weekly.read_week(opened, until, options.repository)
    except DatabaseUnreachable as error:
        return _refused(str(error))
    except DBAPIError:
        return _refused(f"the database at {address(url)} does not answer; is Tilewatch running?")
    if options.png is not None and not week.scores:
        return _refused("no operator is timed beside DeepGEMM: there is no scoreboard to draw")
    drawings: dict[Path | None, Callable[[], bytes]] = {
        options.html: lambda: page(week).encode(),
        options.png: lambda: draw_picture(week.scores),
    }
    for file, draw in drawings.items():
        if file is None:
            continue
        written = draw()
        try:
            file.write_bytes(written)
        except OSError as error:
            return _refused(f"{file} cannot be written: {error.strerror}")
        print(f"wrote {file}, {len(written) / 1e6:.1f} MB")
    return 0


def _refused(sentence: str) -> int:
    print(f"tilewatch: {sentence}", file=sys.stderr)
    return EXPECTED_ERROR


if __name__ == "__main__":
    sys.exit(main())
