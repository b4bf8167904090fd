"""What Tilewatch needs, what this machine has of it, and how to get the rest. Looks only: starts and changes nothing.

The GPU's packages are asked for by name and never imported: torch alone takes seconds and a context on the GPU.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tilewatch import errors
from tilewatch.db.server.embedded import Servers
from tilewatch.kernels.device import OLDEST_DRIVER, Gpu, gpus
from tilewatch.text import short_sha
from tilewatch.worker.local import port
from tilewatch.worker.notify import routing
from tilewatch.worker.settings import NotRunning, Settings

PYTHONS = ((3, 11), (3, 13))
ROOMY_BYTES = 5 << 30  # the packages take 1.3 GB (with DeepGEMM's torch several more), a night's cubins some 100 MB
PACKAGED_CUDA = Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
"""Where NVIDIA's PyPI packages of CUDA 13 put their programs and headers."""


@dataclass(frozen=True)
class Finding:
    """`ok` is None where the thing is missing and nothing that this machine can do needs it."""

    name: str
    ok: bool | None
    found: str
    fix: str | None = None


def report(settings: Settings) -> tuple[Finding, ...]:
    boards = gpus()
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        partial(_program, "git", "--version"),
        partial(_program, "setpriv", "--version", package="util-linux"),
        partial(_repository, settings.repository),
        partial(_package, "tile compiler", ("cuda-tile", "nvidia-cuda-tileiras"), "make install"),
        partial(_compiler, settings.compiler),
        _cuobjdump,
        partial(_folder, settings.home),
        partial(_disk, settings.home),
        partial(_dashboard, settings.port),
        partial(_channels, settings),
    )
    findings = [_guarded(check) for check in checks]
    findings += _servers(settings)
    findings += (_guarded(partial(_worker, *place)) for place in _places(settings, boards))
    findings += [_gpu(board) for board in boards] or [
        Finding("GPU", None, "no NVIDIA GPU or no driver: sweeps are compiled here, not measured")
    ]
    findings += _measuring(needed=bool(boards))
    return tuple(findings)


def _guarded(check: Callable[[], Finding]) -> Finding:
    """A report that breaks at the first broken thing is of no use; what a check stumbles over is its finding."""
    try:
        return check()
    except (OSError, ValueError, ImportError, subprocess.SubprocessError) as error:
        name = check.func.__name__ if isinstance(check, partial) else getattr(check, "__name__", "check")
        return Finding(name.strip("_"), False, f"{type(error).__name__}: {error}")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    oldest, newest = (".".join(map(str, wanted)) for wanted in PYTHONS)
    fits = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Finding("Python", fits, version, None if fits else f"use Python {oldest} to {newest}")


def _program(name: str, *question: str, package: str | None = None) -> Finding:
    found = shutil.which(name)
    if found is None:
        return Finding(name, False, "missing", f"apt-get install {package or name}")
    said = subprocess.run([found, *question], capture_output=True, text=True, timeout=10, check=False).stdout
    return Finding(name, True, said.strip().splitlines()[0] if said.strip() else found)


def _repository(repository: Path) -> Finding:
    from tilewatch.worker.repository import RepositoryError, resolve

    try:
        head = resolve(repository, "HEAD")
    except RepositoryError as error:
        return Finding("repository", False, str(error), "set TILEWATCH_REPOSITORY to a Git clone with history")
    return Finding("repository", True, f"{repository} at {short_sha(head.sha)} ({head.subject})")


def _channels(settings: Settings) -> Finding:
    """Where people are told; whether a service takes a message is for `tilewatch tell check`."""
    example = "docs/tell.example.toml is an example"
    try:
        known = routing.load(settings.tell_file).channels
    except routing.BadTelling as error:
        return Finding("channels", False, str(error), example)
    if not known:
        return Finding("channels", None, "regressions are told to the log alone", example)
    if settings.forge_token is None and any(channel.forge for channel in known.values()):
        return Finding("channels", False, "a forge is named and no token for it", "set TILEWATCH_FORGE_TOKEN")
    return Finding("channels", True, ", ".join(known))


def _package(name: str, distributions: Iterable[str], fix: str, *, needed: bool = True) -> Finding:
    versions, missing = [], []
    for distribution in distributions:
        try:
            versions.append(f"{distribution} {importlib.metadata.version(distribution)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(distribution)
    if missing:
        return Finding(name, False if needed else None, f"missing: {', '.join(missing)}", fix)
    return Finding(name, True, ", ".join(versions))


def _compiler(wanted: str | None) -> Finding:
    from tilewatch.kernels.compiling.toolchain import compiler_version

    here = compiler_version()
    if wanted is None:
        return Finding("TILEWATCH_COMPILER", None, f"not set; to hold a fleet to this machine's: {here}")
    fix = None if here == wanted else "make install of the release that has it, or change TILEWATCH_COMPILER"
    return Finding(
        "TILEWATCH_COMPILER", here == wanted, here if here == wanted else f"wants {wanted}, here is {here}", fix
    )


def _cuobjdump() -> Finding:
    from tilewatch.kernels.compiling.cubin import CuobjdumpMissing, cuobjdump

    try:
        return Finding("cuobjdump", True, cuobjdump())
    except CuobjdumpMissing as error:
        return Finding("cuobjdump", False, str(error), "make install")


def _folder(home: Path) -> Finding:
    standing = _first_existing(home)
    writable = standing.is_dir() and os.access(standing, os.W_OK | os.X_OK)
    state = "exists" if standing == home else "will be made"
    fix = None if writable else "choose another folder with TILEWATCH_HOME"
    return Finding("data folder", writable, f"{home} ({state if writable else 'not writable'})", fix)


def _disk(home: Path) -> Finding:
    free_bytes = shutil.disk_usage(_first_existing(home)).free
    roomy = free_bytes >= ROOMY_BYTES
    fix = None if roomy else "free some, or choose a folder on another disk with TILEWATCH_HOME"
    return Finding("disk space", roomy, f"{free_bytes / 1e9:.0f} GB free", fix)


def _first_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _dashboard(number: int) -> Finding:
    if port.healthy(number):
        return Finding("dashboard", True, f"answers at http://localhost:{number}")
    if reason := port.taken(number):
        return Finding("dashboard", False, f"port {number}: {reason}", "choose another with TILEWATCH_PORT")
    return Finding("dashboard", None, f"not running; port {number} is free", "make up")


def _servers(settings: Settings) -> Iterator[Finding]:
    try:
        servers = settings.connection()
    except NotRunning as error:
        yield Finding("Postgres and Redis", None, str(error))
        return
    for name, check in (("Postgres", _postgres), ("Redis", _redis)):
        try:
            yield Finding(name, True, f"answers at {check(servers)}")
        except Exception as error:
            sentence = errors.sentence(error)
            if sentence is None:
                raise
            yield Finding(name, False, sentence, "make up, or correct TILEWATCH_DATABASE_URL and TILEWATCH_BROKER_URL")


def _postgres(servers: Servers) -> str:
    from tilewatch.db import migrate, session

    session.check(servers.database_url)
    migrate.require_head(servers.database_url)
    return session.address(servers.database_url)


def _redis(servers: Servers) -> str:
    from tilewatch.worker.queue import dispatch

    dispatch.check(servers.broker_url)
    return dispatch.address(servers.broker_url)


def _places(settings: Settings, boards: Sequence[Gpu]) -> Iterator[tuple[str, str, int]]:
    """Where the workers that may run on this machine would answer."""
    address = settings.health_address
    yield "compile worker", address, settings.compile_health_port
    yield "judge worker", address, settings.judge_health_port
    if settings.gpu_health_port:
        for board in boards:
            yield f"worker of GPU {board.index}", address, settings.gpu_health_port + board.index


def _worker(name: str, address: str, number: int) -> Finding:
    """What its health endpoint says; not running here is no fault."""
    if not number:
        return Finding(name, None, "has no health endpoint")
    host = "127.0.0.1" if address == "0.0.0.0" else address  # noqa: S104 - only to be asked
    connection = HTTPConnection(host, number, timeout=10)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace").strip()
    except (OSError, HTTPException):
        return Finding(name, None, f"does not run here (nothing answers at {host}:{number})")
    finally:
        connection.close()
    well = answer.status == HTTPStatus.OK
    return Finding(name, well, said, None if well else "docs/operations.md says what each sentence asks for")


def _gpu(board: Gpu) -> Finding:
    name, found = f"GPU {board.index}", f"{board.name}, driver {board.driver}"
    if board.model is None:
        return Finding(name, False, f"{found}: a model that Tilewatch does not know", "add it to kernels/device.py")
    major = board.driver.split(".")[0]
    if not major.isdigit() or int(major) < OLDEST_DRIVER:
        return Finding(name, False, found, f"install NVIDIA driver {OLDEST_DRIVER} or newer")
    return Finding(name, True, found)


def _measuring(*, needed: bool) -> Iterator[Finding]:
    """What only a machine with a GPU needs."""
    fix = "make install on a machine with an NVIDIA GPU" if not needed else "make install"
    yield _package("CuPy", ("cupy-cuda13x",), fix, needed=needed)
    yield _package("NVML", ("nvidia-ml-py",), f"{fix}; without it a GPU's health is not watched", needed=needed)
    yield _package("CUPTI", ("cupti-python",), f"{fix}; without it CUDA events time the kernels", needed=needed)
    yield _package("DeepGEMM", ("sgl-deep-gemm", "torch"), fix, needed=needed)
    compiler = nvcc()
    if compiler:
        yield Finding("nvcc", True, str(compiler))
    else:
        yield Finding("nvcc", False if needed else None, "missing: DeepGEMM compiles its kernels with it", fix)


def nvcc() -> Path | None:
    """The CUDA compiler: the one asked for, the machine's, or the one that came with the tile compiler's packages."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = shutil.which("nvcc")
    places = [*(Path(home, "bin", "nvcc") for home in named), *([Path(on_path)] if on_path else [])]
    places += [Path(home, "bin", "nvcc") for home in ("/usr/local/cuda", PACKAGED_CUDA)]
    return next((place for place in places if os.access(place, os.X_OK)), None)
