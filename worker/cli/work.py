"""The commands `tilewatch status`, `cancel` and `retry`, which show queued work, cancel it or queue it again."""

from typing import Annotated

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import Who

Job = Annotated[
    int | None,
    typer.Argument(metavar="JOB", max=options.LARGEST_ID, help="A job's number, as `tilewatch status` shows it."),
]
OfSubmission = Annotated[
    int | None,
    typer.Option(
        "--submission", metavar="ID", max=options.LARGEST_ID, help="Instead of one job, all jobs of this submission."
    ),
]


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Update the table until no job is left.")] = False,
) -> None:
    """Show submissions, jobs and workers.

    Examples:

        tilewatch status --follow

        tilewatch status --json | jq .submissions
    """
    from tilewatch.worker.cli import status as screen

    screen.show(options.ready_database(), as_json=as_json, follow=follow)


def cancel(job: Job = None, submission: OfSubmission = None, who: Who = None) -> None:
    """Cancel one job, or all jobs of a submission. A worker stops a running job within seconds.

    What the job has measured so far is kept.

    Examples:

        tilewatch cancel 4711

        tilewatch cancel --submission 12
    """
    from tilewatch.db.lifecycle import actions

    chosen = actions.JobSelection.of(job, submission)
    with options.open_session() as opened:
        sentence = actions.cancel(opened, chosen, options.name_of(who))
    print(sentence)


def retry(job: Job = None, submission: OfSubmission = None, who: Who = None) -> None:
    """Queue jobs again that failed, were cancelled, or whose workers died three times (state "poison").

    Examples:

        tilewatch retry 4711

        tilewatch retry --submission 12
    """
    from tilewatch.db.lifecycle import actions, jobs
    from tilewatch.db.session import session
    from tilewatch.worker.queue import dispatch

    chosen, name = actions.JobSelection.of(job, submission), options.name_of(who)
    broker_url = options.settings().connection().broker_url
    database_url = options.ready_database()
    with session(database_url) as opened:
        sentence = actions.retry(opened, chosen, name)
        queued = jobs.list_unsent(opened, dispatch.RESEND_AFTER_S)
    dispatch.send(dispatch.sender(broker_url), database_url, queued)
    print(sentence)
