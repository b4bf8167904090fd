"""Checks the requirements of Tilewatch on this machine, and explains how to meet missing ones."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from tilewatch import errors
from tilewatch.db.models import Repository
from tilewatch.kernels.children import gpu_user, sandbox
from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.kernels.device import OLDEST_DRIVER, Gpu, gpus
from tilewatch.kernels.toolchains.toolchain import Toolchain, list_toolchains
from tilewatch.text import short_sha
from tilewatch.worker.detection import policy as policies
from tilewatch.worker.local import port
from tilewatch.worker.local.doctor_servers import Finding, list_server_findings, list_worker_findings, runs_here
from tilewatch.worker.local.secret_files import find_weaknesses, list_sign_in_files
from tilewatch.worker.notify import routing
from tilewatch.worker.settings import CHECKOUT, Settings

PYTHONS = ((3, 11), (3, 13))
ROOMY_BYTES = 5 << 30  # the packages take 1.3 GB (with DeepGEMM's torch several more), a night's cubins some 100 MB
PACKAGED_CUDA = Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
"""The folder with the programs and headers in NVIDIA's Python packages for CUDA 13."""


def report(settings: Settings) -> tuple[Finding, ...]:
    gpus_here = gpus()
    examinations: tuple[Callable[[], Finding], ...] = (
        _python,
        partial(_program, "git", "--version"),
        partial(_program, "setpriv", "--version", package="util-linux"),
        partial(_repository, settings),
        partial(_package, "tile compiler", ("cuda-tile", "nvidia-cuda-tileiras"), "make install"),
        partial(_compiler, settings.compiler),
        partial(_nvidia_program, "cuobjdump"),
        partial(_nvidia_program, "nvdisasm"),
        _sandbox,
        partial(_folder, settings.home),
        partial(_disk, settings.home),
        partial(_store, settings.store_url),
        partial(_dashboard, settings),
        partial(_channels, settings),
        partial(_policy, settings.policy),
        partial(_secrets, settings),
    )
    findings = [_guarded(each) for each in examinations]
    findings += [_toolchain(each) for each in list_toolchains(settings.toolchains)]
    added = _added_repositories(settings)
    findings += [_owner_python(settings, row) for row in added if row.own_python]
    findings += [each for row in added for each in _packages(settings, row)]
    findings += list_server_findings(settings)
    findings += list_worker_findings(settings, gpus_here)
    findings += [_user_on(gpu) for gpu in gpus_here if gpu_user.is_of_root()]
    findings += [_gpu(gpu) for gpu in gpus_here] or [
        Finding("GPU", None, "no NVIDIA GPU or no driver: this machine compiles sweeps and measures none")
    ]
    findings += _measuring(needed=bool(gpus_here))
    return tuple(findings)


def _guarded(examine: Callable[[], Finding]) -> Finding:
    """Returns the result of an examination. An error becomes a finding too."""
    try:
        return examine()
    except (OSError, ValueError, ImportError, subprocess.SubprocessError) as error:
        name = examine.func.__name__ if isinstance(examine, partial) else getattr(examine, "__name__", "examination")
        return Finding(name.strip("_"), False, f"{type(error).__name__}: {error}")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    oldest, newest = (".".join(map(str, wanted)) for wanted in PYTHONS)
    fits = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Finding("Python", fits, version, None if fits else f"use Python {oldest} to {newest}")


def _program(name: str, *question: str, package: str | None = None) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, False, "missing", f"apt-get install {package or name}")
    output = subprocess.run([path, *question], capture_output=True, text=True, timeout=10, check=False).stdout
    return Finding(name, True, output.strip().splitlines()[0] if output.strip() else path)


def _repository(settings: Settings) -> Finding:
    from tilewatch.worker.git.commits import RepositoryError, resolve

    added = _added_repositories(settings)
    failures = [row.failure for row in added if row.failure is not None]
    if failures:
        return Finding("repository", False, "; ".join(failures), "docs/start/repositories.md says what git needs")
    if added and "repository" not in settings.model_fields_set:
        return Finding("repository", True, ", ".join(row.name for row in added))
    if "repository" not in settings.model_fields_set and not (settings.repository / ".git").exists():
        return Finding("repository", None, "none is watched yet", "tilewatch watch add URL")
    try:
        head = resolve(settings.repository, "HEAD")
    except RepositoryError as error:
        fix = "set TILEWATCH_REPOSITORY to a Git clone with history, or use `tilewatch watch add`"
        return Finding("repository", False, str(error), fix)
    return Finding("repository", True, f"{settings.repository} at {short_sha(head.sha)} ({head.subject})")


def _added_repositories(settings: Settings) -> list[Repository]:
    """Lists the repositories that `tilewatch watch add` added; none if the database cannot be read."""
    from tilewatch.db import session
    from tilewatch.db.worker_reads import repositories

    try:
        with session.session(settings.connection().database_url) as opened:
            return repositories.list_repositories(opened)
    except (errors.ExpectedError, SQLAlchemyError):
        return []


def _channels(settings: Settings) -> Finding:
    """Returns a finding about notify.toml, without sending a message."""
    example = "docs/use/notify.example.toml is an example"
    try:
        channels = routing.load(settings.notify_file).channels
    except routing.BadNotifySettings as error:
        return Finding("channels", False, str(error), example)
    if not channels:
        return Finding("channels", None, "none: messages go to the log only", example)
    if settings.forge_token is None and any(channel.forge for channel in channels.values()):
        return Finding("channels", False, "a forge needs a token", "set TILEWATCH_FORGE_TOKEN")
    return Finding("channels", True, ", ".join(channels))


def _policy(path: Path | None) -> Finding:
    """Returns a finding about the judge's policy file."""
    try:
        return Finding("policy", True, f"{policies.load(path).name}{f' ({path})' if path else ''}")
    except policies.BadPolicy as error:
        return Finding("policy", False, str(error), "correct the file, or leave TILEWATCH_POLICY out")


def _secrets(settings: Settings) -> Finding:
    files = [settings.connection_file, settings.home / "secrets.json", *list_sign_in_files([CHECKOUT, Path.cwd()])]
    weaknesses = find_weaknesses(dict.fromkeys([*files, *([settings.notify_file] if settings.notify_file else [])]))
    if weaknesses:
        fixes = "; ".join(each.fix for each in weaknesses)
        return Finding("secrets", False, "; ".join(each.sentence for each in weaknesses), fixes)
    return Finding("secrets", True, "files with passwords and tokens are closed to other users")


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
    from tilewatch.kernels.toolchains.versions import compiler_version

    here = compiler_version()
    if wanted is None:
        return Finding("TILEWATCH_COMPILER", None, f"not set; to hold a fleet to this machine's: {here}")
    fix = None if here == wanted else "make install of the release that has it, or change TILEWATCH_COMPILER"
    return Finding(
        "TILEWATCH_COMPILER", here == wanted, here if here == wanted else f"wants {wanted}, here is {here}", fix
    )


def _toolchain(toolchain: Toolchain) -> Finding:
    """Returns a finding about a toolchain, after compiling with it. This takes two seconds."""
    from tilewatch.kernels.compiling.compile_children import BuildError
    from tilewatch.kernels.compiling.trial import require_compiles

    name, versions = f"toolchain {toolchain.name}", ", ".join(f"{name} {at}" for name, at, _ in toolchain.packages)
    try:
        require_compiles(toolchain)
    except BuildError as error:
        again = f"`tilewatch toolchain remove {toolchain.name}` and add it again"
        return Finding(name, False, f"{versions}: {error}", again)
    return Finding(name, True, f"{versions}: compiles")


def _owner_python(settings: Settings, row: Repository) -> Finding:
    """Returns a finding about the Python that runs a repository's host code. This takes two seconds."""
    from tilewatch.worker.git import clones, owner_python

    python = owner_python.find(clones.clone_of(row.name, row.url, settings.clones))
    name, fix = f"Python of {row.name}", f"tilewatch watch add {row.url} --name {row.name} --python PYTHON"
    if python is None:
        return Finding(name, None, "this node has none: other nodes record the repository", fix)
    try:
        owner_python.require(python)
    except owner_python.BadPython as error:
        return Finding(name, False, str(error), fix)
    return Finding(name, True, f"{python} records with Tilewatch's compiler")


def _packages(settings: Settings, row: Repository) -> Iterator[Finding]:
    """Yields a finding about the Python packages that a repository requires."""
    from tilewatch.worker.git import clones, owner_python

    name = f"packages of {row.name}"
    clone = clones.clone_of(row.name, row.url, settings.clones)
    if not clone.folder.is_dir():
        return
    try:
        found = owner_python.find_environment(clone.folder, row.branch, owner_python.find(clone))
    except errors.ExpectedError as error:
        yield Finding(name, False, str(error), "correct the file, and commit it")
        return
    if found is not None and found.is_built:
        yield Finding(name, True, f"{found.file} is installed in {found.folder}")
    elif found is not None:
        yield Finding(name, None, f"{found.file} is not installed yet", "a job that runs its host code installs it")


def _nvidia_program(name: str) -> Finding:
    from tilewatch.kernels.compiling.programs import ProgramMissing, find_program

    try:
        return Finding(name, True, find_program(name))
    except ProgramMissing as error:
        return Finding(name, False, str(error), "make install")


OTHER_APART = {
    sandbox.Apart.ALWAYS: "; host code that only its own process can measure is refused, whatever its watch file says",
    sandbox.Apart.NEVER: "; host code may be measured by its own process, whatever its watch file says",
}
"""Maps values of TILEWATCH_REQUIRE_APART to the text that ends the finding about the sandbox; others add no text."""


def _sandbox() -> Finding:
    level, gpu_level = sandbox.find_level(), sandbox.find_gpu_level()
    found = f"a library's code is kept from {level.value}; while it measures on a GPU, from {gpu_level.value}"
    found += OTHER_APART.get(sandbox.find_apart(), "")
    if level is sandbox.Level.FULL:
        return Finding("sandbox", True, found)
    fix = f"Linux 5.13 or newer with Landlock and seccomp, and {sandbox.SWITCH} not `off` (docs/operate/security.md)"
    return Finding("sandbox", False if sandbox.is_required() else None, found, fix)


def _user_on(gpu: Gpu) -> Finding:
    refusal = gpu_user.find_refusal(gpu.uuid, ChildProcess)
    if refusal is None:
        return Finding(f"users on GPU {gpu.index}", True, "a library's code has a user of its own; it was tried")
    fix = "run the workers as an ordinary user (docs/operate/security.md)"
    return Finding(f"users on GPU {gpu.index}", None, f"a library's code runs as root: {refusal}", fix)


def _folder(home: Path) -> Finding:
    existing = _first_existing(home)
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    state = "exists" if existing == home else "will be created"
    fix = None if writable else "choose another folder with TILEWATCH_HOME"
    return Finding("data folder", writable, f"{home} ({state if writable else 'not writable'})", fix)


def _disk(home: Path) -> Finding:
    free_bytes = shutil.disk_usage(_first_existing(home)).free
    roomy = free_bytes >= ROOMY_BYTES
    fix = None if roomy else "free some, or choose a folder on another disk with TILEWATCH_HOME"
    return Finding("disk space", roomy, f"{free_bytes / 1e9:.0f} GB free", fix)


def _store(url: str) -> Finding:
    try:
        CubinStore(url).require_access(writes=False)
    except StoreError as error:
        return Finding(
            "cubin store", False, str(error), "TILEWATCH_STORE_URL names a folder, or a bucket that is there"
        )
    return Finding("cubin store", True, url)


def _first_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _dashboard(settings: Settings) -> Finding:
    number = settings.port
    if port.healthy(number) and not runs_here(settings):
        return Finding(
            "dashboard", False, f"port {number}: another Tilewatch answers", "choose another with TILEWATCH_PORT"
        )
    if port.healthy(number):
        return Finding("dashboard", True, f"answers at http://localhost:{number}")
    if reason := port.taken(number):
        return Finding("dashboard", False, f"port {number}: {reason}", "choose another with TILEWATCH_PORT")
    return Finding("dashboard", None, f"not running; port {number} is free", "make up")


def _gpu(gpu: Gpu) -> Finding:
    name, card = f"GPU {gpu.index}", f"{gpu.name}, driver {gpu.driver}"
    if gpu.model is None:
        return Finding(name, False, f"{card}: cuTile compiles for sm_80 and later", "use a newer GPU")
    major = gpu.driver.split(".")[0]
    if not major.isdigit() or int(major) < OLDEST_DRIVER:
        return Finding(name, False, card, f"install NVIDIA driver {OLDEST_DRIVER} or newer")
    if gpu.model.bandwidth_gbps is None:
        return Finding(name, True, f"{card}: works as {gpu.model.slug}, without a roofline: its rates are not known")
    return Finding(name, True, card)


def _measuring(*, needed: bool) -> Iterator[Finding]:
    """Yields findings about requirements of machines with a GPU."""
    fix = "make install on a machine with an NVIDIA GPU" if not needed else "make install"
    yield _package("CuPy", ("cupy-cuda13x",), fix, needed=needed)
    yield _package("NVML", ("nvidia-ml-py",), f"{fix}; without it the health of GPUs is not checked", needed=needed)
    yield _package("CUPTI", ("cupti-python",), f"{fix}; without it CUDA events time the kernels", needed=needed)
    yield _package("DeepGEMM", ("sgl-deep-gemm", "torch"), fix, needed=needed)
    compiler = nvcc()
    if compiler:
        yield Finding("nvcc", True, str(compiler))
    else:
        yield Finding("nvcc", False if needed else None, "missing: DeepGEMM compiles its kernels with it", fix)


def nvcc() -> Path | None:
    """Returns the path of nvcc; None if this machine has none."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = shutil.which("nvcc")
    paths = [*(Path(home, "bin", "nvcc") for home in named), *([Path(on_path)] if on_path else [])]
    paths += [Path(home, "bin", "nvcc") for home in ("/usr/local/cuda", PACKAGED_CUDA)]
    return next((path for path in paths if os.access(path, os.X_OK)), None)
