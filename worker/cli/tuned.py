"""The command `tilewatch tuned export`, which writes tables of winning configs for host code."""

from pathlib import Path
from typing import Annotated

import typer

from tilewatch.kernels.command_options import require_place
from tilewatch.worker.cli import options

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
