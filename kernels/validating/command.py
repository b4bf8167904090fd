"""Runs `tilewatch validate`, which finds mistakes in watch files without a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from tilewatch.errors import ExpectedError
from tilewatch.kernels.command_options import require_files, split_archs
from tilewatch.text import count_text, without_controls


class NotOneFolder(ExpectedError):
    """Raised if the files to validate are in several folders, or if no folder is configured."""


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            callback=require_files,
            help="Files of one folder. Default: all of tool.tilewatch.watch, or TILEWATCH_LIBRARY.",
        ),
    ] = None,
    arch: Annotated[
        str,
        typer.Option(metavar="A,B", callback=split_archs, help="Architectures to validate for; no GPU is needed."),
    ] = "sm_90",
    limit: Annotated[
        float,
        typer.Option(envvar="TILEWATCH_COMPILE_LIMIT_S", min=1, help="CPU seconds that a compilation may take."),
    ] = 15.0,
    python: Annotated[
        Path | None,
        typer.Option(metavar="P", exists=True, dir_okay=False, help="The Python that runs host code, with cuda-tile."),
    ] = None,
) -> None:
    """Validate library files and watch files before a GPU is spent on them.

    Records what operators launch on every problem, compares the shapes of their references and baselines, and compiles
    one config of each code. Each finding is a line with file and line. The exit code is 1 if there is a finding.

    Example: tilewatch validate watch/softmax.py
    """
    from tilewatch.kernels.children import environments, interpreters
    from tilewatch.kernels.compiling import store
    from tilewatch.kernels.validating.mistakes import validate_library

    folders = {each.resolve().parent for each in files or ()} or {_find_folder().resolve()}
    if len(folders) > 1:
        raise NotOneFolder("the files lie in several folders; validate one folder at a time")
    (folder,) = folders
    interpreters.use(folder, python and python.absolute())
    wanted = environments.find(folder, python and python.absolute())
    if wanted is not None and not wanted.is_built:
        typer.echo(f"installing the packages of {without_controls(wanted.file)}", err=True)
    validated = validate_library(
        folder,
        [each.name for each in files or ()],
        arch.split(","),
        store.folder(store.DEFAULT_FOLDER),
        limit_s=limit,
        on_step=lambda step: typer.echo(without_controls(step), err=True),
    )
    for finding in validated.findings:
        print(without_controls(str(finding)))
    compiled, findings = count_text(validated.operators, "operator"), count_text(len(validated.findings), "finding")
    print(f"{compiled} compiled for {arch.replace(',', ', ')}, {findings}")
    if validated.findings:
        raise typer.Exit(1)


def _find_folder() -> Path:
    """Returns the `watch` folder of the nearest pyproject.toml, or the default. Raises NotOneFolder if none exists."""
    from tilewatch.kernels import project_settings
    from tilewatch.kernels.library import FOLDER, watched_folder

    for folder in (Path.cwd(), *Path.cwd().parents):
        own = project_settings.read(folder)
        if own is not None and own.watch is not None:
            return folder / own.watch
    default = watched_folder()
    if default == FOLDER and not Path.cwd().is_relative_to(FOLDER.parents[1]):
        raise NotOneFolder(
            f"no pyproject.toml in {Path.cwd()} or above has the table [tool.tilewatch] with `watch`, the folder of "
            "watch files; add it, or name the files to validate"
        )
    return default
