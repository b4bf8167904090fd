"""Makes the page of a toolchain report: whether the newer toolchain is safe, the picture, the verdict per operator."""

from tilewatch.dashboard.charts import toolchains
from tilewatch.dashboard.panels.toolchains import (
    LADDERS,
    order_operators,
    tabulate_ladders,
    tabulate_operators,
)
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.site_content import SitePage, name_page
from tilewatch.dashboard.text import moment
from tilewatch.db.page_reads.toolchain_reports import OperatorRow, ReportStory


def make_toolchain_page(found: ReportStory) -> SitePage:
    report = found.report
    listed = [blocks.text(found.sentence)]
    places: dict[str, list[OperatorRow]] = {}
    for row in found.operators:
        places.setdefault(row.gpu_model or f"{row.arch}, compiled only", []).append(row)
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
