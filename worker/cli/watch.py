"""The commands `tilewatch watch ...`, which add, list and remove repositories that Tilewatch clones and fetches."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tilewatch.text import count_text, without_controls
from tilewatch.worker.cli import options

watch = typer.Typer(help="Choose the repositories that are watched.", no_args_is_help=True)


@watch.command()
def add(
    address: Annotated[str, typer.Argument(metavar="URL|PATH", help="As `git clone` takes it, without a password.")],
    branch: Annotated[
        str | None,
        typer.Option(
            metavar="B",
            help="The branch that nightlies follow. Default: tool.tilewatch.branch of its pyproject.toml, else the "
            "remote's default branch.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="N", help="Its name on all pages. Default: the last part of the address.")
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="P",
            exists=True,
            dir_okay=False,
            help="The Python of an environment with cuda-tile that runs the repository's host code on this node, as "
            "~/kernels/.venv/bin/python. Repeat the command on each node.",
        ),
    ] = None,
) -> None:
    """Clone a repository and watch it: each night it is fetched and its library is swept.

    If it has no watch file (a list of kernels), one is proposed from calls in its tests, benchmarks and scripts.

    Examples:

        tilewatch watch add https://github.com/NVIDIA/TileGym

        tilewatch watch add git@github.com:us/kernels.git --branch release --name kernels
    """
    from tilewatch.worker.git import proposals, watched

    settings = options.settings()
    with options.open_session() as opened:
        python = python and python.absolute()
        added = watched.add(opened, settings, address, name=name, branch=branch, python=python)
        now = watched.list_watched(opened, settings)
        dropped = watched.describe_dropped(settings, now) if len(now) == 1 else ""  # the first to be added
    print(f"{added.name} is watched: branch {added.branch}, cloned to {added.folder}{dropped}")
    submit = f"`tilewatch submit nightly --repository {shlex.quote(added.name)}`"
    if proposals.has_operators(added.folder, added.branch, settings.library):
        print(f"the next night sweeps it; {submit} sweeps it now")
        return
    _propose(added.folder, added.branch, settings.home / "proposals" / f"{added.folder.stem}.py", python)
    print(f"nights sweep it once {added.branch} has a watch file, and {submit} does so at once")


def _propose(clone: Path, branch: str, file: Path, python: Path | None) -> None:
    """Writes a proposed watch file (a list of kernels to watch) and prints its path, or why there is none."""
    from tilewatch.kernels.library_errors import LibraryError
    from tilewatch.worker.git import proposals

    try:
        found = proposals.propose_at(clone, branch, lambda step: typer.echo(without_controls(step), err=True), python)
    except LibraryError as error:
        print(f"it has no watch file, and none is proposed: {without_controls(str(error))}")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(found))
    reached = len(found.kernels) - len(found.left_out)
    print(f"it has no watch file; {file} is a proposal for {reached} of its {count_text(len(found.kernels), 'kernel')}")
    print("the last lines of the file say which kernels are not watched and why, and what goes into pyproject.toml")
    if found.packages:
        print(without_controls(found.packages))


@watch.command("list")
def list_() -> None:
    """Print the watched repositories, with the branch that each follows and how its last fetch went."""
    from tilewatch.db.worker_reads import repositories
    from tilewatch.worker.cli import tables
    from tilewatch.worker.git import watched

    with options.open_session() as opened:
        shown = watched.list_watched(opened, options.settings())
        rows = {row.name: row for row in repositories.list_repositories(opened)}
    table = tables.new_table("repository", "branch", "from", "recorded here by", "fetched (UTC)")
    for each in shown:
        row, python = rows.get(each.name), watched.describe_environment(each)
        if row is None:
            table.add_row(each.name, each.branch, str(each.folder), python, "by its owner, not by Tilewatch")
            continue
        fetched = f"{row.fetched_at:%Y-%m-%d %H:%M}" if row.fetched_at else "never"
        state = f"{fetched}; since then: {row.failure}" if row.failure else fetched
        table.add_row(row.name, row.branch, row.url, python, state)
    tables.show(table)


@watch.command()
def remove(name: Annotated[str, typer.Argument(help="A name that `tilewatch watch list` prints.")]) -> None:
    """Stop watching a repository: its open jobs are cancelled and no more are made. Its history stays on all pages."""
    from tilewatch.db.lifecycle import repositories
    from tilewatch.db.worker_reads.repositories import find_repository
    from tilewatch.worker.git import clones, owner_python

    with options.open_session() as opened:
        cancelled = repositories.remove(opened, name)
        row = find_repository(opened, name)
    assert row is not None
    clone = clones.clone_of(row.name, row.url, options.settings().clones)
    clones.delete(clone)
    owner_python.forget(clone)
    ended = f"; {count_text(cancelled, 'job')} cancelled" if cancelled else ""
    print(f"{name} is not watched any more{ended}; its history stays, and `tilewatch watch add` takes it up again")
