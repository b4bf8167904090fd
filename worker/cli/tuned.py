"""The commands `tilewatch tuned`: tables of winning configs for host code, and pull requests that correct them."""

import difflib
from collections.abc import Iterator, Mapping
from enum import StrEnum
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


Format = StrEnum("Format", ("TILEWATCH", "VLLM", "SGLANG", "FLASHINFER", "PYTORCH"))
"""Formats of `tilewatch tuned export`."""

OF_FOLDERS = (Format.VLLM, Format.SGLANG)
"""The formats that write a folder of files instead of one file."""


def _require_place(context: typer.Context, file: Path) -> Path:
    """Returns `file`. Raises BadParameter if `file` cannot be written, unless the format writes a folder."""
    return file if context.params["written_as"] in OF_FOLDERS else require_place(file) or file


@tuned.command("export")
def export(
    file: Annotated[
        Path,
        typer.Argument(
            callback=_require_place, help="The file to write, such as tuned.json; a folder for vllm and sglang."
        ),
    ],
    kernel: options.OnlyKernel = None,
    gpu: options.OnlyGpu = None,
    repository: options.OneRepository = None,
    written_as: Annotated[  # eager, as the callback of the file reads it
        Format, typer.Option("--format", is_eager=True, help="Whose format to write.")
    ] = Format.TILEWATCH,
    names: Annotated[
        str | None, typer.Option(metavar='"m x n x k"', help="Names of the sizes, for vllm and sglang.")
    ] = None,
    definitions: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Definitions of the kernels, for flashinfer.")
    ] = None,
) -> None:
    """Write the newest winner of each kernel, GPU model and problem as JSON.

    Example: tilewatch tuned export tuned.json --kernel gemm_fp8
    """
    from tilewatch.worker.notify.wording import evidence_link
    from tilewatch.worker.transfer.tuned_tables import write_tables

    if written_as is not Format.TILEWATCH:
        wanted = {"repository": repository, "kernel": kernel, "gpu_model": gpu}
        _export_for_others(file, written_as, wanted, names, definitions)
        return
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
    print(f"wrote {count_text(rows, 'config')} to {file}: one for each problem of {pairs}")


def _export_for_others(
    file: Path, written_as: Format, wanted: Mapping[str, str | None], names: str | None, definitions: Path | None
) -> None:
    """Writes the winners in another project's format. Prints each winner that it leaves out, with the reason."""
    from tilewatch.kernels.problems.definitions import read_definitions
    from tilewatch.worker.transfer import tuned_formats
    from tilewatch.worker.transfer.tuned_tables import list_winners

    folder = file if written_as in OF_FOLDERS else file.parent
    if written_as is Format.FLASHINFER and definitions is None:
        raise typer.BadParameter("--format flashinfer needs --definitions, a folder of Definition files")
    winners = list_winners(options.ready_database(), **wanted)
    if definitions is not None and written_as is Format.FLASHINFER:
        found = {each.name: each for each in read_definitions("**/*.json", definitions)}
        written = tuned_formats.write_traces(winners, found, file.name)
    elif written_as is Format.PYTORCH:
        written = tuned_formats.write_records(winners, file.name)
    else:
        separator = "," if written_as is Format.VLLM else ", "
        written = tuned_formats.write_serving_tables(winners, names, separator)
    for name, text in written.texts.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for sentence in written.left_out:
        print(without_controls(f"left out {sentence}"))
    rows = len(winners) - len(written.left_out)
    print(f"wrote {count_text(rows, 'winner')} to {file}: {count_text(len(written.texts), 'file')}")


@tuned.command("pr")
def pr(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print title, text and diff of what would be done, and do nothing.")
    ] = False,
) -> None:
    """Open, change or close pull requests that replace slow configs in a repository's tables. Also runs every 5 min.

    notify.toml switches this on for a repository. --dry-run works for all repositories, and needs no token.

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
    """Yields lines about the planned changes of a repository's pull requests."""
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
