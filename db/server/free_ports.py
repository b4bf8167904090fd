"""Finds ports of this machine that servers can listen on."""

import secrets
import socket
from pathlib import Path

HOST = "127.0.0.1"
FIRST_PORT = 10_000
MOST_TRIES = 100
"""The number of random ports that are tried before the search for a free port fails."""

OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def find_free_ports(count: int) -> list[int]:
    """Returns different free ports. Raises OSError if it finds too few."""
    ports: dict[int, None] = {}
    while len(ports) < count:
        ports[find_free_port()] = None
    return list(ports)


def find_free_port() -> int:
    """Returns a free port. Raises OSError after MOST_TRIES ports that were in use."""
    for _ in range(MOST_TRIES - 1):
        try:
            return require_free(_draw_port())
        except OSError:
            continue
    return require_free(_draw_port())


def require_free(port: int) -> int:
    """Returns the port if it is free, or any free port for 0. Raises OSError if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        probe.bind((HOST, port))
        free: int = probe.getsockname()[1]
        return free


def _draw_port() -> int:
    """Returns a random port below the ports for outgoing connections, or 0 if there are too few such ports."""
    # An outgoing connection could take a port before the server listens on it (seen on 2026-11-26).
    first_given_away = int(OUTGOING_PORTS.read_text().split()[0])
    below = first_given_away - FIRST_PORT
    return FIRST_PORT + secrets.randbelow(below) if below >= MOST_TRIES else 0
