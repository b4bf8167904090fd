"""The commands `tilewatch regressions ...`, which do the same as the dashboard's page Regressions."""

import datetime as dt
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import AsJson, Who

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tilewatch.db.page_reads.messages import RegressionStory


State = StrEnum("State", ("NEW", "ACKNOWLEDGED", "EXPECTED", "RESOLVED", "REOPENED"))

regressions = typer.Typer(
    help="List, show and triage regressions. Every change is stored with the name of the person who made it.",
    no_args_is_help=True,
)
Number = Annotated[
    int,
    typer.Argument(metavar="ID", max=options.LARGEST_ID, help="A regression's number, as `regressions list` shows it."),
]
Note = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A note for the history of the regression: why you did this.")
]


@regressions.command("list")
def list_(
    state: Annotated[
        list[State] | None, typer.Option(help="Repeat it for several states. Default: new, acknowledged and reopened.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All states.")] = False,
    kernel: Annotated[str | None, typer.Option(help="Only this kernel.")] = None,
    improvements: Annotated[
        bool, typer.Option("--improvements", help="List improvements instead of regressions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List open regressions, the newest first.

    Examples:

        tilewatch regressions list

        tilewatch regressions list --all --kernel gemm_fp8 --json
    """
    from tilewatch.db.models import OPEN_REGRESSION
    from tilewatch.db.page_reads.regressions import list_regressions
    from tilewatch.worker.cli import tables

    states = None if every else state or OPEN_REGRESSION
    direction = "improvement" if improvements else "regression"
    with options.open_session() as opened:
        rows = [
            row
            for row in list_regressions(opened)
            if row.direction == direction
            and (states is None or row.state in states)
            and (kernel is None or row.kernel == kernel)
        ]
    tables.print_answer(rows, tables.draw_regressions, as_json=as_json)


@regressions.command()
def show(number: Number, as_json: AsJson = False) -> None:
    """Show one regression: its cause, its series, its history and the messages about it.

    Example: tilewatch regressions show 7
    """
    from tilewatch.worker.cli import tables

    with options.open_session() as opened:
        story = _read_story(opened, number)
    tables.print_answer(story, tables.draw_story, as_json=as_json)


def _add_triage(action: str, help: str, example: str = "7") -> None:
    """Adds the command `tilewatch regressions ACTION`, which changes the state of a regression."""

    @regressions.command(action, help=f"{help}\n\nExample: tilewatch regressions {action} {example}")
    def triage(number: Number, who: Who = None, note: Note = None) -> None:
        _change(number, who, lambda life, opened, name: life.triage(opened, number, action, name, note))


_add_triage("acknowledge", "Mark a regression as seen. If it has no owner, you become its owner.")
_add_triage(
    "expect",
    "Mark a regression as expected. Later nights are compared with the new level.",
    '7 --note "bought accuracy with it"',
)
_add_triage(
    "resolve",
    "Mark a regression as fixed. This happens by itself when its series are back at their old level.",
    '7 --note "reverted in 1a2b3c4d"',
)
_add_triage("reopen", "Open a regression again that was resolved or expected.")


@regressions.command()
def assign(
    number: Number, owner: Annotated[str, typer.Argument(help="The new owner; '' for nobody.")], who: Who = None
) -> None:
    """Change the owner of a regression.

    Example: tilewatch regressions assign 7 grace
    """
    _change(number, who, lambda life, opened, name: life.edit(opened, number, name, "owner", owner))


@regressions.command("note")
def note_(
    number: Number, text: Annotated[str, typer.Argument(help="The note; '' removes it.")], who: Who = None
) -> None:
    """Set the note of a regression. Its history keeps the earlier notes.

    Example: tilewatch regressions note 7 "the swizzle is off for M < 64"
    """
    _change(number, who, lambda life, opened, name: life.edit(opened, number, name, "note", text))


@regressions.command()
def link(
    number: Number,
    url: Annotated[str, typer.Argument(help="The address of an issue or a pull request; '' removes it.")],
    who: Who = None,
) -> None:
    """Link a regression to the issue or pull request where people work on it.

    Example: tilewatch regressions link 7 https://forge.example.org/issues/12
    """
    _change(number, who, lambda life, opened, name: life.edit(opened, number, name, "link", url))


@regressions.command()
def mark(
    number: Annotated[
        int,
        typer.Argument(
            metavar="ID", max=options.LARGEST_ID, help="The number of a regression, or with --run of a run."
        ),
    ],
    verdict: Annotated[Literal["right", "wrong"], typer.Argument(help="Was Tilewatch right?")],
    run: Annotated[
        bool, typer.Option("--run", help="ID is the number of a run; marks the verdict of that run.")
    ] = False,
    who: Who = None,
    note: Note = None,
) -> None:
    """Mark a regression or a verdict as right or wrong. `tilewatch regressions score` counts the marks.

    Examples:

        tilewatch regressions mark 7 wrong --note "the node was swapped that night"

        tilewatch regressions mark 4711 wrong --run
    """
    from tilewatch.db.lifecycle import regressions as life
    from tilewatch.db.page_reads.evidence import find_run

    right = verdict == "right"
    if not run:
        return _change(
            number,
            who,
            lambda life, opened, name: life.mark(opened, name, right=right, regression_id=number, note=note),
        )
    name = options.name_of(who)
    with options.open_session() as opened:
        if find_run(opened, number) is None:
            raise life.NoSuchRegression(f"there is no run {number}; the Series page shows the number of a run")
        life.mark(opened, name, right=right, run_id=number, note=note)
    print(f"the verdict of run {number} is marked {verdict}")


@regressions.command()
def rerun(number: Number, who: Who = None) -> None:
    """Measure the series of a regression again at its first bad commit. A worker queues this within a minute.

    Example: tilewatch regressions rerun 7
    """
    from tilewatch.db.lifecycle import actions
    from tilewatch.text import count_text, short_sha

    name = options.name_of(who)
    with options.open_session() as opened:
        row = actions.measure_again(opened, number, name)
    print(f"asked for {count_text(row.series, 'sweep')} of {short_sha(row.bad_sha)}")


@regressions.command()
def bisect(number: Number, who: Who = None) -> None:
    """Find the commit that caused a regression, by bisection: replays the series that slowed down most.

    Workers replay one commit after the other, before other work. At the end, the regression shows the commit.

    Example: tilewatch regressions bisect 7
    """
    from tilewatch.db.lifecycle import actions
    from tilewatch.text import short_sha

    name = options.name_of(who)
    with options.open_session() as opened:
        row = actions.bisect(opened, number, name)
    print(f"asked for a bisection of {row.commits_in_range} commits after {short_sha(row.good_sha)}")


@regressions.command()
def replay(
    run: Annotated[int, typer.Argument(metavar="RUN", max=options.LARGEST_ID, help="The number of an undecided run.")],
    who: Who = None,
) -> None:
    """Time an undecided run again beside the previously measured commit, before all sweeps. Then judge the run again.

    Example: tilewatch regressions replay 4711
    """
    from tilewatch.db.lifecycle import actions

    name = options.name_of(who)
    with options.open_session() as opened:
        print(actions.replay(opened, run, name))


@regressions.command()
def score(
    since: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Only verdicts of this day or later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how good the verdicts are: precision, time to detect, false alarms and how many are allowed, replays.

    Example: tilewatch regressions score --since 2026-11-01
    """
    from tilewatch.db.page_reads import judge_score
    from tilewatch.worker.cli import tables

    day = options.day(since)
    begin = None if day is None else dt.datetime.combine(day, dt.time(), dt.UTC)
    with options.open_session() as opened:
        score = judge_score.read_score(opened, begin)
    tables.print_answer(score, tables.draw_score, as_json=as_json)


def _change(number: int, who: str | None, act: Callable[[Any, "Session", str], None]) -> None:
    """Changes a regression by calling `act`, and prints its new state."""
    from tilewatch.db.lifecycle import regressions as life

    name = options.name_of(who)
    with options.open_session() as opened:
        act(life, opened, name)
        row = _read_story(opened, number).regression
    print(f"regression {row.id} is {row.state}, owned by {row.owner or 'nobody'}")


def _read_story(opened: "Session", number: int) -> "RegressionStory":
    from tilewatch.db.lifecycle.regressions import NoSuchRegression
    from tilewatch.db.page_reads.messages import find_story

    if (story := find_story(opened, number)) is None:
        raise NoSuchRegression(f"there is no regression {number}; `tilewatch regressions list` shows their numbers")
    return story
