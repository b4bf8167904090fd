"""The commands `tilewatch submit ...`, which queue sweeps, checks and comparisons of toolchains."""

from typing import Annotated, Any

import typer

from tilewatch.text import without_controls
from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import Commit, Gpus, Repository, Wait, Who
from tilewatch.worker.cli.submit_check import check
from tilewatch.worker.cli.toolchains.submit import toolchain

submit = typer.Typer(
    help="Queue work: all sweeps of a commit or of each commit in a range, one sweep, a check before a merge, or a "
    "comparison of two toolchains.",
    no_args_is_help=True,
)


@submit.command()
def nightly(
    commit: Commit = "HEAD",
    gpu: Gpus = None,
    repository: Repository = None,
    toolchain: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compile with this toolchain of the compile workers; `tilewatch toolchain`."),
    ] = None,
    wait: Wait = False,
    who: Who = None,
) -> None:
    """Sweep the whole library at a commit. A second nightly of the same commit on the same day changes nothing.

    Without --gpu it sweeps for every GPU model that has a worker, and for the models in TILEWATCH_WATCH. If no worker
    has a GPU of the model, the kernels are only compiled, and not timed.

    With --toolchain the results are not part of trends and verdicts, like the results of a branch.

    With --wait the exit code says how it ended: 0 all well, 1 it confirmed a regression, 2 it failed or is incomplete.

    Examples:

        tilewatch submit nightly --wait

        tilewatch submit nightly --commit v1.2 --gpu h200 --gpu b200

        tilewatch submit nightly --toolchain next
    """
    wanted = {"repository": repository, "commit": commit, "gpus": gpu or []}
    if toolchain is not None:
        wanted["toolchain"] = toolchain
    submission_ids = _submit("nightly", wanted, who)
    if wait:
        from tilewatch.worker.cli.wait import wait_for_nightly

        wait_for_nightly(options.settings().connection().database_url, submission_ids)


@submit.command()
def sweep(
    kernel: Annotated[str, typer.Argument(help="A kernel of the library, such as gemm_fp8.")],
    problem: Annotated[str, typer.Argument(help="A problem of that kernel, such as 320x32576x7168 (MxNxK).")],
    commit: Commit = "HEAD",
    gpu: Gpus = None,
    repository: Repository = None,
    wide: Annotated[bool, typer.Option("--wide", help="Try the kernel's whole space, not its short list.")] = False,
    who: Who = None,
) -> None:
    """Sweep one kernel on one problem at a commit. A second submission measures a second time.

    Example: tilewatch submit sweep gemm_fp8 320x32576x7168 --gpu h200
    """
    what = {"repository": repository, "kernel": kernel, "problem": problem, "commit": commit, "gpus": gpu or []}
    wanted: dict[str, Any] = what | ({"wide": True} if wide else {})
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


submit.command()(check)
submit.command("toolchain")(toolchain)


def _submit(action: str, wanted: dict[str, Any], who: str | None) -> list[int]:
    from tilewatch.worker.submitting.submit_requests import submit_for

    created = False
    submission_ids: list[int] = []
    for submitted in submit_for(options.settings(), options.name_of(who), action, wanted):
        ids = ", ".join(map(str, submitted.submission_ids))
        print(f"{without_controls(submitted.sentence)} (submission {ids})", flush=True)
        created = created or submitted.created
        submission_ids += submitted.submission_ids
    if created:
        print("follow it with `tilewatch status --follow`", flush=True)
    return submission_ids
