"""Defines the parameters that several commands share, with functions that read them."""

import contextlib
import datetime as dt
import functools
import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tilewatch.errors import ExpectedError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tilewatch.worker.settings import Settings

Commit = Annotated[str, typer.Option(metavar="REV", help="A branch, a tag, a sha: any revision that Git knows.")]
Repository = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The watched repository, where there are several; `tilewatch watch list`."),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="MODEL", help="A GPU model such as h200 or b200. Repeat it for several models."),
]
Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Your name, to be stored with this action. Default: your login name.")
]
FailOver = Annotated[
    str,
    typer.Option(metavar="PER_CENT", help="Exit with 1 if something is surely slower by more than this, such as 2%."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end, and say by the exit code how it ended.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
AsJsonList = Annotated[bool, typer.Option("--json", help="Print a JSON list, for programs.")]
OneRepository = Annotated[
    str | None, typer.Option(metavar="NAME", help="The repository, where the database has several.")
]
OnlyKernel = Annotated[str | None, typer.Option("--kernel", help="Only this kernel.")]
OnlyGpu = Annotated[str | None, typer.Option("--gpu", metavar="MODEL", help="Only this GPU model.")]

LARGEST_ID = 2**63 - 1
"""The largest id that a row can have in Postgres."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells expect it. The code 1 would mean "slower"."""


OWN_WORDS = {
    r"Input should be a valid integer.*": "a whole number is expected",
    r"Input should be a valid number.*": "a number is expected",
    r"Input should be less than or equal to (.*)": r"at most \1 is expected",
    r"Input should be greater than or equal to (.*)": r"at least \1 is expected",
}
"""Maps patterns of Typer's error messages to the text that is printed instead."""


class Commands(TyperGroup):
    """A group of commands that replaces some of Typer's error messages by those in OWN_WORDS."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            for pattern, words in OWN_WORDS.items():
                error.message = re.sub(pattern, words, error.message)
            raise


class NoName(ExpectedError):
    """Raised if the name of a user is empty or reserved for Tilewatch."""


def warn_of(old: str, new: str) -> Callable[[], None]:
    """Returns a function that prints a warning about a renamed command."""
    return lambda: print(f"tilewatch: `{old}` is `{new}` now; the old name works for one release", file=sys.stderr)


def add_old_name(group: typer.Typer, old: str, command: Callable[..., None], new: str) -> None:
    """Keeps the old name of a command as a hidden command, which also prints a warning."""
    warn = warn_of(f"{new.rpartition(' ')[0]} {old}", new)

    @group.command(old, hidden=True)
    @functools.wraps(command)
    def renamed(*arguments: Any, **options: Any) -> None:
        warn()
        command(*arguments, **options)


def settings() -> "Settings":
    from tilewatch.worker.settings import Settings

    return Settings.load()


def ready_database() -> str:
    """Returns the database's URL. Raises ExpectedError if Postgres is not there or has another release's tables."""
    from tilewatch.db.migrate import require_head
    from tilewatch.db.session import require_database

    database_url = settings().connection().database_url
    require_database(database_url)
    require_head(database_url)
    return database_url


@contextlib.contextmanager
def open_session() -> "Iterator[Session]":
    """Yields a database session, which is committed at the end."""
    from tilewatch.db.session import session

    with session(ready_database()) as opened:
        yield opened


def require_repository(database_url: str, name: str) -> None:
    """Raises ExpectedError if a repository has no results."""
    from tilewatch.db.page_reads.series import list_repositories
    from tilewatch.db.session import session

    with session(database_url) as opened:
        names = list_repositories(opened)
    if name not in names:
        raise ExpectedError(f"no repository '{name}' has results; those that have: {', '.join(names) or 'none'}")


def run_dashboard_program(module: str, order: Mapping[str, Any], database_url: str) -> NoReturn:
    """Runs a module of the dashboard as a program, and exits with the program's exit code."""
    import subprocess  # a process, because workers do not import the dashboard and may lack its packages

    from tilewatch.worker.settings import CHECKOUT

    environment = {**os.environ, "TILEWATCH_DATABASE_URL": database_url}
    line = [sys.executable, "-m", f"tilewatch.dashboard.{module}", json.dumps(order)]
    raise typer.Exit(subprocess.run(line, cwd=CHECKOUT, env=environment, check=False).returncode)


def day(text: str | None) -> dt.date | None:
    try:
        found = None if text is None else dt.date.fromisoformat(text)
    except ValueError:
        found = dt.date.min
    if found is not None and found.year < 2000:
        raise typer.BadParameter(f"{text} is not a day since 2000; expected YYYY-MM-DD, such as 2026-11-01")
    return found


def name_of(who: str | None) -> str:
    """Returns the user's name. Raises NoName if the name is empty or reserved for Tilewatch."""
    from tilewatch.db.lifecycle.regressions import ITSELF

    try:
        name = (who if who is not None else getpass.getuser()).strip()
    except (KeyError, OSError):  # an account without a name, as in some containers
        name = ""
    # Root may be any person.
    if who is None and name == "root" and sys.stdin.isatty():
        name = str(typer.prompt("Your name, to be stored with this action")).strip()
    if not name or name == ITSELF:
        raise NoName("say who you are with --who NAME: every action is stored with a name")
    return name
