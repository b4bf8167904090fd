"""Checks whether the dashboard's port is free, and whether a dashboard answers on it."""

import socket
from http.client import HTTPConnection, HTTPException


def taken(port: int) -> str | None:
    """Why nothing can listen on the port now; None when it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the dashboard does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror
    return None


def healthy(port: int) -> bool:
    connection = HTTPConnection("localhost", port, timeout=5)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().read() == b"ok"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
