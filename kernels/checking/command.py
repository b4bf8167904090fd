"""`tilewatch check`: finds the mistakes of library files and watch files before a GPU is spent."""

from pathlib import Path
from typing import Annotated

import typer

from tilewatch.errors import ExpectedError
from tilewatch.text import count_text


class FilesMissing(ExpectedError):
    """The files to check are not there, or lie in several folders."""


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Files of one folder. Default: all of tool.tilewatch.watch, or TILEWATCH_LIBRARY."
        ),
    ] = None,
    arch: Annotated[str, typer.Option(help="The architecture to check for; no GPU is needed.")] = "sm_90",
) -> None:
    """Check library files and watch files before a GPU is spent on them.

    Records what operators launch, compares the shapes of their references and baselines, and compiles one config of
    each. Each finding is a line with file and line. The exit code is 1 if there is one.

    Example: tilewatch check watch/softmax.py
    """
    from tilewatch.kernels.checking.mistakes import check_library
    from tilewatch.kernels.compiling import store

    missing = [str(each) for each in files or () if not each.is_file()]
    if missing:
        raise FilesMissing(f"there is no file {missing[0]}")
    folders = {each.resolve().parent for each in files or ()} or {_find_folder().resolve()}
    if len(folders) > 1:
        raise FilesMissing("the files lie in several folders; check one folder at a time")
    (folder,) = folders
    checked = check_library(folder, [each.name for each in files or ()], arch, store.folder(store.DEFAULT_FOLDER))
    for finding in checked.findings:
        print(finding)
    compiled, findings = count_text(checked.operators, "operator"), count_text(len(checked.findings), "finding")
    print(f"{compiled} compiled for {arch}, {findings}")
    if checked.findings:
        raise typer.Exit(1)


def _find_folder() -> Path:
    """The folder that the pyproject.toml of the current folder, or of one above it, names as the one under watch."""
    from tilewatch.kernels import project_settings
    from tilewatch.kernels.library import watched_folder

    for folder in (Path.cwd(), *Path.cwd().parents):
        own = project_settings.read(folder)
        if own is not None and own.watch is not None:
            return folder / own.watch
    return watched_folder()
