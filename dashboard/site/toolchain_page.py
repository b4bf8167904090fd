"""Makes the page of a toolchain report: the answer, the picture, the verdict on each operator."""

from tilewatch.dashboard.charts import toolchains
from tilewatch.dashboard.panels.toolchains import order_operators, tabulate_operators
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
            figure = toolchains.changes(shown, report.b)
            listed += [
                blocks.chart(figure, f"Change of the time of each operator with {report.b}"),
                blocks.note(
                    f"The {toolchains.AT_MOST} slowest at most, with 95 % intervals. Filled: surely slower than "
                    "allowed. A cross: the newer toolchain's own best config beside the config in use."
                ),
            ]
        listed.append(blocks.table(tabulate_operators(shown)))
    provenance = (
        ("base", f"{report.a}: {found.compilers[0]}"),
        ("head", f"{report.b}: {found.compilers[1]}"),
        ("GPU", ", ".join(found.gpus) or "none: the compilers alone"),
        ("measured", moment(report.made_at)),
    )
    return SitePage(name_toolchain_page(found), f"{report.a} → {report.b}", tuple(listed), provenance)


def name_toolchain_page(found: ReportStory) -> str:
    return name_page("toolchains", found.report.a, found.report.b, found.report.made_at, *found.compilers)
