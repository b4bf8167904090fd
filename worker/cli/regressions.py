"""`tilewatch regressions`: parses, calls triage.py, prints. What the page does, from a terminal."""

import datetime as dt
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tilewatch.worker.cli import options

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class State(StrEnum):
    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    EXPECTED = "expected"
    RESOLVED = "resolved"
    REOPENED = "reopened"


regressions = typer.Typer(
    help="What got slower, for whom and why; take it, judge it, close it. Every change is on record with its name.",
    no_args_is_help=True,
)
Number = Annotated[int, typer.Argument(metavar="ID", help="A regression's number, as `regressions list` shows it.")]
Who = Annotated[str | None, typer.Option(metavar="NAME", help="Who makes the change. Without it, your account's name.")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who read its history.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


@regressions.command("list")
def list_(
    state: Annotated[
        list[State] | None, typer.Option(help="Repeat it for several. Without it: new, acknowledged and reopened.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every state.")] = False,
    kernel: Annotated[str | None, typer.Option(help="Only this kernel.")] = None,
    improvements: Annotated[bool, typer.Option("--improvements", help="What got faster instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """What is open, the newest first.

    Examples:

        tilewatch regressions list

        tilewatch regressions list --all --kernel gemm_fp8 --json
    """
    from tilewatch.db.lifecycle.regressions import OPEN
    from tilewatch.worker.cli import tables, triage

    states = None if every else tuple(each.value for each in state) if state else OPEN
    direction = "improvement" if improvements else "regression"
    rows = triage.found(options.ready_database(), states=states, kernel=kernel, direction=direction)
    if as_json:
        print(tables.as_json(rows))
    else:
        tables.show(tables.listed(rows))


@regressions.command()
def show(number: Number, as_json: AsJson = False) -> None:
    """One regression: its cause, its series, its history, and what was said of it to whom.

    Example: tilewatch regressions show 7
    """
    from tilewatch.worker.cli import tables, triage

    story = triage.story(options.ready_database(), number)
    if as_json:
        print(tables.as_json(story))
    else:
        tables.show(tables.told(story))


@regressions.command()
def acknowledge(number: Number, who: Who = None, note: Note = None) -> None:
    """You have seen it and look after it. Nobody's regression becomes yours.

    Example: tilewatch regressions acknowledge 7
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.acknowledge(opened, number, name, note))


@regressions.command()
def expect(number: Number, who: Who = None, note: Note = None) -> None:
    """It is as it should be: a new level starts, and later nights are judged against that.

    Example: tilewatch regressions expect 7 --note "bought accuracy with it"
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.expect(opened, number, name, note))


@regressions.command()
def resolve(number: Number, who: Who = None, note: Note = None) -> None:
    """It is mended. A regression whose series recover resolves by itself.

    Example: tilewatch regressions resolve 7 --note "reverted in 1a2b3c4d"
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.resolve(opened, number, name, note))


@regressions.command()
def reopen(number: Number, who: Who = None, note: Note = None) -> None:
    """It was closed too soon.

    Example: tilewatch regressions reopen 7
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.reopen(opened, number, name, note))


@regressions.command()
def assign(
    number: Number,
    owner: Annotated[str, typer.Argument(help="Who looks after it from now on; '' for nobody.")],
    who: Who = None,
) -> None:
    """Give it to somebody.

    Example: tilewatch regressions assign 7 grace
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.assign(opened, number, name, owner))


@regressions.command("note")
def note_(
    number: Number, text: Annotated[str, typer.Argument(help="The note; '' removes it.")], who: Who = None
) -> None:
    """Write its note. The notes before stay in its history.

    Example: tilewatch regressions note 7 "the swizzle is off for M < 64"
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.note(opened, number, name, text))


@regressions.command()
def link(
    number: Number, url: Annotated[str, typer.Argument(help="An issue, a pull request; '' for none.")], who: Who = None
) -> None:
    """Say where the work on it happens.

    Example: tilewatch regressions link 7 https://forge.example.org/issues/12
    """
    from tilewatch.db.lifecycle import regressions as life

    _change(number, who, lambda opened, name: life.link(opened, number, name, url))


@regressions.command()
def mark(
    number: Annotated[int, typer.Argument(metavar="ID", help="A regression's number, or with --run a run's.")],
    verdict: Annotated[Literal["right", "wrong"], typer.Argument(help="Was Tilewatch right?")],
    run: Annotated[bool, typer.Option("--run", help="ID is a run: its verdict was right or wrong.")] = False,
    who: Who = None,
    note: Note = None,
) -> None:
    """Say whether Tilewatch was right: `tilewatch regressions score` holds it to that.

    Examples:

        tilewatch regressions mark 7 wrong --note "the node was swapped that night"

        tilewatch regressions mark 4711 wrong --run
    """
    from tilewatch.db.lifecycle import regressions as life
    from tilewatch.worker.cli import triage

    right = verdict == "right"
    if run:
        triage.mark_run(options.ready_database(), number, triage.whoever(who), right=right, note=note)
        print(f"the verdict of run {number} is marked {verdict}")
        return
    _change(number, who, lambda opened, name: life.mark(opened, name, right=right, regression_id=number, note=note))


@regressions.command()
def rerun(number: Number, who: Who = None) -> None:
    """Measure its series once more at its commit. A worker queues that within a minute.

    Example: tilewatch regressions rerun 7
    """
    from tilewatch.worker.cli import triage

    print(triage.measure_again(options.ready_database(), number, triage.whoever(who)))


@regressions.command()
def bisect(number: Number, who: Who = None) -> None:
    """Test every commit of its range, which narrows it down. A worker queues that within a minute.

    Example: tilewatch regressions bisect 7
    """
    from tilewatch.worker.cli import triage

    print(triage.bisect(options.ready_database(), number, triage.whoever(who)))


@regressions.command()
def score(
    since: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Only what was judged since.")] = None,
    as_json: AsJson = False,
) -> None:
    """How well the judge does: precision, time to detect, false alarms against the budget, replays.

    Example: tilewatch regressions score --since 2026-11-01
    """
    from tilewatch.db.queries import judge_score
    from tilewatch.db.session import session
    from tilewatch.worker.cli import tables

    day = options.day(since)
    begin = None if day is None else dt.datetime.combine(day, dt.time(), dt.UTC)
    with session(options.ready_database()) as opened:
        found = judge_score.score(opened, begin)
    if as_json:
        print(tables.as_json(found))
    else:
        tables.show(tables.scored(found))


def _change(number: int, who: str | None, act: "Callable[[Session, str], None]") -> None:
    from tilewatch.worker.cli import triage

    name = triage.whoever(who)
    row = triage.change(options.ready_database(), number, lambda opened: act(opened, name)).regression
    print(f"regression {row.id} is {row.state}, owned by {row.owner or 'nobody'}")
