"""Finds out whether the dashboard's port is free, and whether a dashboard answers on it."""

import contextlib
import socket
from http.client import HTTPConnection, HTTPException

from tilewatch.db.server.free_ports import require_free


def taken(port: int) -> str | None:
    """Returns why a server cannot listen on a port; None if it can."""
    try:
        require_free(port)
    except OSError as error:
        return error.strerror
    return None


def healthy(port: int) -> bool:
    try:
        with contextlib.closing(HTTPConnection("localhost", port, timeout=5)) as connection:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().read() == b"ok"
    except (OSError, HTTPException):
        return False


def wake(port: int) -> None:
    """Wakes an idle dashboard by a short connection, so that it does not look stuck."""
    with contextlib.suppress(OSError):
        socket.create_connection(("localhost", port), timeout=1).close()
