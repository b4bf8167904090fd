"""The commands `tilewatch tuned`: tables of winning configs for host code, and pull requests that mend them."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch.kernels.command_options import require_place
from tilewatch.text import count_text, short_sha, without_controls
from tilewatch.worker.cli import options

if TYPE_CHECKING:
    from tilewatch.worker.notify.mend_tables import Mender

tuned = typer.Typer(
    no_args_is_help=True, help="Write tables of winning configs that host code looks up with tilewatch.tuned."
)


@tuned.command("export")
def export(
    file: Annotated[Path, typer.Argument(callback=require_place, help="The file to write, such as tuned.json.")],
    kernel: Annotated[str | None, typer.Option(help="Only this kernel.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="MODEL", help="Only this GPU model.")] = None,
    repository: Annotated[
        str | None, typer.Option(metavar="NAME", help="The repository, where the database has several.")
    ] = None,
) -> None:
    """Write the newest winner of each kernel, GPU model and problem as JSON.

    Example: tilewatch tuned export tuned.json --kernel gemm_fp8
    """
    from tilewatch.worker.notify.wording import evidence_link
    from tilewatch.worker.transfer.tuned_tables import write_tables

    dashboard_url = options.settings().dashboard_url
    tables = write_tables(
        options.ready_database(),
        file,
        lambda run_id: evidence_link(dashboard_url, run_id),
        repository=repository,
        kernel=kernel,
        gpu_model=gpu,
    )
    rows = sum(len(table["rows"]) for table in tables)
    pairs = "1 kernel and GPU model" if len(tables) == 1 else f"{len(tables)} pairs of kernel and GPU model"
    print(f"wrote {rows} configs to {file}: one for each problem of {pairs}")


@tuned.command("pr")
def pr(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print title, text and diff of what would be done, and do nothing.")
    ] = False,
) -> None:
    """Open, change and withdraw the pull requests that replace slow configs of shipped tables, as happens every 5 min.

    notify.toml switches them on for a repository. --dry-run shows those of all repositories, and needs no token.

    Example: tilewatch tuned pr --dry-run
    """
    from tilewatch.worker.notify.mend_tables import make_menders, mend_all

    options.ready_database()
    if not dry_run:
        mend_all(options.settings())
        return
    for each in make_menders(options.settings(), switched_on=False):
        print("\n".join(_list_actions(each)))


def _list_actions(mender: "Mender") -> Iterator[str]:
    """Yields lines that say what would be done to the pull requests of a repository."""
    plan, name = mender.plan(), mender.repository.name
    path = "no tuned table" if plan.tables is None else plan.tables.path
    yield f"{name} at {short_sha(plan.tip)} ships {path}: {count_text(len(plan.actions), 'pull request')} to change"
    for each in plan.actions:
        what = "open" if each.stored is None else f"change {each.stored.url}"
        if each.text is None or plan.tables is None:
            yield f"\nclose {each.stored and each.stored.url}"
            continue
        yield f"\n{what}: {each.text.title}\n\n{each.text.body}\n"
        old, new = (text.splitlines() for text in (plan.tables.text, each.text.content))
        yield from map(without_controls, difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""))
