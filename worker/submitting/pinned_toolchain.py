"""Asks for a comparison of two toolchains where the commit of a nightly pins another one than the night before did.

`kernels/toolchains/pins.py` decides; this reads the two commits. It is asked for once for each such change.
"""

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
    """Looks at the newest nightly of a repository. Returns a sentence about its pin; None where that is as before.

    Before the first nightly was its commit's parent. What neither commit pins, or only one of them, is not known to
    have changed.
    """
    database_url = settings.connection().database_url
    with session(database_url) as opened:
        shas = steps.list_nightly_shas(opened, name, 2)
        folder = watched.choose(opened, settings, name).folder
    shas += commits.first_parents(folder, shas[0], 2)[1:] if len(shas) == 1 else []
    if len(shas) < 2:
        return None
    after, before = (pins.read_pins(_find_lines(folder, sha)) for sha in shas)
    changed = pins.find_change(before, after)
    if not changed:
        return None
    moves = ", ".join(f"{package} {before[package]} -> {after[package]}" for package in changed)
    sentence = f"{short_sha(shas[0])} pins another compiler ({moves})"
    toolchains, installed = list_toolchains(settings.toolchains), versions(NEEDED)
    try:
        a, b = (pins.find_toolchain(each, changed, toolchains, installed) for each in (before, after))
    except BadPackages as error:
        return f"{sentence}, which are not compared: {error}"
    missing = [each.add for each in (a, b) if each.add is not None]
    if missing:
        compare = f"tilewatch submit toolchain {a.name} {b.name}"
        return f"{sentence}; to compare both on a compile worker: {' && '.join([*missing, compare])}"
    wanted = {"a": a.name, "b": b.name, "repository": name, "commit": shas[0], "gpus": []}
    with session(database_url) as opened:
        actions.ask_toolchains(opened, ITSELF, wanted, key=f"pins {name} {shas[0]} {a.name} {b.name}")
    return f"{sentence}; their comparison is asked for: {a.name} and {b.name}"


def _find_lines(folder: Path, sha: str) -> list[str]:
    """Finds the lines of a commit's lists that may name a compiler's package; none where its clone lacks the commit."""
    try:
        found = commits.git(folder, "grep", "-hIiE", "cuda[-_.]tile", sha, "--", *pins.FILES)
    except commits.RepositoryError:
        return []
    return found.splitlines()
