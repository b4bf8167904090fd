"""The command `python -m tilewatch.kernels checklist`."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tilewatch.configs import config_text
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.description import Description
from tilewatch.kernels.checklist.checklist import Line, checklist
from tilewatch.kernels.command_options import require_arch
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.cubin import read_threads_per_block
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.library import watched_folder
from tilewatch.kernels.results import Compiled, Params
from tilewatch.kernels.tile_table import default_config

LIBRARY = watched_folder()

PATIENT_S = 60.0
"""CPU seconds that the compiler gets for the config. A sweep of hundreds of configs gives less to each config."""


def command(
    kernel: Annotated[str, typer.Argument(help="A kernel of the library, e.g. gemm_fp8.")],
    problem: Annotated[str | None, typer.Option(help="A problem, e.g. 320x32576x7168; default: the first.")] = None,
    arch: Annotated[
        str, typer.Option(callback=require_arch, help="Architecture to compile for; no GPU is needed.")
    ] = "sm_90",
    config: Annotated[
        str, typer.Option(help="Parameters instead of the tile table's, e.g. tile_m=128,num_ctas=2.")
    ] = "",
    library: Annotated[Path, typer.Option(help="Folder of library files.")] = LIBRARY,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")] = False,
) -> None:
    """Check one config against the optimisation guide, from its source, the compiler's remarks and its cubin.

    Example: python -m tilewatch.kernels checklist gemm_fp8 --arch sm_90 --config tile_m=128
    """
    plan = catalog.read(library.absolute(), arch=arch, kernel=kernel, problem=problem)[0]
    configs = [trial.config for trial in plan.trials]
    chosen = _apply_changes(default_config(arch, plan.element_bytes, configs, plan.sizes), config)
    described = catalog.describe(library.absolute(), arch=arch, kernel=kernel, problem=plan.problem, config=chosen)
    with (
        tempfile.TemporaryDirectory(prefix="tilewatch-checklist-") as store_folder,
        Compiler(folder(Path(store_folder)), limit_s=PATIENT_S) as compiler,
    ):
        compiled = compiler.compile(library.absolute(), kernel, plan.problem, chosen, arch)
        threads = None
        if compiled.content_key is not None and compiled.status == "ok":
            threads = read_threads_per_block(CubinStore(folder(Path(store_folder))).cubin(compiled.content_key))
    lines = checklist(described, compiled, threads)
    if as_json:
        about = {"kernel": kernel, "problem": plan.problem, "arch": arch, "config": dict(chosen)}
        print(json.dumps({**about, "status": compiled.status, "lines": [asdict(line) for line in lines]}))
    else:
        _print(described, compiled, lines)


def _apply_changes(config: Params, changes: str) -> Params:
    wanted = dict(config)
    for change in filter(None, changes.split(",")):
        name, _, value = change.partition("=")
        if name not in config:
            raise typer.BadParameter(f"'{name}' is not a parameter of this kernel; it has {', '.join(config)}")
        if not value.isdigit():
            raise typer.BadParameter(f"'{change}' must be a name and a number, e.g. {name}={config[name]}")
        wanted[name] = int(value)
    return wanted


def _print(described: Description, compiled: Compiled, lines: tuple[Line, ...]) -> None:
    settings = config_text(described.config)
    table = Table("", "", "evidence", title=f"{described.kernel} {described.problem} for {described.arch}: {settings}")
    for line in lines:
        table.add_row(line.item, line.answer, line.evidence)
    out = Console()
    out.print(table)
    if compiled.failure:
        out.print(f"not compiled: {compiled.failure}", highlight=False)
