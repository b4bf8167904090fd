"""The command `tilewatch`. An expected error is printed as a sentence on standard error, with exit code 2."""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tilewatch import errors, find_release
from tilewatch.kernels.command_options import require_place
from tilewatch.kernels.validating.command import validate
from tilewatch.text import short_sha, without_controls
from tilewatch.worker.cli import compare, data, options, serve, work
from tilewatch.worker.cli.notify import notify
from tilewatch.worker.cli.publish import publish
from tilewatch.worker.cli.regressions import regressions
from tilewatch.worker.cli.submit import submit
from tilewatch.worker.cli.tokens import token
from tilewatch.worker.cli.toolchains.baselines import baselines
from tilewatch.worker.cli.toolchains.group import toolchain
from tilewatch.worker.cli.tuned import tuned
from tilewatch.worker.cli.watch import watch

EXPECTED_ERROR = 2

# Commands import most of their modules when they run, so that `--help` is quick.
cli = typer.Typer(
    name="tilewatch",
    cls=options.Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.add_typer(watch, name="watch")
cli.add_typer(submit, name="submit")
cli.add_typer(regressions, name="regressions")
cli.add_typer(notify, name="notify")
cli.add_typer(tuned, name="tuned")
cli.add_typer(token, name="token")
cli.add_typer(toolchain, name="toolchain")
cli.add_typer(baselines, name="baselines")
cli.command()(validate)
cli.command()(compare.compare)
cli.command()(compare.replay)
cli.command()(work.status)
cli.command()(work.cancel)
cli.command()(work.retry)
cli.command()(data.prune)
cli.command("export")(data.export_)
cli.command("import")(data.import_)
cli.command()(data.migrate)
cli.command()(data.logins)
cli.command()(publish)
cli.command()(serve.api)
cli.command()(serve.mcp)

# Names of before 0.2, which work for one release.
options.add_old_name(cli, "check", validate, "tilewatch validate")
cli.add_typer(notify, name="tell", hidden=True, callback=options.warn_of("tilewatch tell", "tilewatch notify"))
cli.add_typer(
    baselines, name="rivals", hidden=True, callback=options.warn_of("tilewatch rivals", "tilewatch baselines")
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from tilewatch.db import migrate

        print(f"tilewatch {find_release()}, database revision {migrate.head()}")
        raise typer.Exit


@cli.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Watch the performance of cuTile kernels over commits and GPUs."""


def main() -> None:
    try:
        cli()
    except Exception as error:
        from tilewatch.worker.settings import find_bad_home

        sentence = find_bad_home(error) or errors.sentence(error) or _find_outage(error)
        if sentence is None:
            raise
        print(f"tilewatch: {without_controls(sentence)}", file=sys.stderr)
        sys.exit(EXPECTED_ERROR)


def _find_outage(error: Exception) -> str | None:
    """Returns a sentence if an outage of Postgres made the command fail; else None."""
    if "sqlalchemy" not in sys.modules:  # then it was not Postgres, and importing it here would be slow
        return None
    from tilewatch.db.session import passing_trouble

    return passing_trouble(error)


@cli.command()
def judge(
    stream: Annotated[bool, typer.Option("--stream", help="Read nights as JSON lines from standard input.")] = False,
) -> None:
    """Find changes in your own nightly times. Prints changes and asks you for replays. Needs no database.

    Exit codes: 0 every line was read, 1 a line was refused.

    Example: tilewatch judge --stream < nights.jsonl
    """
    if not stream:
        raise typer.BadParameter(
            "add --stream; without it there is nothing to judge here, since the workers judge what is measured"
        )
    from tilewatch.worker.detection.stream import answer_lines

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a bad byte only spoils its own line
    refused: list[str] = []
    for line in answer_lines(sys.stdin, lambda text: print(text, file=sys.stderr, flush=True), refused.append):
        print(line, flush=True)
    raise typer.Exit(1 if refused else 0)


@cli.command()
def rejudge(
    policy: Annotated[
        Path,
        typer.Option(metavar="FILE", help="JSON with the numbers that differ from today's: docs/reference/judging.md."),
    ],
    since: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="Only runs measured on this day or later.")],
    as_json: options.AsJsonList = False,
) -> None:
    """Judge old runs again with another policy, and print the verdicts that would be different. Stores nothing.

    Example: tilewatch rejudge --policy bolder.json --since 2026-10-01
    """
    from dataclasses import asdict

    from tilewatch.worker.context import Context
    from tilewatch.worker.detection import policy as policies
    from tilewatch.worker.judging.rejudge import rejudge as judge_again

    day = options.day(since)
    assert day is not None
    other = policies.load(policy)
    options.ready_database()
    comparison = judge_again(Context.of(options.settings()), other, day)
    for failure in comparison.failures:
        print(f"tilewatch: {failure}", file=sys.stderr)
    if as_json:
        print(json.dumps([asdict(verdict) for verdict in comparison.changed], default=str))
    for verdict in () if as_json else comparison.changed:
        run = f"{verdict.night} {verdict.kernel} {verdict.problem} on {verdict.gpu_model} at {short_sha(verdict.sha)}"
        print(f"{run}: {verdict.was} -> {verdict.would_be} ({verdict.reason})")
    if not as_json:
        print(f"{len(comparison.changed)} of {comparison.runs} verdicts would be different with {other.name}")
    raise typer.Exit(EXPECTED_ERROR if comparison.failures else 0)


@cli.command()
def up() -> None:
    """Start everything on this machine: servers, workers, the first nightly, the dashboard. Ctrl-C stops all of it.

    TILEWATCH_HOME sets the data folder and TILEWATCH_PORT the dashboard's port.
    """
    from tilewatch.worker.local.up import up as run_up

    raise typer.Exit(run_up(options.settings()))


@cli.command()
def demo(
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The demo's data folder, which is emptied first. Default: a folder in ~/.cache."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The dashboard's port.")] = 8501,
) -> None:
    """Show Tilewatch without a GPU: twenty commits on a simulated GPU, one of them slower. Runs until Ctrl-C.

    Within two minutes, the changes appear in the inbox and in a message on a local page.
    """
    from tilewatch.worker.local.demo import run_demo
    from tilewatch.worker.logs import set_up

    folder = home or Path.home() / ".cache" / "tilewatch" / "demo"
    set_up("ERROR")
    with contextlib.suppress(KeyboardInterrupt):
        run_demo(folder.expanduser().absolute(), port, lambda line: print(line, flush=True))


@cli.command()
def report(
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=require_place, help="Where to write the page.")
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=require_place, help="Where to write the scoreboard as a picture."),
    ] = None,
    week: Annotated[
        bool, typer.Option("--week", help="A report of seven days; required, since there is no other period yet.")
    ] = False,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="The last day of the report. Without it, the report ends now.")
    ] = None,
    repository: options.OneRepository = None,
) -> None:
    """Write the weekly report: an HTML page with the charts of seven days, or the scoreboard as a picture."""
    if not week:
        raise typer.BadParameter("add --week: there is no report of another period")
    files = {"html": html and str(html.absolute()), "png": png and str(png.absolute())}
    if not any(files.values()):
        raise typer.BadParameter("name a file to write: --html FILE, --png FILE or both")

    database_url = options.ready_database()
    if repository is not None:
        options.require_repository(database_url, repository)
    last = options.day(until)
    order = {**files, "until": last and str(last), "repository": repository}
    options.run_dashboard_program("site.weekly_report", order, database_url)


@cli.command()
def doctor(as_json: options.AsJsonList = False) -> None:
    """Check this machine: driver, compiler, CUPTI, DeepGEMM, Postgres, Redis. Prints how to get what is missing.

    Exit codes: 0 everything needed is here, 1 something needed is missing or wrong, 2 an error.
    """
    from dataclasses import asdict

    from rich.table import Table
    from rich.text import Text

    from tilewatch.worker.cli.tables import show
    from tilewatch.worker.local.doctor import report

    findings = report(options.settings())
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        table = Table(box=None)
        for heading in ("", "what", "here", "how to get it"):
            table.add_column(heading)
        marks = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("-", "dim")}
        for finding in findings:
            table.add_row(marks[finding.ok], finding.name, finding.found, finding.fix or "")
        show(table)
    raise typer.Exit(any(finding.ok is False for finding in findings))


if __name__ == "__main__":
    main()
