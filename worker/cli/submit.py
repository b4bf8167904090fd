"""`tilewatch submit`: queues sweeps of a commit, of a range of commits, or of one problem."""

from typing import Annotated, Any

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import Commit, Gpus, Repository, Who

submit = typer.Typer(
    help="Queue work: all sweeps of a commit, all sweeps of each commit in a range, or one sweep.",
    no_args_is_help=True,
)


@submit.command()
def nightly(commit: Commit = "HEAD", gpu: Gpus = None, repository: Repository = None, who: Who = None) -> None:
    """Sweep the whole library at a commit. A second nightly of the same commit on the same day changes nothing.

    Without --gpu it sweeps for every GPU model that has a worker, and for the models in TILEWATCH_WATCH. Where no
    worker has a GPU of the model, the sweep is only compiled: it ends with the static facts.

    Examples:

        tilewatch submit nightly

        tilewatch submit nightly --commit v1.2 --gpu h200 --gpu b200
    """
    _submit("nightly", {"repository": repository, "commit": commit, "gpus": gpu or []}, who)


@submit.command()
def sweep(
    kernel: Annotated[str, typer.Argument(help="A kernel of the library, such as gemm_fp8.")],
    problem: Annotated[str, typer.Argument(help="A problem of that kernel, such as 320x32576x7168 (MxNxK).")],
    commit: Commit = "HEAD",
    gpu: Gpus = None,
    repository: Repository = None,
    who: Who = None,
) -> None:
    """Sweep one kernel on one problem at a commit. A second submission measures a second time.

    Example: tilewatch submit sweep gemm_fp8 320x32576x7168 --gpu h200
    """
    wanted = {"repository": repository, "kernel": kernel, "problem": problem, "commit": commit, "gpus": gpu or []}
    _submit("sweep", wanted, who)


@submit.command()
def backfill(
    revisions: Annotated[str, typer.Argument(metavar="A..B", help="The commits after A up to B, along first parents.")],
    gpu: Gpus = None,
    repository: Repository = None,
    who: Who = None,
) -> None:
    """Sweep the whole library at each commit of a range, after all other work. A second backfill changes nothing.

    Example: tilewatch submit backfill v1.2..HEAD --gpu h200
    """
    _submit("backfill", {"repository": repository, "revisions": revisions, "gpus": gpu or []}, who)


def _submit(action: str, wanted: dict[str, Any], who: str | None) -> None:
    from tilewatch.worker.submit_requests import submit_for

    created = False
    for submitted in submit_for(options.settings(), options.name_of(who), action, wanted):
        ids = ", ".join(map(str, submitted.submission_ids))
        print(f"{submitted.sentence} (submission {ids})", flush=True)
        created = created or submitted.created
    if created:
        print("follow it with `tilewatch status --follow`")
