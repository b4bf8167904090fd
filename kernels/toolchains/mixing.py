"""Makes a toolchain with packages of two toolchains, to compare them package by package."""

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from tilewatch.kernels.toolchains.toolchain import SITE, Package, Toolchain


def mix(
    root: Path, name: str, base: Toolchain, head: Toolchain, packages: Iterable[str], swapped: Collection[str]
) -> Toolchain:
    """Makes a toolchain with the packages in `swapped` from `head`, and all other packages from `base`."""
    site = root / name / SITE
    shutil.rmtree(site.parent, ignore_errors=True)
    site.mkdir(parents=True)
    linked = ((each, _link_package(each, head if each in swapped else base, site)) for each in packages)
    chosen = tuple(Package(package, version, None) for package, version in linked if version is not None)
    return Toolchain(name, site, chosen)


def _link_package(package: str, side: Toolchain, site: Path) -> str | None:
    """Links a package's files into `site`. Returns its version, or None if the toolchain lacks the package."""
    path = sys.path if side.folder is None else [str(side.folder)]
    for found in importlib.metadata.distributions(name=package, path=path):
        for file in found.files or ():
            real = Path(str(found.locate_file(file))).resolve()
            if file.parts[0] == ".." or not real.is_file():
                continue  # a script outside of the packages' folder
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).unlink(missing_ok=True)  # of an earlier package: a copy would be written through its link
            # No symbolic link: tileiras looks for ptxas beside itself, and would find the other toolchain's.
            try:
                os.link(real, site / file)
            except OSError:  # another file system
                shutil.copy2(real, site / file)
        return found.version
    return None
