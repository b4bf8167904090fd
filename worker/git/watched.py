"""Finds the watched repositories: TILEWATCH_REPOSITORY, and those that `tilewatch watch add` added.

By default, TILEWATCH_REPOSITORY is Tilewatch's own checkout, which is only watched while no repository is added."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import commit_positions
from tilewatch.db.lifecycle import repositories as lifecycle
from tilewatch.db.models import Repository
from tilewatch.db.query_parts import take_turns
from tilewatch.db.repository_names import BRANCH_START, branch_without_toolchain, split_branch
from tilewatch.db.session import session
from tilewatch.db.worker_reads import repositories
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children import interpreters
from tilewatch.kernels.recording.git_commit import GitCommit, NoHistory, repository_name
from tilewatch.text import is_name
from tilewatch.worker.context import Context
from tilewatch.worker.git import checkouts, clones, commits, owner_python
from tilewatch.worker.git.branch_order import BranchOrder, order_branch
from tilewatch.worker.git.clones import Clone, FetchFailed
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.settings import Settings

OWN = "Tilewatch's Python"


@dataclass(frozen=True)
class WatchedRepository:
    """A watched repository on this node. `clone` is None for TILEWATCH_REPOSITORY, which Tilewatch never fetches."""

    name: str
    folder: Path  # the clone to read
    branch: str  # its first parents are the main line
    clone: Clone | None = None
    own_python: bool = False  # whether host code runs with the Python of the owner's environment


def list_watched(opened: Session, settings: Settings) -> list[WatchedRepository]:
    """Lists the watched repositories. TILEWATCH_REPOSITORY is first if it is watched."""
    rows = repositories.list_repositories(opened)
    added = [_of_clone(_clone(row, settings.clones), row.branch, row.own_python) for row in rows]
    if "repository" not in settings.model_fields_set and (added or not _has_git(settings.repository)):
        return added
    own = WatchedRepository(_own_name(settings.repository), settings.repository, settings.branch)
    return [own, *added] if own.name not in {each.name for each in added} else added


def list_names(database_url: str, settings: Settings) -> list[str]:
    with session(database_url) as opened:
        return [each.name for each in list_watched(opened, settings)]


def list_environments(database_url: str, settings: Settings) -> dict[str, str]:
    """Describes the environment of each repository that does not use Tilewatch's Python, by repository name."""
    with session(database_url) as opened:
        watched = list_watched(opened, settings)
    described = {each.name: describe_environment(each) for each in watched}
    return {name: words for name, words in described.items() if words != OWN}


def describe_environment(watched: WatchedRepository) -> str:
    """Describes the Python and the packages that run a repository's host code on this node."""
    python = owner_python.find(watched.clone) if watched.clone is not None and watched.own_python else None
    words = str(python or "nothing: --python is missing") if watched.own_python else OWN
    if not watched.folder.is_dir():
        return words
    try:
        packages = owner_python.find_environment(watched.folder, watched.branch, python)
    except (ExpectedError, OSError) as error:
        return f"{words}; {error}"
    if packages is None:
        return words
    return f"{words}; packages of {packages.file}: {'installed' if packages.is_built else 'not installed yet'}"


def choose(opened: Session, settings: Settings, name: str | None) -> WatchedRepository:
    """Returns the watched repository `name`. None selects the only repository, or TILEWATCH_REPOSITORY.
    Raises RepositoryError for an unknown name, or if None could select several repositories."""
    watched = list_watched(opened, settings)
    if not watched:
        raise RepositoryError("no repository is watched yet: `tilewatch watch add URL` (or a folder) adds one")
    if name is None and (len(watched) == 1 or watched[0].clone is None):
        return watched[0]
    names = ", ".join(each.name for each in watched)
    if name is None:
        dropped = describe_dropped(settings, watched)
        raise RepositoryError(f"several repositories are watched, so name the repository: {names}{dropped}")
    for each in watched:
        if each.name == split_branch(name)[0]:
            return each
    raise RepositoryError(
        f"no repository {name!r} is watched; those that are: {names}{describe_dropped(settings, watched)}"
    )


def describe_dropped(settings: Settings, watched: Sequence[WatchedRepository]) -> str:
    """Returns the end of an error message if TILEWATCH_REPOSITORY is not watched, else an empty text."""
    own = settings.repository
    if any(each.clone is None or each.name == _own_name(own) for each in watched) or not _has_git(own):
        return ""
    return f"; {own} is not watched beside others, unless TILEWATCH_REPOSITORY names it"


def choose_by_address(opened: Session, settings: Settings, addresses: Sequence[str]) -> WatchedRepository:
    """Returns the watched repository with one of these addresses, else the default repository of `choose`."""
    places = {_place(address) for address in addresses}
    for each in list_watched(opened, settings):
        if _place(each.clone.url if each.clone else each.name) in places:
            return each
    return choose(opened, settings, None)


def add(
    opened: Session,
    settings: Settings,
    address: str,
    *,
    name: str | None,
    branch: str | None,
    python: Path | None = None,
) -> WatchedRepository:
    """Clones a repository and starts to watch it. If the repository is watched already, only sets `python`."""
    if python is not None:
        owner_python.require(python)
    url = clones.clean_address(address)
    name = (name or url.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git")).strip()
    if BRANCH_START in name or not is_name(name):
        raise RepositoryError(f"{name!r} cannot be the name of a repository: choose another name")
    clone = clones.clone_of(name, url, settings.clones)
    known = repositories.find_repository(opened, name)
    if python is not None and known is not None and known.removed_at is None and known.url == url:
        lifecycle.require_own_python(opened, name)
        owner_python.write(clone, python)
        return _of_clone(clone, known.branch, True)
    lifecycle.require_free(opened, name, url)  # before the clone changes, which others may be reading
    clones.fetch(clone)
    commits.require_history(clone.folder)
    branch = branch or clones.choose_branch(clone)
    clones.follow(clone, branch)
    lifecycle.add(opened, name, url, branch, python is not None)
    if python is not None:
        owner_python.write(clone, python)
    added = _of_clone(clone, branch, python is not None)
    order_commits(opened, added, name, "HEAD")  # of another branch when it was watched before
    return added


def fetch(watched: WatchedRepository) -> str | None:
    """Fetches a repository's clone. Returns the error as a sentence if this fails but the clone is usable."""
    if watched.clone is None:
        return None
    try:
        clones.fetch(watched.clone)
        clones.follow(watched.clone, watched.branch)
    except FetchFailed as error:
        if not clones.has(watched.clone, f"refs/heads/{watched.branch}"):
            raise
        return str(error)
    return None


def read_order(opened: Session, watched: WatchedRepository) -> BranchOrder:
    """Returns the order of the commits of the followed branch. Raises RepositoryError if there is no such branch."""
    known = [each.sha for each in commit_positions.list_known(opened, watched.name)]
    return order_branch(watched.folder, commits.find_tips(watched.folder, watched.branch), known)


def order_commits(opened: Session, watched: WatchedRepository, stored_as: str, newest: str) -> int:
    """Stores the order of a branch's commits. Returns how many commits left the branch since the last call."""
    take_turns(opened, f"order of {stored_as}")
    branch = branch_without_toolchain(stored_as)
    if branch is None:
        tips = commits.find_tips(watched.folder, watched.branch)
    else:
        tips = commits.find_tips_of_branch(watched.folder, branch, newest)
    known = [each.sha for each in commit_positions.list_known(opened, stored_as)]
    order = order_branch(watched.folder, tips, known)
    return commit_positions.write_order(opened, stored_as, order.positions, order.left)


def resolve(watched: WatchedRepository, revision: str) -> GitCommit:
    """Returns the commit of a revision. Fetches a revision that the clone lacks."""
    try:
        found = commits.resolve(watched.folder, revision)
    except RepositoryError:
        if watched.clone is None:
            raise
        found = commits.resolve(watched.folder, clones.bring_revision(watched.clone, revision))
    return replace(found, repository=watched.name)


def library_at(context: Context, name: str, sha: str, library: str) -> Path:
    """Returns the library's folder in a checkout of a commit. Fetches the commit if this node lacks it."""
    row = _find(context, name)
    if row is None:  # a name that was never added stands for TILEWATCH_REPOSITORY
        own = WatchedRepository(name, context.repository, "HEAD")
        return library_of(own, sha, library, context.checkouts)
    if row.removed_at is not None:
        raise RepositoryError(f"{row.name} is not watched any more; `tilewatch watch add` takes it up again")
    clone = _clone(row, context.clones)
    clones.bring_commit(clone, sha)
    return library_of(_of_clone(clone, row.branch, row.own_python), sha, library, context.checkouts)


def library_of(watched: WatchedRepository, sha: str, library: str, cache: Path) -> Path:
    """Returns the library's folder in a checkout of a fetched commit. Also sets the Python that runs the library."""
    found = checkouts.checkout_library(watched.folder, sha, library, cache)
    if watched.clone is None:
        interpreters.use(found, None)
    else:
        owner_python.use(watched.clone, found, watched.own_python)
    return found


def find_history(opened: Session, context: Context, name: str) -> Path | None:
    """Returns the folder with a repository's Git history on this node; None if this node lacks the history."""
    row = repositories.find_repository(opened, name)
    if row is not None:
        folder = _clone(row, context.clones).folder
        return folder if folder.is_dir() else None
    return context.repository if _own_name(context.repository) == name else None


def _find(context: Context, name: str) -> Repository | None:
    with session(context.database_url) as opened:
        return repositories.find_repository(opened, split_branch(name)[0])


def _place(address: str) -> str:
    """Returns "host/path" of an address, which is equal for the https and ssh addresses of a repository."""
    parts = urlsplit(address)
    host, path = parts.hostname or "", parts.path
    if not parts.scheme and ":" in address:
        host, _, path = address.rpartition("@")[2].partition(":")
    return f"{host.lower()}/{path.strip('/').removesuffix('.git')}"


def _of_clone(clone: Clone, branch: str, own_python: bool) -> WatchedRepository:
    return WatchedRepository(clone.name, clone.folder, branch, clone, own_python)


def _clone(row: Repository, folder: Path) -> Clone:
    return clones.clone_of(row.name, row.url, folder)


def _has_git(folder: Path) -> bool:
    """Returns whether a folder is the top of a Git repository; False if the folder cannot be read."""
    try:
        return (folder / ".git").exists()
    except OSError:
        return False


def _own_name(folder: Path) -> str:
    """Returns the name of the repository in a folder, or the folder's name if there is no repository."""
    try:
        return repository_name(folder)
    except NoHistory:
        return folder.name
