"""The command `tilewatch submit toolchain`."""

from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch.kernels.command_options import Archs, Kernels, Retune, parse_share, require_names
from tilewatch.kernels.comparing.toolchains.commands import MOST_MINUTES
from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import Commit, FailOver, Gpus, Repository, Wait

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def toolchain(
    names: Annotated[
        list[str],
        typer.Argument(metavar="TOOLCHAIN", help="The one in use, then those that may replace it."),
    ],
    commit: Commit = "HEAD",
    kernel: Kernels = None,
    gpu: Gpus = None,
    arch: Archs = None,
    minutes: Annotated[
        float,
        typer.Option(min=0.1, max=MOST_MINUTES, help="Start no launch after this many minutes of each GPU model."),
    ] = 10.0,
    retune: Retune = True,
    fail_over: FailOver = "1%",
    repository: Repository = None,
    wait: Wait = False,
) -> None:
    """Compare toolchains on the fleet, to see whether the first can be replaced. The dashboard shows the report.

    Compile workers need all toolchains (`tilewatch toolchain add`). GPU workers need them only to re-tune. Without
    --gpu, every GPU model with a worker times the comparison. --arch adds architectures to compile for without timing.
    If an equal comparison is in progress, its report is shown and nothing new is submitted.

    With --wait it ends with the exit codes of `tilewatch toolchain compare`: 0 safe, 1 something is worse, 2 could
    not tell, or an error.

    Example: tilewatch submit toolchain installed next --gpu h200 --wait
    """
    from tilewatch.worker.notify.wording import report_link
    from tilewatch.worker.submitting.submit_toolchains import ToolchainsAsked, submit_toolchains

    settings = options.settings()
    asked = ToolchainsAsked(
        toolchains=require_names(names),
        repository=repository,
        commit=commit,
        kernels=tuple(kernel or ()),
        gpus=tuple(gpu or ()),
        archs=tuple(arch or ()),
        minutes=minutes,
        retunes=retune,
        fail_over=parse_share(fail_over),
    )
    submitted = submit_toolchains(settings, asked)
    link = report_link(settings.dashboard_url.rstrip("/"), submitted.report_id)
    print(f"{submitted.sentence}\nreport {submitted.report_id}: {link}", flush=True)
    if wait:
        wait_and_print(settings.connection().database_url, submitted.report_id, link)


def wait_and_print(database_url: str, report_id: int, link: str) -> None:
    from tilewatch.db.models import ENDED_SHORT
    from tilewatch.db.page_reads.toolchain_reports import find_report
    from tilewatch.db.session import session
    from tilewatch.errors import ExpectedError
    from tilewatch.worker.cli.wait import wait_for

    wait_for(database_url, lambda opened: _write_state(opened, report_id), f"{link} shows it")
    with session(database_url) as opened:
        found = find_report(opened, report_id)
    if found is None or found.report.job_state in ENDED_SHORT:
        why = found.report.failure or f"its job is {found.report.job_state}" if found else "its job ended without one"
        raise ExpectedError(f"the comparison failed: {why}")
    print(found.sentence)
    raise typer.Exit(found.exit_code)


def _write_state(opened: "Session", report_id: int) -> str | None:
    """Returns the state of a comparison of toolchains; None if the comparison has ended."""
    from tilewatch.db.page_reads.toolchain_reports import find_report_row

    row = find_report_row(opened, report_id)
    return row.state if row is not None and row.is_open else None
