"""The command `tilewatch submit check`."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch.kernels.command_options import parse_share
from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import FailOver, Gpus, Repository, Wait, Who

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tilewatch.db.page_reads.checks import CheckStory
    from tilewatch.worker.settings import Settings
    from tilewatch.worker.submitting.submit_check import SubmittedChecks


def check(
    revisions: Annotated[str, typer.Argument(metavar="BASE..HEAD", help="The two commits to compare.")],
    kernel: Annotated[
        str | None, typer.Option(help="Compare this kernel only, also one that nightlies leave out.")
    ] = None,
    gpu: Gpus = None,
    repository: Repository = None,
    fail_over: FailOver = "0%",
    wait: Wait = False,
    as_json: options.AsJson = False,
    who: Who = None,
) -> None:
    """Compare the speed of two commits on the fleet's GPUs, ahead of all sweeps. Changes no trend and no verdict.

    Without --gpu there is a check for every GPU model that has a worker. Submitting a check twice creates one check.
    With --wait, the exit codes are those of compare: 0 fine, 1 slower than --fail-over, 2 could not tell, or error.

    Example: tilewatch submit check main..HEAD --gpu h200 --fail-over 2% --wait
    """
    from tilewatch.worker.git.commits import split_range
    from tilewatch.worker.notify.wording import check_link
    from tilewatch.worker.submitting.submit_check import CheckAsked
    from tilewatch.worker.submitting.submit_requests import submit_check_by

    limit = parse_share(fail_over)
    settings = options.settings()
    base, head = split_range(revisions)
    asked = CheckAsked(base, head, kernel, tuple(gpu or ()), limit, repository)
    submitted = submit_check_by(settings, options.name_of(who), asked)
    links = {each: check_link(settings.dashboard_url.rstrip("/"), each) for each in submitted.check_ids}
    if not as_json:
        print(submitted.sentence)
        for model, (check_id, link) in zip(submitted.gpu_models, links.items(), strict=True):
            print(f"check {check_id} on {model}: {link}", flush=True)
    elif not wait:
        print(json.dumps({"checks": _name(submitted, links)}))
    if wait:
        again = ["tilewatch", "submit", "check", revisions, "--wait"]
        again += ["--repository", repository] if repository else []
        again += ["--kernel", kernel] if kernel else []
        again += [word for slug in gpu or () for word in ("--gpu", slug)]
        again += ["--fail-over", fail_over] if limit else []
        _wait_and_print(settings, submitted.check_ids, links, shlex.join(again), as_json=as_json)


def _name(submitted: "SubmittedChecks", links: dict[int, str]) -> list[dict[str, object]]:
    return [
        {"id": check_id, "gpu_model": model, "link": links[check_id]}
        for model, check_id in zip(submitted.gpu_models, submitted.check_ids, strict=True)
    ]


def _wait_and_print(
    settings: "Settings", check_ids: tuple[int, ...], links: dict[int, str], again: str, *, as_json: bool
) -> None:
    from tilewatch.db.session import session
    from tilewatch.worker.cli.wait import wait_for
    from tilewatch.worker.comparing import check_report

    database_url = settings.connection().database_url
    wait_for(
        database_url,
        lambda opened: _write_state(_read(opened, check_ids)),
        f"`{again}` waits for the same check again, and {links[check_ids[0]]} shows it",
    )
    with session(database_url) as opened:
        stories = _read(opened, check_ids)
    code = worst_code([story.check.exit_code or 0 for story in stories])
    if as_json:
        rows = [check_report.read_json(story, links[story.check.id]) for story in stories]
        print(json.dumps({"exit_code": code, "checks": rows}))
    else:
        for story in stories:
            print("\n".join(check_report.write_lines(story)))
    raise typer.Exit(code)


def worst_code(codes: list[int]) -> int:
    """Returns the worst of several exit codes: 1 (slower), then 2 (could not tell), then 0."""
    return next((code for code in (1, 2) if code in codes), 0)


def _read(opened: "Session", check_ids: tuple[int, ...]) -> "list[CheckStory]":
    from tilewatch.db.page_reads.checks import find_check

    found = [find_check(opened, check_id) for check_id in check_ids]
    return [story for story in found if story is not None]


def _write_state(stories: "list[CheckStory]") -> str | None:
    """Returns the progress of the checks as one line; None once all checks have ended."""
    if all(story.check.exit_code is not None for story in stories):
        return None
    parts = []
    for check in (story.check for story in stories):
        counted = f", {check.answered} of {check.operators}" if check.operators and check.exit_code is None else ""
        parts.append(f"check {check.id} on {check.gpu_model}: {check.state}{counted}")
    return "; ".join(parts)
