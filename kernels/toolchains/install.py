"""Installs and removes toolchains, so that other processes never see a partial toolchain."""

import contextlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels.toolchains.toolchain import (
    INSTALLED,
    LIST,
    PART,
    SITE,
    Package,
    Toolchain,
    find_toolchain,
    is_name,
    list_toolchains,
)

PIP = (
    *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"),
    *("--only-binary", ":all:", "--root-user-action", "ignore"),
)
"""Command that runs pip. pip is used because it has this machine's settings (a mirror, a proxy, a certificate)."""

IMPORTED = ("cuda", "cutile_cache", "nvidia")
"""Folders of a toolchain's packages that are compared. Files that pip writes elsewhere differ by environment."""


class NotInstalled(ExpectedError):
    """Raised if a toolchain cannot be installed or removed."""


def find_hashes(allowed: Mapping[str, SpecifierSet], wheels: Path | None) -> tuple[Package, ...]:
    """Returns each package in the newest allowed version, with its wheel's hash. The wheels are those of the folder
    `wheels` or, if that is None, of the package index."""
    named = [f"{name}{versions}" for name, versions in allowed.items()]
    report = json.loads(_run_pip(wheels, "--dry-run", "--ignore-installed", "--report", "-", *named))
    found = {each["metadata"]["name"].lower().replace("_", "-"): each for each in report["install"]}
    wheel = {name: each["download_info"]["archive_info"] for name, each in found.items()}
    return tuple(Package(name, found[name]["metadata"]["version"], wheel[name]["hashes"]["sha256"]) for name in allowed)


def require_new_name(root: Path, name: str) -> None:
    """Raises NotInstalled if the name is invalid or already taken."""
    if not is_name(name):
        raise NotInstalled(f"'{name}' cannot be the name of a toolchain; expected one like next-13.5")
    if (root / name).exists():
        raise NotInstalled(f"{name} is in {root} already; remove it first")


def install(
    root: Path, name: str, packages: Sequence[Package], wheels: Path | None, check: Callable[[Toolchain], None]
) -> Toolchain:
    """Installs packages by their hashes, and returns the toolchain. Leaves no files if pip or `check` fails."""
    require_new_name(root, name)
    with _hold_lock(root):
        require_new_name(root, name)  # another command may have added it meanwhile
        part = root / f".{name}{PART}"
        try:
            (part / SITE).mkdir(parents=True)
            (part / LIST).write_text(_write_list(packages), encoding="utf-8")
            _run_pip(wheels, "--require-hashes", "--requirement", str(part / LIST), "--target", str(part / SITE))
            made = Toolchain(name, part / SITE, tuple(packages))
            _require_own_versions(made, list_toolchains(root))
            check(made)
            part.rename(root / name)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return find_toolchain(root, name)


def remove(root: Path, name: str) -> None:
    """Removes a toolchain. Raises NotInstalled for Tilewatch's own environment."""
    with _hold_lock(root):
        found = find_toolchain(root, name)
        if found.folder is None:
            raise NotInstalled("the installed toolchain belongs to Tilewatch itself and cannot be removed")
        part = root / f".{name}{PART}"
        found.folder.parent.rename(part)
        shutil.rmtree(part)


@contextlib.contextmanager
def _hold_lock(root: Path) -> Iterator[None]:
    """Holds the lock of the toolchains' folder. Raises NotInstalled if another command has it."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        if not processes.try_lock(lock):
            raise NotInstalled(f"another command changes the toolchains in {root}; try again later")
        for left in root.glob(f".*{PART}"):  # of a command that was killed
            shutil.rmtree(left)
        yield


def _run_pip(wheels: Path | None, *arguments: str) -> str:
    """Returns the output of pip. If pip fails, raises NotInstalled with its first error."""
    source = [] if wheels is None else ["--no-index", "-f", str(wheels)]
    done = subprocess.run([*PIP, *source, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = (lines or done.stderr.strip().splitlines()[-1:] or ["it printed nothing"])[0]
        raise NotInstalled(f"pip cannot install it: {reason}")
    return done.stdout


def _write_list(packages: Sequence[Package]) -> str:
    head = (
        "# The packages of a toolchain, written by `tilewatch toolchain add`; `--list` installs the same elsewhere.\n"
    )
    return head + "".join(f"{each.package}=={each.version} --hash=sha256:{each.sha256}\n" for each in packages)


def _require_own_versions(made: Toolchain, others: Sequence[Toolchain]) -> None:
    """Raises NotInstalled if another toolchain has the same version of a package with different files."""
    for other in (*others, Toolchain(INSTALLED, None)):
        for package, version, _ in made.packages:
            file = _find_other_file(package, version, made.folder, other.folder)
            if file is not None:
                raise NotInstalled(
                    f"{package} {version} is not that of the toolchain {other.name}: {file} differs; machine code is "
                    f"kept under versions, so give this wheel one of its own, such as {version}+{made.name}"
                )


def _find_other_file(package: str, version: str, here: Path | None, there: Path | None) -> str | None:
    """Returns a file of a package that differs between two folders, or None. None as a folder means Tilewatch's."""
    other = _list_files(package, version, there)
    if other is None:
        return None
    differing = set((_list_files(package, version, here) or {}).items()) ^ set(other.items())
    return min((file for file, _ in differing), default=None)


def _list_files(package: str, version: str, folder: Path | None) -> dict[str, str] | None:
    """Returns the hash of each file of a package, or None if the folder lacks this version."""
    for found in importlib.metadata.distributions(name=package, path=sys.path if folder is None else [str(folder)]):
        if found.version == version:
            files = [file for file in found.files or () if file.parts[0] in IMPORTED and file.hash is not None]
            return {str(file): file.hash.value for file in files if file.hash is not None}
    return None
