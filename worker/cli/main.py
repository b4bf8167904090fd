"""The `tilewatch` command. Parses, calls, prints; an expected error is one sentence on standard error and exit code 2.

Everything heavy is imported by the command that needs it, so that `--help` is quick.
"""

import datetime as dt
import getpass
import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewatch import errors
from tilewatch.text import short_sha
from tilewatch.worker.cli import options
from tilewatch.worker.cli.notify import tell
from tilewatch.worker.cli.regressions import regressions

EXPECTED_ERROR = 2

cli = typer.Typer(
    name="tilewatch",
    help="Watch the performance of cuTile kernels over commits and GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
submit = typer.Typer(
    help="Queue work: the suite at a commit or a range of commits, or one sweep.", no_args_is_help=True
)
cli.add_typer(submit, name="submit")
cli.add_typer(regressions, name="regressions")
cli.add_typer(tell, name="tell")

Commit = Annotated[str, typer.Option(metavar="REV", help="Any revision that Git knows: a branch, a tag, a sha.")]
Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="MODEL", help="A GPU model such as h200 or b200. Repeat it for several."),
]
Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who does this, for the record; the login name when not given.")
]


def main() -> None:
    try:
        cli()
    except Exception as error:
        sentence = errors.sentence(error)
        if sentence is None:
            raise
        print(f"tilewatch: {sentence}", file=sys.stderr)
        sys.exit(EXPECTED_ERROR)


@submit.command()
def nightly(commit: Commit = "HEAD", gpu: Gpus = None, who: Who = None) -> None:
    """Sweep the whole library at a commit. Tonight's second submission of a commit changes nothing.

    Without --gpu: every model that a GPU worker has, and those in TILEWATCH_WATCH, for which nobody here has a GPU and
    which end with what the compiler says.

    Examples:

        tilewatch submit nightly

        tilewatch submit nightly --commit v1.2 --gpu h200 --gpu b200
    """
    _submit("nightly", {"commit": commit, "gpus": gpu or []}, who)


@submit.command()
def sweep(
    kernel: Annotated[str, typer.Argument(help="A kernel of the library, such as gemm_fp8.")],
    problem: Annotated[str, typer.Argument(help="A problem of that kernel, such as 320x32576x7168 (MxNxK).")],
    commit: Commit = "HEAD",
    gpu: Gpus = None,
    who: Who = None,
) -> None:
    """Sweep one kernel on one problem at a commit.

    Example: tilewatch submit sweep gemm_fp8 320x32576x7168 --gpu h200
    """
    _submit("sweep", {"kernel": kernel, "problem": problem, "commit": commit, "gpus": gpu or []}, who)


@submit.command()
def backfill(
    revisions: Annotated[str, typer.Argument(metavar="A..B", help="The commits after A up to B, along first parents.")],
    gpu: Gpus = None,
    who: Who = None,
) -> None:
    """Sweep the whole library at each commit of a range, after all other work. A second backfill changes nothing.

    Example: tilewatch submit backfill v1.2..HEAD --gpu h200
    """
    _submit("backfill", {"revisions": revisions, "gpus": gpu or []}, who)


@cli.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing until nothing is left to do.")] = False,
) -> None:
    """What is queued, running and done, and which workers are there.

    Examples:

        tilewatch status --follow

        tilewatch status --json | jq .submissions
    """
    from tilewatch.worker.cli import status as showing

    database_url = options.ready_database()
    if as_json:
        print(showing.as_json(database_url))
    elif follow:
        showing.follow(database_url)
    else:
        showing.once(database_url)


Job = Annotated[int | None, typer.Argument(metavar="[JOB]", help="A job's number, as `tilewatch status` shows it.")]
OfSubmission = Annotated[
    int | None, typer.Option("--submission", metavar="ID", help="Instead of one job: all jobs of this submission.")
]


@cli.command()
def cancel(job: Job = None, submission: OfSubmission = None, who: Who = None) -> None:
    """Take queued work back. A worker that is at it stops within seconds; what it found stays on record.

    Examples:

        tilewatch cancel 4711

        tilewatch cancel --submission 12
    """
    from tilewatch.db.lifecycle.actions import Chosen
    from tilewatch.worker.cli import queueing

    print(queueing.cancel(options.ready_database(), Chosen.of(job, submission), who or getpass.getuser()))


@cli.command()
def retry(job: Job = None, submission: OfSubmission = None, who: Who = None) -> None:
    """Queue jobs again that failed, were cancelled, or were set aside as poison.

    Examples:

        tilewatch retry 4711

        tilewatch retry --submission 12
    """
    from tilewatch.db.lifecycle.actions import Chosen
    from tilewatch.worker.cli import queueing

    broker_url = options.settings().connection().broker_url
    print(queueing.retry(options.ready_database(), broker_url, Chosen.of(job, submission), who or getpass.getuser()))


@cli.command()
def prune(
    days: Annotated[int | None, typer.Option(min=1, help="Instead of TILEWATCH_KEEP_SAMPLES_DAYS.")] = None,
) -> None:
    """Let go of the raw samples of old trials that lost; their medians stay. The nightly clock does this too.

    Winners, measurements and verdicts stay for ever.

    Example: tilewatch prune --days 30
    """
    from tilewatch.worker import schedule

    keep_days = days or options.settings().keep_samples_days
    rolled_up = schedule.prune(options.ready_database(), keep_days, dt.datetime.now(dt.UTC))
    print(f"{rolled_up} trials older than {keep_days} days keep their median and no longer their samples")


@cli.command("export")
def export_(
    file: Annotated[Path, typer.Argument(help="The file to write, such as h200.jsonl.gz.")],
    kernel: Annotated[str | None, typer.Option(help="Only this kernel.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="MODEL", help="Only this GPU model.")] = None,
    since: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Only sweeps submitted since.")] = None,
    repository: Annotated[str | None, typer.Option(metavar="NAME", help="Of several, only this one.")] = None,
) -> None:
    """Write what was measured here to a file that `tilewatch import` reads elsewhere.

    Example: tilewatch export h200.jsonl.gz --gpu h200 --since 2026-11-01
    """
    from tilewatch.worker.transfer.exporting import export_file

    rows = export_file(
        options.ready_database(),
        file,
        repository=repository,
        kernel=kernel,
        gpu_model=gpu,
        since=options.day(since),
    )
    print(f"{rows} rows written to {file} ({file.stat().st_size / 1e6:.1f} MB)")


@cli.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Recordings: files of `tilewatch export`.")],
    repository: Annotated[
        str | None, typer.Option(metavar="NAME", help="What their repository is called here.")
    ] = None,
) -> None:
    """Read recordings into the database. A file that is not whole changes nothing; one read before is passed over.

    Example: tilewatch import recordings/*.jsonl.gz
    """
    from tilewatch.worker.transfer.importing import import_file

    database_url = options.ready_database()
    for file in files:
        print(import_file(database_url, file, named=repository).sentence)


@cli.command()
def judge(
    stream: Annotated[bool, typer.Option("--stream", help="Nights as JSON lines on standard input.")] = False,
) -> None:
    """Put the judge to the test: nights and replays in, alerts and wishes for replays out. Needs no database.

    Example: tilewatch judge --stream < nights.jsonl
    """
    if not stream:
        raise typer.BadParameter("only --stream is there to judge by hand; the workers judge what is measured")
    from tilewatch.worker.detection.stream import answer_lines

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is no text spoils its own line only
    for line in answer_lines(sys.stdin, complain=lambda text: print(text, file=sys.stderr, flush=True)):
        print(line, flush=True)


@cli.command()
def rejudge(
    policy: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON with the numbers that differ; see docs/judging.md.")
    ],
    since: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="Runs measured since this day.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list, for programs.")] = False,
) -> None:
    """Judge the history again with another policy, and say which verdicts it would have changed. Changes nothing.

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
    found = judge_again(Context.of(options.settings()), other, day)
    if as_json:
        print(json.dumps([asdict(each) for each in found.changed], default=str))
        return
    for each in found.changed:
        what = f"{each.night} {each.kernel} {each.problem} on {each.gpu_model} at {short_sha(each.sha)}"
        print(f"{what}: {each.was} -> {each.would_be} ({each.reason})")
    print(f"{len(found.changed)} of {found.runs} verdicts since {day} would be different under {other.name}")


@cli.command()
def migrate() -> None:
    """Bring the database to the tables that this version needs. Safe to run twice, and at once with others."""
    from tilewatch.db import migrate as migrations
    from tilewatch.db.session import check

    database_url = options.settings().connection().database_url
    check(database_url)
    migrations.upgrade(database_url)
    print(f"the database is at {migrations.current(database_url)}")


@cli.command()
def logins(
    board_may_act: Annotated[
        bool, typer.Option("--board-may-act", help="Let people cancel, retry and triage from the dashboard.")
    ] = False,
) -> None:
    """Make or change the database logins tilewatch_worker and tilewatch_board, which may do what they need and no more.

    Run it as the owner of the database, after `tilewatch migrate`. The passwords come from the environment:
    TILEWATCH_WORKER_PASSWORD and TILEWATCH_BOARD_PASSWORD.
    """
    from tilewatch.db.server.logins import Login, Role, make

    board: Role = "tilewatch_triage" if board_may_act else "tilewatch_read"
    make(
        options.ready_database(),
        (
            Login("tilewatch_worker", "tilewatch_write", _password("TILEWATCH_WORKER_PASSWORD")),
            Login("tilewatch_board", board, _password("TILEWATCH_BOARD_PASSWORD")),
        ),
    )
    print(f"tilewatch_worker may do what tilewatch_write may, tilewatch_board what {board} may")


@cli.command()
def up() -> None:
    """Start everything on this machine: servers, workers, the first nightly, the dashboard. Ctrl-C ends all of it.

    TILEWATCH_HOME chooses the data folder and TILEWATCH_PORT the dashboard's port.
    """
    from tilewatch.worker.local.up import up as run_up

    raise typer.Exit(run_up(options.settings()))


@cli.command()
def report(
    html: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the page.")],
    week: Annotated[bool, typer.Option("--week", help="Of the last seven days, which is the only period.")] = False,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Through this day instead of until now.")] = None,
    repository: Annotated[str | None, typer.Option(metavar="NAME", help="Of several, this one.")] = None,
) -> None:
    """Write the weekly report: the dashboard's charts of one week as a single page to mail."""
    import subprocess

    from tilewatch.worker.settings import CHECKOUT

    if not week:
        raise typer.BadParameter("a report is of a week: say --week")

    # A process of its own, as `up` starts the dashboard: what workers run neither imports it nor needs its packages.
    line = [sys.executable, "-m", "tilewatch.dashboard.report", "--week", "--html", str(html.absolute())]
    if until is not None:
        line += ["--until", str(options.day(until))]
    if repository is not None:
        line += ["--repository", repository]
    environment = {**os.environ, "TILEWATCH_DATABASE_URL": options.ready_database()}
    raise typer.Exit(subprocess.run(line, cwd=CHECKOUT, env=environment, check=False).returncode)


@cli.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="A JSON list, for programs.")] = False) -> None:
    """What is here, what is missing and how to get it: driver, compiler, CUPTI, DeepGEMM, Postgres, Redis."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from tilewatch.worker.local.doctor import report

    findings = report(options.settings())
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
        return
    table = Table(box=None)
    for heading in ("", "what", "found", "how to get it"):
        table.add_column(heading)
    marks = {True: "[green]yes[/]", False: "[red]no[/]", None: "[dim]-[/]"}
    for finding in findings:
        table.add_row(marks[finding.ok], finding.name, finding.found, finding.fix or "")
    Console().print(table)


def _password(variable: str) -> str:
    given = os.environ.get(variable)
    if not given:
        raise typer.BadParameter(f"{variable} is not set: it holds the password of that login")
    return given


def _submit(action: str, wanted: dict[str, Any], who: str | None) -> None:
    from tilewatch.worker.submit_requests import submit_for

    created = False
    for submitted in submit_for(options.settings(), who or getpass.getuser(), action, wanted):
        print(submitted.sentence, flush=True)
        created = created or submitted.created
    if created:
        print("follow it with `tilewatch status --follow`")


if __name__ == "__main__":
    main()
