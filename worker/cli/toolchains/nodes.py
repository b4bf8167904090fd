"""`tilewatch toolchain nodes`: parse, call, print. worker/judging/nodes_report.py does the work."""

import datetime as dt
import json
from typing import Annotated

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import AsJson


def nodes(
    a: Annotated[str, typer.Argument(metavar="A", help="A node as `tilewatch status` names it, the older driver's.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other node, or A again with --before and --since.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="MODEL", help="The GPU model of both, such as h200.")],
    before: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Of A only what was measured before this day.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Of B only what was measured on this day or later.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two nodes, or two periods of one, over all series of identical machine code.

    A driver cannot be put back, so this reads what was measured anyway, and no GPU is asked. The canaries are the
    control. The dashboard shows the report.

    Exit codes: 0 nothing is slower on B, 1 something surely is and the canaries are as fast, 2 could not tell, or an
    error.

    Examples:

        tilewatch toolchain nodes lab-1 lab-2 --gpu h200

        tilewatch toolchain nodes lab-1 lab-1 --gpu h200 --before 2026-11-20 --since 2026-11-20
    """
    from tilewatch.db.lifecycle.toolchain_reports import write_report
    from tilewatch.db.session import session
    from tilewatch.kernels.device import gpu_model
    from tilewatch.worker.judging.nodes_report import NodesAsked, make_report

    if a == b and (before is None or since is None):
        raise typer.BadParameter("one node needs two periods: --before DAY for A, --since DAY for B")
    asked = NodesAsked(a, b, gpu_model(gpu), _read_start(before), _read_start(since))
    with session(options.ready_database()) as opened:
        report = make_report(opened, asked)
        write_report(opened, report)
    print(json.dumps(report.answer) if as_json else report.markdown)
    raise typer.Exit(report.answer["exit_code"])


def _read_start(text: str | None) -> dt.datetime | None:
    """The first moment of a day, UTC."""
    day = options.day(text)
    return None if day is None else dt.datetime.combine(day, dt.time(), dt.UTC)
