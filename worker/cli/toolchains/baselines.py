"""The commands `tilewatch baselines ...`, which manage environments with other versions of baseline libraries."""

import sys
from typing import Annotated

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import AsJson
from tilewatch.worker.cli.toolchains.group import ToolchainRow, Wheels, draw

baselines = typer.Typer(
    help="Time other versions of baseline libraries beside the installed ones, each under a name.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="The environment's name.")]


@baselines.command()
def add(
    name: Name,
    packages: Annotated[
        list[str],
        typer.Argument(metavar="PACKAGE==VERSION", help="The packages with other versions than the installed."),
    ],
    wheels: Wheels = None,
) -> None:
    """Install other versions of baseline libraries under a name. Every later run of this machine times them too.

    sgl-deep-gemm brings the baselines of DeepGEMM, torch those of cuBLAS, cuBLASLt, cuDNN and PyTorch. Also name each
    dependency that must have another version than the installed one. If something fails, nothing is left behind.

    Examples:

        tilewatch baselines add deepgemm-next sgl-deep-gemm==0.1.4.post1

        tilewatch baselines add deepgemm-next sgl-deep-gemm==0.1.4.post1 --wheels wheels
    """
    from tilewatch.baselines import BASELINES
    from tilewatch.kernels.toolchains import install
    from tilewatch.kernels.toolchains.packages import allow_only, read_versions

    root = options.settings().baseline_environments
    install.require_new_name(root, name)
    versions = read_versions(packages)
    known = dict.fromkeys(each.package for each in BASELINES if each.package is not None)
    if not versions.keys() & known.keys():
        raise typer.BadParameter(f"no baseline is of {', '.join(versions)}; expected {' or '.join(known)}")
    chosen = install.find_hashes({name: allow_only(version) for name, version in versions.items()}, wheels)
    print(f"fetching {', '.join(f'{each.package} {each.version}' for each in chosen)}", file=sys.stderr)
    made = install.install(root, name, chosen, wheels, lambda _: None)
    print(f"added {made.name}; a run that cannot use it says why")


@baselines.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the environments of this machine: packages, disk use, and a hash, which is equal for equal packages.

    Example: tilewatch baselines list
    """
    from tilewatch.kernels.toolchains.toolchain import list_toolchains
    from tilewatch.worker.cli import tables

    rows = [ToolchainRow.of(each) for each in list_toolchains(options.settings().baseline_environments)]
    tables.print_answer(rows, lambda rows: draw("environment", rows), as_json=as_json)


@baselines.command()
def remove(name: Name) -> None:
    """Delete an environment. Its measurements are kept.

    Example: tilewatch baselines remove deepgemm-next
    """
    from tilewatch.kernels.toolchains import install
    from tilewatch.kernels.toolchains.toolchain import list_toolchains

    root = options.settings().baseline_environments
    names = [each.name for each in list_toolchains(root)]
    if name not in names:
        raise install.NotInstalled(f"no environment is named {name} in {root}; these are: {', '.join(names) or 'none'}")
    install.remove(root, name)
    print(f"removed {name}")
