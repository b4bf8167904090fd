"""Makes the pages of toolchain reports, and of exported tables with the best config for each problem."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewatch.configs import config_text, describe_certificate
from tilewatch.dashboard.charts import toolchains
from tilewatch.dashboard.panels.toolchains import (
    LADDERS,
    order_operators,
    tabulate_ladders,
    tabulate_operators,
)
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.site_content import SitePage, name_page, name_series_page
from tilewatch.dashboard.text import moment, time_text
from tilewatch.db.page_reads.toolchain_reports import ReportStory
from tilewatch.grouping import group_by
from tilewatch.text import change_text, count_text


def make_toolchain_page(found: ReportStory) -> SitePage:
    report = found.report
    listed = list(map(blocks.text, found.sentence.splitlines()))
    places = group_by(found.operators, lambda row: row.gpu_model or f"{row.arch}, compiled only")
    for place, rows in places.items():
        shown = order_operators(rows)
        listed.append(blocks.heading(place))
        if any(row.frozen is not None for row in shown):
            figure = toolchains.changes(shown)
            listed += [
                blocks.chart(figure, f"Change of the time of each operator, {report.title}"),
                blocks.note(toolchains.LEGEND),
            ]
        listed.append(blocks.table(tabulate_operators(shown, report.toolchains[1:])))
    if found.ladders:
        table = tabulate_ladders(found.ladders)
        listed += [blocks.heading("What took it"), blocks.table(table), blocks.note(LADDERS)]
    provenance = (
        *((name, compiler) for name, compiler in zip(report.toolchains, found.compilers, strict=True)),
        ("GPU", ", ".join(found.gpus) or "none: the compilers alone"),
        ("measured", moment(report.made_at)),
    )
    name = name_page("toolchains", *found.report.toolchains, found.report.made_at, *found.compilers)
    return SitePage(name, report.title, tuple(listed), provenance)


def make_tuned_page(table: Mapping[str, Any]) -> SitePage:
    """Returns a page with the config to ship for each problem of one kernel on one GPU model."""
    rows = [
        {
            "problem": row["problem"],
            "config": config_text(row["config"]),
            "time": time_text(row["time_us"]),
            "tied with it": count_text(len(row["ties"]), "config"),
            "with the nearest problem's config": (
                "" if row["carried_regret"] is None else change_text(row["carried_regret"])
            ),
            "certificate": describe_certificate(row["certificate"]) if "certificate" in row else "",
        }
        for row in table["rows"]
    ]
    about = (table["repository"], table["kernel"])
    pages = (name_series_page(*about, row["problem"], table["gpu_model"]) for row in table["rows"])
    return SitePage(
        file=name_page("tuned", *about, table["gpu_model"]),
        title=f"Tuned table of {table['kernel']} on {table['gpu']}",
        blocks=(
            blocks.text("The config to ship for each problem that was measured."),
            blocks.table(pd.DataFrame(rows), pages),
        ),
        provenance=(
            ("repository", table["repository"]),
            ("commit", table["commit"]),
            ("GPU", f"{table['gpu']} ({table['arch']})"),
            ("versions", ", ".join(f"{name} {version}" for name, version in table["toolchain"].items())),
        ),
    )
