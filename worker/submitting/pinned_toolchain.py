"""Requests a toolchain comparison if a nightly's commit pins another compiler than the previous nightly."""

from pathlib import Path

from tilewatch.db.lifecycle import actions
from tilewatch.db.lifecycle.regressions import ITSELF
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.kernels.toolchains import pins
from tilewatch.kernels.toolchains.packages import NEEDED, BadPackages
from tilewatch.kernels.toolchains.toolchain import list_toolchains
from tilewatch.kernels.toolchains.versions import versions
from tilewatch.text import short_sha
from tilewatch.worker.git import commits, watched
from tilewatch.worker.settings import Settings


def ask_comparison(settings: Settings, name: str) -> str | None:
    """Requests a comparison if the two newest nightlies pin different toolchains. Returns a message, or None."""
    database_url = settings.connection().database_url
    with session(database_url) as opened:
        shas = steps.list_nightly_shas(opened, name, 2)
        folder = watched.choose(opened, settings, name).folder
    shas += commits.first_parents(folder, shas[0], 2)[1:] if len(shas) == 1 else []
    if len(shas) < 2:
        return None
    head, base = (pins.read_pins(_find_lines(folder, sha)) for sha in shas)
    changed = pins.find_change(base, head)
    if not changed:
        return None
    moves = ", ".join(f"{package} {base[package]} -> {head[package]}" for package in changed)
    sentence = f"{short_sha(shas[0])} pins another compiler ({moves})"
    toolchains, installed = list_toolchains(settings.toolchains), versions(NEEDED)
    try:
        a, b = (pins.find_toolchain(each, changed, toolchains, installed) for each in (base, head))
    except BadPackages as error:
        return f"{sentence}, which are not compared: {error}"
    missing = [each.add for each in (a, b) if each.add is not None]
    if missing:
        compare = f"tilewatch submit toolchain {a.name} {b.name}"
        return f"{sentence}; to compare both on a compile worker: {' && '.join([*missing, compare])}"
    wanted = {"toolchains": [a.name, b.name], "repository": name, "commit": shas[0], "gpus": []}
    with session(database_url) as opened:
        actions.ask(opened, ITSELF, "toolchains", wanted, f"pins {name} {shas[0]} {a.name} {b.name}")
    return f"{sentence}; their comparison is asked for: {a.name} and {b.name}"


def _find_lines(folder: Path, sha: str) -> list[str]:
    """Returns a commit's requirements that may name a compiler's package."""
    try:
        found = commits.git(folder, "grep", "-hIiE", "cuda[-_.]tile", sha, "--", *pins.FILES)
    except commits.RepositoryError:
        return []
    return found.splitlines()
