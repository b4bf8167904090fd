"""`tilewatch api` and `tilewatch mcp`: serve programs and agents until they are stopped."""

from tilewatch import processes
from tilewatch.worker.cli import options


def api() -> None:
    """Serve programs by HTTP until Ctrl-C, at TILEWATCH_API_ADDRESS and TILEWATCH_API_PORT. `tilewatch up` does it too.

    Example: tilewatch api, then: curl localhost:8502/v1/series
    """
    import uvicorn

    from tilewatch.worker.api.server import make_app

    processes.forbid_inspection()
    settings = options.settings()
    options.ready_database()
    uvicorn.run(
        make_app(settings),
        host=settings.api_address,
        port=settings.api_port,
        log_level="warning",
        proxy_headers=False,  # who calls is decided by who is connected (worker/api/server.py)
        server_header=False,
    )


def mcp() -> None:
    """Serve an agent by the Model Context Protocol, on standard input and output. The agent's program starts this.

    TILEWATCH_API_TOKEN is the token to act with; without it the agent only reads.
    """
    from tilewatch.worker.api.mcp_server import make_server

    options.ready_database()
    make_server(options.settings()).run()
