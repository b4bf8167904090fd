"""The commands `tilewatch notify ...` for channels, messages and alarms."""

from typing import Annotated

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import AsJson

notify = typer.Typer(
    help="Notifications: test the channels, list messages and open alarms, send a failed message again.",
    no_args_is_help=True,
)


@notify.command()
def test() -> None:
    """Send a test message to every channel of notify.toml, and print the answer of each. Exit code 1 if one failed.

    Example: tilewatch notify test
    """
    from tilewatch.worker.notify import outbox

    outcomes = outbox.send_tests(outbox.Outbox.of(options.settings()))
    for channel, outcome in outcomes.items():
        print(f"{channel}: {outcome.trouble or 'sent'}")
    if any(outcome.trouble for outcome in outcomes.values()):
        raise typer.Exit(1)


options.add_old_name(notify, "check", test, "tilewatch notify test")


@notify.command()
def messages(
    failed: Annotated[bool, typer.Option("--failed", help="Only messages that could not be sent.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the newest messages: sent, waiting, held back for quiet hours, or failed and why.

    Example: tilewatch notify messages --failed
    """
    from tilewatch.db.page_reads import messages as message_queries
    from tilewatch.worker.cli import tables

    with options.open_session() as opened:
        rows = message_queries.list_messages(opened, states=("failed",) if failed else None)
    tables.print_answer(rows, tables.draw_messages, as_json=as_json)


@notify.command()
def alarms(as_json: AsJson = False) -> None:
    """List the open alarms: late nightlies, ill GPUs, configs that stopped compiling, and so on.

    Example: tilewatch notify alarms
    """
    from tilewatch.db.page_reads import alarms as alarm_queries
    from tilewatch.worker.cli import tables

    with options.open_session() as opened:
        rows = alarm_queries.list_alarms(opened)
    tables.print_answer(rows, tables.draw_alarms, as_json=as_json)


@notify.command()
def again(
    ids: Annotated[
        list[int], typer.Argument(metavar="ID", max=options.LARGEST_ID, help="Messages that could not be sent.")
    ],
) -> None:
    """Send failed messages again. A worker does it within a minute.

    Example: tilewatch notify again 12 13
    """
    from tilewatch.db.lifecycle.messages import retry

    with options.open_session() as opened:
        sent = retry(opened, ids)
    left = sorted(set(ids) - set(sent))
    print(f"{len(sent)} of {len(set(ids))} messages will be sent again")
    if left:
        print(f"unchanged, because they did not fail: {', '.join(map(str, left))}")
