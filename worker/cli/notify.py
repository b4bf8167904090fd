"""`tilewatch tell`: the channels, and what was told on them. Parses, calls, prints."""

from typing import Annotated

import typer

from tilewatch.worker.cli import options

tell = typer.Typer(
    help="What people are told: the channels, what was sent, what could not be, the alarms that stand.",
    no_args_is_help=True,
)


@tell.command()
def check() -> None:
    """Send one message through every channel of TILEWATCH_TELL, and say what each service answers.

    Example: tilewatch tell check
    """
    from tilewatch.worker.notify import outbox

    outcomes = outbox.check(outbox.Outbox.of(options.settings()))
    for channel, outcome in outcomes.items():
        print(f"{channel}: {outcome.trouble or 'taken'}")
    if any(outcome.trouble for outcome in outcomes.values()):
        raise typer.Exit(1)


@tell.command()
def messages(
    failed: Annotated[bool, typer.Option("--failed", help="Only those that were given up.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """The newest messages: sent, waiting, held for quiet hours, given up and why.

    Example: tilewatch tell messages --failed
    """
    from tilewatch.db.queries import messages as message_queries
    from tilewatch.db.session import session
    from tilewatch.worker.cli import tables

    with session(options.ready_database()) as opened:
        rows = message_queries.messages(opened, states=("failed",) if failed else None)
    if as_json:
        print(tables.as_json(rows))
    else:
        tables.show(tables.messages(rows))


@tell.command()
def alarms(
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """What stands now and is no regression of a time: late nightlies, ill GPUs, configs that stopped compiling, ...

    Example: tilewatch tell alarms
    """
    from tilewatch.db.queries import alarms as alarm_queries
    from tilewatch.db.session import session
    from tilewatch.worker.cli import tables

    with session(options.ready_database()) as opened:
        rows = alarm_queries.alarms(opened)
    if as_json:
        print(tables.as_json(rows))
    else:
        tables.show(tables.alarms(rows))


@tell.command()
def again(ids: Annotated[list[int], typer.Argument(metavar="ID...", help="Messages that were given up.")]) -> None:
    """Send messages once more that were given up.

    Example: tilewatch tell again 12 13
    """
    from tilewatch.worker.cli import triage

    sent = triage.send_again(options.ready_database(), ids)
    left = sorted(set(ids) - set(sent))
    print(f"{len(sent)} of {len(set(ids))} messages are sent again")
    if left:
        print(f"not given up, so left alone: {', '.join(map(str, left))}")
