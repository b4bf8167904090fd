"""The commands `tilewatch api` and `tilewatch mcp`, which start servers for programs and agents."""

import os
import socket
import sys

import typer

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.text import without_controls
from tilewatch.worker.cli import options
from tilewatch.worker.local.children import CANNOT_START


class AddressUnusable(ExpectedError):
    """Raised if this machine cannot listen at an address and port."""


def api() -> None:
    """Serve programs by HTTP until Ctrl-C, at TILEWATCH_API_ADDRESS and TILEWATCH_API_PORT. `tilewatch up` does it too.

    Example: tilewatch api, then: curl localhost:8502/v1/series
    """
    try:
        import uvicorn

        from tilewatch.processes import tune_memory
        from tilewatch.worker.api.server import make_app
    except ImportError as error:
        print(f"tilewatch: the API cannot start: {error}", file=sys.stderr)
        raise typer.Exit(CANNOT_START) from None

    processes.forbid_inspection()
    settings = options.settings()
    options.ready_database()
    config = uvicorn.Config(
        make_app(settings),
        log_level="warning",
        proxy_headers=False,  # the connection decides who the caller is (worker/api/server.py)
        server_header=False,
    )
    try:
        listening = _listen(settings.api_address, settings.api_port)
    except AddressUnusable as error:
        print(f"tilewatch: {error}", file=sys.stderr)
        raise typer.Exit(CANNOT_START) from None
    tune_memory()
    uvicorn.Server(config).run(sockets=listening)


def _listen(address: str, port: int) -> list[socket.socket]:
    """Returns a listening socket for each IP address of a host name. Raises AddressUnusable if it cannot listen."""
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listening = [socket.create_server(place[:2], family=family) for family, _, _, _, place in dict.fromkeys(found)]
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
        raise AddressUnusable(
            f"nothing can be served at {without_controls(address)}, port {port}: {reason}; set TILEWATCH_API_ADDRESS "
            "to an address of this machine and TILEWATCH_API_PORT to a port that is free"
        ) from None
    for each in listening:  # inherited by connections; else the second part of an answer waits 40 ms for the first
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def mcp() -> None:
    """Serve an agent by the Model Context Protocol, on standard input and output. The agent's program starts this.

    TILEWATCH_API_TOKEN is the token to act with; without it the agent only reads.
    """
    from tilewatch.worker.api.mcp_server import make_server

    options.ready_database()
    make_server(options.settings()).run()
