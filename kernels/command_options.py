"""Parses and checks command-line options."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

ARCHITECTURE = re.compile(r"sm_(8|9|1[0-9])[0-9]")
"""Matches the architectures that cuTile compiles for: sm_80 and later."""


def parse_share(text: str, option: str = "--fail-over") -> float:
    """Returns an option's percentage as a fraction: 0.02 for "2%". Raises BadParameter for any other text."""
    number, sign, rest = text.partition("%")
    try:
        share = float(number) / 100 if sign and not rest.strip() else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        sentence = f"'{text}' is not a percentage; expected one from 0% to under 100% with its sign, such as 2%"
        raise typer.BadParameter(sentence, param_hint=f"'{option}'")
    return share


def require_place(file: Path | None) -> Path | None:
    """Returns the given file. Raises BadParameter if the file's folder is missing."""
    if file is not None and file.is_dir():
        raise typer.BadParameter(f"{file} is a folder; name a file")
    if file is not None and not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}")
    return file


def require_names(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the toolchains. Raises BadParameter unless there are two or more different names."""
    if len({Path(name).name for name in names}) < max(2, len(names)):
        raise typer.BadParameter("name two or more different toolchains, the one in use first")
    return tuple(names)


def require_files(files: list[Path] | None) -> list[Path] | None:
    """Returns the given files. Raises BadParameter if a file does not exist."""
    for each in files or ():
        if each.is_dir():
            raise typer.BadParameter(f"{each} is a folder; name files in it")
        if not each.exists():
            raise typer.BadParameter(f"there is no file {each}")
    return files


def require_arch(arch: str) -> str:
    """Returns the architecture. Raises BadParameter if cuTile does not know it."""
    if not ARCHITECTURE.fullmatch(arch):
        raise typer.BadParameter(f"'{arch}' is not an architecture of cuTile; expected one such as sm_90")
    return arch


def split_archs(archs: str) -> str:
    """Returns comma-separated architectures unchanged. Raises BadParameter if cuTile does not know one of them."""
    for each in archs.split(","):
        require_arch(each)
    return archs


def require_archs(archs: list[str] | None) -> list[str] | None:
    """Returns the architectures. Raises BadParameter if cuTile does not know one of them."""
    for each in archs or ():
        require_arch(each)
    return archs


Archs = Annotated[
    list[str] | None,
    typer.Option("--arch", callback=require_archs, help="An architecture such as sm_100. Repeat it for several."),
]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", help="Compare this kernel only. Repeat it for several.")]
Recordings = Annotated[
    list[Path] | None,
    typer.Option(
        "--recording",
        metavar="FILE",
        callback=require_files,
        help="Take winners from this recording or tuned table, not from recordings/.",
    ),
]
Retune = Annotated[
    bool, typer.Option(help="Sweep what got worse, time its winner, and find which dependency took how much.")
]
Events = Annotated[bool, typer.Option("--events", help="Time with CUDA events where CUPTI does not work.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=require_place, help="Also write the report as Markdown.")
]
