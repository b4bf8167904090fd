"""What an own server listens on: a port that nothing uses, and that nothing is given before the server listens."""

import socket
from pathlib import Path

import pytest

from tilewatch.db.server import free_ports


def test_a_free_port_is_none_that_an_outgoing_connection_may_have_before_the_server_listens() -> None:
    first_given_away = int(free_ports.OUTGOING_PORTS.read_text().split()[0])
    assert all(free_ports.FIRST_PORT <= free_ports.find_free_port() < first_given_away for _ in range(200))


def test_a_port_that_is_taken_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((free_ports.HOST, free_ports.find_free_port())) as other:
        taken = other.getsockname()[1]
        drawn = iter([taken, taken])
        monkeypatch.setattr(free_ports, "_draw_port", lambda: next(drawn, 0))
        assert free_ports.find_free_port() != taken


def test_several_ports_are_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    port, other = free_ports.find_free_ports(2)
    drawn = iter([port, port, other])
    monkeypatch.setattr(free_ports, "_draw_port", lambda: next(drawn))
    assert free_ports.find_free_ports(2) == [port, other]


def test_where_all_that_were_drawn_are_taken_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((free_ports.HOST, free_ports.find_free_port())) as other:
        monkeypatch.setattr(free_ports, "_draw_port", lambda: other.getsockname()[1])
        with pytest.raises(OSError, match="Address already in use"):
            free_ports.find_free_port()


def test_where_linux_gives_nearly_all_ports_away_any_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(free_ports, "OUTGOING_PORTS", tmp_path / "range")
    assert free_ports.find_free_port() > 0
