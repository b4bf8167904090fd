"""The commands `tilewatch token ...`, which make, list and revoke the tokens of programs."""

from enum import StrEnum
from typing import Annotated

import typer

from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import AsJson, Who

token = typer.Typer(
    help="Tokens for programs that read or act by HTTP or MCP: make one, list them, revoke one.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="The token's name: the name of the program or the machine that has it.")]


class May(StrEnum):
    READ = "read"
    CHECK = "check"


@token.command()
def add(
    name: Name,
    may: Annotated[list[May], typer.Option(help="What it may do. Repeat it for both.")],
    gpu_seconds: Annotated[float, typer.Option(help="GPU seconds that its checks may cost in any 24 hours.")] = 0.0,
    who: Who = None,
) -> None:
    """Make a token and print it. It cannot be shown again, because the database only has its hash.

    Example: tilewatch token add ci --may read --may check --gpu-seconds 3600
    """
    from tilewatch.db.lifecycle import tokens

    with options.open_session() as opened:
        made = tokens.add(
            opened, name=name, rights=[each.value for each in may], gpu_s=gpu_seconds, who=options.name_of(who)
        )
    print(made)


@token.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the tokens by name, with their rights, their budgets, and when they were revoked.

    Example: tilewatch token list
    """
    from tilewatch.db.page_reads import tokens as token_queries
    from tilewatch.worker.cli import tables

    with options.open_session() as opened:
        rows = token_queries.list_tokens(opened)
    tables.print_answer(rows, tables.draw_tokens, as_json=as_json)


@token.command()
def revoke(name: Name, who: Who = None) -> None:
    """End a token at once and for ever.

    Example: tilewatch token revoke ci
    """
    from tilewatch.db.lifecycle import tokens

    with options.open_session() as opened:
        tokens.revoke(opened, name, options.name_of(who))
    print(f"the token {name} is revoked")
