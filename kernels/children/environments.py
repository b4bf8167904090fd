"""Installs the packages in a commit's requirements file, from wheels only, so that no code of the commit runs."""

import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from tilewatch import processes
from tilewatch.given_files import BadFile, read_given_text
from tilewatch.kernels import project_settings
from tilewatch.kernels.children import child_process, sandbox
from tilewatch.kernels.children.compile_cache import is_filled
from tilewatch.kernels.children.interpreters import BadInterpreter

KEPT_ENVIRONMENTS = 8
MOST_BYTES, MOST_FILES = 16 << 30, 500_000
"""Most bytes and files of an environment. PyTorch with its CUDA packages takes 5 GiB."""
MOST_TEXT_BYTES = 1 << 20
INSTALL_S, AGAIN_S = 1800.0, 300.0
"""Seconds after which pip is ended, and seconds after a failure before pip is tried again."""

LIST, SITE, SCRATCH = "requirements.txt", "site", "scratch"
PIP = ("--no-input", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir")
WHEELS = ("--root-user-action", "ignore", "--only-binary", ":all:")
"""Options of pip. They refuse source distributions, because pip would run the code that builds them."""
READ_BY_PIP = ("~/.config/pip", "~/.pip", "~/.netrc", "/run/systemd/resolve")
PASSED_TO_PIP = re.compile("PIP_.*|.*_proxy|SSL_CERT_.*|REQUESTS_CA_BUNDLE|XDG_CONFIG_.*|NETRC", re.I)

REQUIREMENT = re.compile(
    r"[A-Za-z0-9][\w.-]*(\s*\[[\w.,\s-]*\])?\s*(\(?[<>=!~][\w.*+!<>=~,\s]*\)?)?(;((?!\s-)[^#$])*)?"
    r"(\s+--hash=sha(256|384|512):[0-9a-f]+)*"
)
CUTILE = "cuda-tile"


@dataclass(frozen=True)
class Environment:
    """The packages that a requirements file names, for one Python. `folder` may not exist yet."""

    file: str
    lines: tuple[str, ...]
    python: Path
    folder: Path

    @property
    def packages(self) -> Path:
        return self.folder / SITE

    @property
    def is_built(self) -> bool:
        return self.folder.is_dir()


_held: dict[Path, IO[bytes]] = {}
"""Maps each folder that this process uses to a lock that keeps other processes from deleting it."""

_failed: dict[Path, tuple[float, str]] = {}
"""Maps each folder that could not be made to the time of the attempt (time.monotonic) and the error's sentence."""

_one_at_a_time = threading.Lock()


def find(library: Path, python: Path | None) -> Environment | None:
    """Returns the environment for the requirements file of a library's commit, or None if there is no such file."""
    root = sandbox.find_root(library).resolve()
    try:
        settings = project_settings.read(root)
    except project_settings.BadProject:  # a child that loads the library says so
        return None
    if settings is None or settings.requirements is None:
        return None
    file = root / settings.requirements
    if not file.resolve().is_relative_to(root):
        raise BadInterpreter(f"{settings.requirements} is a link out of the commit")
    try:
        text = read_given_text(file, MOST_TEXT_BYTES)
    except BadFile as error:
        raise BadInterpreter(f"`requirements` of [tool.tilewatch] cannot be used: {error}") from None
    return describe(settings.requirements, text, python)


def describe(file: str, text: str, python: Path | None) -> Environment:
    """Returns the environment for the text of a requirements file. Raises BadInterpreter if a line is not allowed."""
    lines = tuple(split_lines(text))
    for each in lines:
        if not REQUIREMENT.fullmatch(each):
            raise BadInterpreter(f"{file}: '{each[:200]}' is no package by name; only those are installed")
    own = importlib.metadata.version(CUTILE)
    lines = tuple(each for each in lines if not _accepts_cutile(each, own))
    lines = lines if CUTILE in map(name_package, lines) else (*lines, f"{CUTILE}=={own}")
    used = (python or Path(sys.executable)).resolve()
    digest = hashlib.sha256("\0".join((*lines, own, str(used))).encode()).hexdigest()[:32]
    folder = Path(os.path.expanduser("~"), ".cache", "tilewatch", "environments", digest)
    return Environment(file, lines, used, folder)


def _accepts_cutile(line: str, own: str) -> bool:
    """Returns whether a line accepts Tilewatch's version of cuda-tile but does not pin a version."""
    # otherwise, beside torch>=2.5, pip chose cuda-tile 1.3, which cannot use Tilewatch's tileiras (2026-11-29)
    if name_package(line) != CUTILE or "--hash=" in line:
        return False
    try:
        wanted = Requirement(line).specifier
    except InvalidRequirement:  # pip says what is wrong with it
        return False
    return all(each.operator not in ("==", "===") for each in wanted) and wanted.contains(own, prereleases=True)


def name_package(line: str) -> str:
    """Returns the normalized name (PEP 503) of the package in a line of a requirements file."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line, maxsplit=1)[0]).lower()


def split_lines(text: str) -> Iterator[str]:
    """Yields the lines of a requirements file, without comments and empty lines."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if stated := re.sub(r"(^|\s)#.*", "", line).strip():
            yield stated


def provide(environment: Environment) -> None:
    """Installs an environment's packages if they are missing. Raises BadInterpreter with pip's error if this fails."""
    folder = environment.folder
    with _one_at_a_time:
        if folder in _held:
            return
        at, reason = _failed.get(folder, (0.0, ""))
        if reason and time.monotonic() - at < AGAIN_S:
            raise BadInterpreter(reason)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be installing the same
            if not environment.is_built:
                _install(environment)
            fcntl.flock(lock, fcntl.LOCK_SH)
        except BadInterpreter as error:
            lock.close()
            _failed[folder] = (time.monotonic(), str(error))
            raise
        os.utime(lock.fileno())
        _held[folder] = lock
        _remove_unused(folder.parent)


def _install(environment: Environment) -> None:
    part = environment.folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    (part / SCRATCH).mkdir(parents=True)
    (part / LIST).write_text("\n".join(environment.lines) + "\n", encoding="utf-8")
    settings, readable = find_settings(os.environ)
    try:
        child = child_process.ChildProcess(
            "install",
            environment={**settings, "HOME": os.path.expanduser("~"), "TMPDIR": str(part / SCRATCH)},
            readable=[*readable, str(environment.python.parents[1])],
            writable=[str(part)],
        )
        try:
            asked = {"folder": str(part), "python": str(environment.python)}
            failure = child.ask(asked, deadline_s=INSTALL_S)["failure"]
        except (child_process.ChildDied, child_process.ChildHung) as error:
            failure = str(error)
        finally:
            child.close()
        if failure is None and is_filled(part, MOST_BYTES, MOST_FILES):
            failure = f"they take more than {MOST_BYTES >> 30} GiB or {MOST_FILES:,} files"
        if failure is not None:
            raise BadInterpreter(f"the packages of {environment.file} cannot be installed: {failure}")
        shutil.rmtree(part / SCRATCH)
        part.rename(environment.folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def find_settings(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Returns the environment variables that pip gets, and the files that it may read."""
    settings = {name: value for name, value in environment.items() if PASSED_TO_PIP.fullmatch(name)}
    words = [urlsplit(word) for name, value in settings.items() if name[:3] != "XDG" for word in value.split()]
    # the path of https://host/ would be the root folder
    paths = [each.path for each in words if each.scheme in ("", "file")]
    return settings, [*map(os.path.expanduser, READ_BY_PIP), *filter(os.path.isabs, paths)]


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs pip in this process's sandbox. Returns {"failure": pip's error, or None}."""
    folder, python = request["folder"], request["python"]
    other = [] if Path(python) == Path(sys.executable).resolve() else ["--python", python]
    files = ["--requirement", f"{folder}/{LIST}", "--target", f"{folder}/{SITE}"]
    command = [sys.executable, "-P", "-m", "pip", *other, *PIP, *WHEELS, *files]
    with tempfile.TemporaryFile() as log:
        code = processes.start(command, environment=os.environ, log=log).wait()  # pip ends with this process
        log.seek(0)
        return {"failure": _read_failure(log.read().decode(errors="replace").splitlines()) if code else None}


def _read_failure(lines: Sequence[str]) -> str:
    """Returns pip's errors in one line."""
    errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR: ")]
    return "; ".join(errors or [line.strip() for line in lines if line.strip()][-1:] or ["pip printed nothing"])


def _remove_unused(cache: Path) -> None:
    """Deletes old environments that no process uses."""
    locks = sorted(cache.glob("*.lock"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in locks[KEPT_ENVIRONMENTS:]:
        with path.open("ab") as lock:
            if processes.try_lock(lock):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
