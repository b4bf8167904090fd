"""The connections of the dashboard's port send what they have at once."""

import os
import runpy
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.dashboard.fixtures.servers import REPOSITORY


@pytest.fixture
def bound() -> Iterator[list[socket.socket]]:
    """Ports bound as Streamlit binds its own, before it imports the app."""
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket(family)) for family in (socket.AF_INET, socket.AF_INET6)]
        for port, address in zip(ports, ("127.0.0.1", "::1"), strict=True):
            port.bind((address, 0))
            port.listen()
        yield ports


def test_the_server_sends_at_once_on_every_connection_of_its_ports(bound: list[socket.socket]) -> None:
    with socket.socket() as idle, ExitStack() as stack:
        open_before = sorted(os.listdir("/dev/fd"))
        runpy.run_path(str(REPOSITORY / "dashboard" / "server.py"))
        assert sorted(os.listdir("/dev/fd")) == open_before, "it looks at copies, and closes them"
        for port in bound:
            stack.enter_context(socket.create_connection(port.getsockname()[:2]))
            accepted = stack.enter_context(port.accept()[0])
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not idle.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "it does not listen"
