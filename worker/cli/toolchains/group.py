"""The commands `tilewatch toolchain ...`, which add, list and remove toolchains."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from tilewatch.kernels.comparing.toolchains.commands import compare, reproduce
from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tilewatch.kernels.toolchains.toolchain import Toolchain

toolchain = typer.Typer(
    help="Keep several versions of the tile compiler side by side, each under a name.", no_args_is_help=True
)
toolchain.command("compare")(compare)
toolchain.command("reproduce")(reproduce)
Name = Annotated[str, typer.Argument(help="The toolchain's name.")]
Wheels = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", exists=True, file_okay=False, help="Take the packages from this folder of wheels, offline."
    ),
]


@dataclass(frozen=True)
class ToolchainRow:
    """A row of `tilewatch toolchain list` or `tilewatch baselines list`."""

    name: str
    packages: dict[str, str]
    disk_bytes: int
    sha256: str | None  # of the list of packages; None for the toolchain that Tilewatch was installed with

    @classmethod
    def of(cls, toolchain: "Toolchain") -> Self:
        """Returns the row of a toolchain, with the size of its folder."""
        from tilewatch.kernels.toolchains.toolchain import hash_list, measure_disk_bytes

        packages = {package: version for package, version, _ in toolchain.packages}
        return cls(toolchain.name, packages, measure_disk_bytes(toolchain), hash_list(toolchain))


@toolchain.command()
def add(
    name: Name,
    packages: Annotated[
        list[str] | None,
        typer.Argument(metavar="PACKAGE==VERSION", help="The packages with other versions than the installed."),
    ] = None,
    wheels: Wheels = None,
    list_file: Annotated[
        Path | None,
        typer.Option(
            "--list",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Install the packages in the list of another machine.",
        ),
    ] = None,
) -> None:
    """Install another version of the tile compiler under a name, beside the one that Tilewatch has.

    If you name nvidia-cuda-tileiras, NVIDIA's other packages get its version, or else the newest before it of the same
    release. All other packages that you do not name get the installed version. The list of packages with their hashes
    is requirements.txt in the toolchain's folder. If something fails, nothing is left behind.

    Examples:

        tilewatch toolchain add next nvidia-cuda-tileiras==13.5.37

        tilewatch toolchain add next --list requirements.txt --wheels wheels
    """
    from tilewatch.kernels.compiling.trial import require_compiles
    from tilewatch.kernels.toolchains import install
    from tilewatch.kernels.toolchains.packages import NEEDED, complete, read_wanted
    from tilewatch.kernels.toolchains.toolchain import read_list
    from tilewatch.kernels.toolchains.versions import versions

    if (list_file is None) == (not packages):
        raise typer.BadParameter("name packages, or a list of packages with --list, and not both")
    root = options.settings().toolchains
    install.require_new_name(root, name)
    if list_file is None:
        chosen = install.find_hashes(complete(read_wanted(packages or ()), versions(NEEDED)), wheels)
    else:
        chosen = read_list(list_file.read_text(encoding="utf-8"))
        if not chosen:
            raise typer.BadParameter(f"{list_file} names no package with its hash", param_hint="'--list'")
        complete(read_wanted([f"{each.package}=={each.version}" for each in chosen]), {})
    print(f"fetching {', '.join(f'{each.package} {each.version}' for each in chosen)}", file=sys.stderr)
    made = install.install(root, name, chosen, wheels, require_compiles)
    print(f"added the toolchain {made.name}; it compiles")


@toolchain.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the toolchains of this machine: packages, disk use, and a hash, which is equal for equal packages.

    Example: tilewatch toolchain list
    """
    from tilewatch.kernels.toolchains.packages import NEEDED
    from tilewatch.kernels.toolchains.toolchain import INSTALLED, list_toolchains
    from tilewatch.kernels.toolchains.versions import versions
    from tilewatch.worker.cli import tables

    rows = [ToolchainRow(INSTALLED, versions(NEEDED), 0, None)]
    rows += [ToolchainRow.of(each) for each in list_toolchains(options.settings().toolchains)]
    tables.print_answer(rows, lambda rows: draw("toolchain", rows), as_json=as_json)


def draw(what: str, rows: list[ToolchainRow]) -> "RenderableType":
    from tilewatch.worker.cli import tables

    table = tables.new_table(what, "packages", "disk", "hash")
    for row in rows:
        packages = ", ".join(
            f"{package.removeprefix('nvidia-')} {version}" for package, version in row.packages.items()
        )
        disk = f"{row.disk_bytes / 1e6:.0f} MB" if row.disk_bytes else ""
        table.add_row(row.name, packages, disk, (row.sha256 or "")[:12])
    return table


@toolchain.command()
def remove(name: Name) -> None:
    """Delete a toolchain. Its cubins stay in the store. A job that uses it fails.

    Example: tilewatch toolchain remove next
    """
    from tilewatch.kernels.toolchains import install

    install.remove(options.settings().toolchains, name)
    print(f"removed the toolchain {name}")
