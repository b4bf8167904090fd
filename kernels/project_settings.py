"""Reads `[tool.tilewatch]`, a repository's settings in its pyproject.toml."""

from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from tilewatch.errors import ExpectedError
from tilewatch.given_files import MOST_TOML_BYTES, BadFile, NoFile, parse_toml, read_given_text

FILE = "pyproject.toml"
FILES = {"tuned": "src/tuned.json", "requirements": "requirements/kernels.txt"}
"""Maps each setting that names a file to an example."""


class BadProject(ExpectedError, ValueError):
    """Raised if a repository's settings are wrong."""


@dataclass(frozen=True)
class ProjectSettings:
    """A repository's settings for Tilewatch. All paths are relative to the repository."""

    watch: str | None = None  # folder of watch files
    path: tuple[str, ...] = ()  # folders from which the repository's packages are imported
    branch: str | None = None
    tuned: str | None = None  # file of tuned tables that the repository ships
    requirements: str | None = None


def read(folder: Path) -> ProjectSettings | None:
    """Returns the settings of a repository, or None if it has none. Raises BadProject if they are wrong."""
    file = folder / FILE
    try:
        return parse(read_given_text(file, MOST_TOML_BYTES), str(file))
    except NoFile:
        return None
    except BadFile as error:
        raise BadProject(str(error)) from None


def parse(text: str, where: str) -> ProjectSettings | None:
    """Returns the settings in the text of a pyproject.toml, or None. Raises BadProject if they are wrong."""
    try:
        tool = parse_toml(text).get("tool")
    except BadFile as error:
        raise BadProject(f"{where} cannot be read: {error}") from None
    table = tool.get("tilewatch") if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise BadProject(f"{where}: [tool.tilewatch] is a table")
    known = [each.name for each in fields(ProjectSettings)]
    for name in table:
        if name not in known:
            raise BadProject(f"{where}: [tool.tilewatch] has no setting {name!r}; it has {', '.join(known)}")
    path = table.get("path", [])
    if not isinstance(path, list) or not all(_is_folder(each) for each in path):
        raise BadProject(f'{where}: `path` of [tool.tilewatch] is a list of folders, as ["src"]')
    watch, branch = table.get("watch"), table.get("branch")
    if watch is not None and not _is_folder(watch):
        raise BadProject(f'{where}: `watch` of [tool.tilewatch] is a folder of the repository, as "watch"')
    if branch is not None and not isinstance(branch, str):
        raise BadProject(f'{where}: `branch` of [tool.tilewatch] is the name of a branch, as "main"')
    for name, example in FILES.items():
        if name in table and not _is_folder(table[name]):
            raise BadProject(f'{where}: `{name}` of [tool.tilewatch] is a file of the repository, as "{example}"')
    return ProjectSettings(watch, tuple(path), branch, *(table.get(name) for name in FILES))


def _is_folder(value: Any) -> bool:
    return isinstance(value, str) and not value.startswith("/") and ".." not in PurePosixPath(value).parts
