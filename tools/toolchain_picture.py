"""Draws a picture of a report of `tilewatch toolchain compare`.

    python -m tools.toolchain_picture recordings/toolchains/h200-13.4.92..13.5.37.json toolchain-13.5.37.png

Each operator of the first head has a point with its 95 % interval, the worst on top. A second point shows the operator
after it was re-tuned. Operators that are still undecided are left out, and the title counts them. The program needs
Chromium."""

import argparse
import sys
import tempfile
from pathlib import Path

import plotly.graph_objects as go

from benchmarks import browsing
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport, read_report
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report
from tilewatch.kernels.comparing.toolchains.safety_verdict import OperatorSafety
from tilewatch.kernels.comparing.verdict import Verdict

WIDTH, ROW, MARGIN = 1000, 17, 110
"""Pixels of the picture's width, of the height of an operator's row, and of the height of title and axis."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    report = read_report(options.report)
    if not report.gpus:
        parser.error(f"{options.report} has no times of a GPU")
    save(draw(report, next(iter(report.gpus))), options.picture)


def draw(report: ToolchainReport, gpu_model: str) -> go.Figure:
    of_head = (each for each in judge_report(report, gpu_model) if each.pair.head_name == report.heads[0].name)
    judged = [each for each in of_head if each.frozen is not None]
    decided = sorted((each for each in judged if _is_decided(each)), key=lambda each: _change(each.frozen))
    figure = go.Figure()
    for name, colour, verdicts in (
        ("same config", "#c0392b", [(each, each.frozen) for each in decided]),
        ("re-tuned", "#2471a3", [(each, each.retuned) for each in decided if each.retuned is not None]),
    ):
        shown = [(each, verdict) for each, verdict in verdicts if verdict is not None]
        changes = [100 * verdict.change for _, verdict in shown]
        figure.add_scatter(
            x=changes,
            y=[f"{each.pair.kernel} {each.pair.problem}" for each, _ in shown],
            error_x={
                "array": [100 * verdict.high - at for (_, verdict), at in zip(shown, changes, strict=True)],
                "arrayminus": [at - 100 * verdict.low for (_, verdict), at in zip(shown, changes, strict=True)],
                "symmetric": False,
            },
            mode="markers",
            marker={"color": colour, "size": 8},
            name=name,
        )
    gpu = report.gpus[gpu_model]
    figure.update_layout(
        title=f"{report.heads[0].name} beside {report.base.name} on {gpu.name}: {len(decided)} operators and problems, "
        f"{len(judged) - len(decided)} undecided",
        template="plotly_white",
        width=WIDTH,
        height=MARGIN + ROW * len(decided),
        margin={"l": 330, "t": 60, "b": 45, "r": 20},
        xaxis={"title": f"time with {report.heads[0].name}, change in %", "zeroline": True, "zerolinewidth": 2},
        yaxis={"tickfont": {"size": 11}, "dtick": 1},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    return figure


def save(figure: go.Figure, picture: Path) -> None:
    program = browsing.find_browser()
    if program is None:
        sys.exit(f"toolchain_picture: no browser on PATH: looked for {', '.join(browsing.BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder, browsing.chromium(program) as browser:
        page_file = Path(folder) / "figure.html"
        figure.write_html(page_file, include_plotlyjs=True)
        page = browser.new_page(viewport={"width": WIDTH, "height": int(figure.layout.height)})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.locator(".js-plotly-plot").screenshot(path=picture)


def _is_decided(each: OperatorSafety) -> bool:
    return each.frozen is not None and each.frozen.is_final


def _change(verdict: Verdict | None) -> float:
    return 0.0 if verdict is None else verdict.change


if __name__ == "__main__":
    main()
