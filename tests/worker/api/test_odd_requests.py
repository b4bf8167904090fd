"""Requests with odd headers are refused or harmless, and make nobody a caller from this machine."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from tests.peak_memory import read_peak_mib, reset_peak
from tests.worker.fixtures import odd_requests
from tests.worker.fixtures.api_server import serve
from tests.worker.fixtures.odd_requests import ask, post, request
from tilewatch.worker.settings import Settings

CALLS = {"/v1/series": "/v1/checks", "/healthz": "/v1/hooks/github"}


@pytest.fixture(scope="module")
def port(server: str) -> int:
    return urlsplit(server).port or 0


@pytest.fixture
def with_webhook(settings: Settings) -> Iterator[int]:
    with serve(settings.model_copy(update={"webhook_secret": SecretStr("a common secret")})) as address:
        yield urlsplit(address).port or 0


@pytest.mark.parametrize(("path", "posts"), CALLS.items())
def test_odd_requests_are_refused_or_harmless(with_webhook: int, path: str, posts: str) -> None:
    reset_peak()
    before_mib = read_peak_mib()
    for name, sent in odd_requests.list_refused(path, posts).items():
        (status,) = ask(with_webhook, sent)
        assert 400 <= status < 500, name
    for name, sent in odd_requests.list_harmless(path).items():
        (status,) = ask(with_webhook, sent)
        assert status == 200 or 400 <= status < 500, name
    assert ask(with_webhook, request(path)) == [200]
    assert read_peak_mib() - before_mib < 500


@pytest.mark.parametrize(
    "host",
    [
        *(b"", b"[::1", b"a b", b"\xff", b"elsewhere.example:", b"localhost@elsewhere.example", b"localhost:x"),
        *(b"elsewhere.example#localhost", b"localhost.elsewhere.example", b"2130706433", b"localhost:80:80"),
    ],
)
def test_a_host_that_is_not_this_machine_s_needs_a_token(port: int, host: bytes) -> None:
    """A proxy may pass on the name that a stranger asked for."""
    assert ask(port, request("/v1/series", host=host)) == [401]


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:8502", b"127.0.0.1:8502", b"[::1]:8502"])
def test_a_host_of_this_machine_needs_none(port: int, host: bytes) -> None:
    assert ask(port, request("/v1/series", host=host)) == [200]


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Client-IP", "Via"])
def test_who_comes_through_a_proxy_needs_a_token(port: int, name: str) -> None:
    assert ask(port, request("/v1/series", f"{name}: x".encode())) == [401]


def test_a_request_behind_a_body_of_two_lengths_is_not_answered(port: int) -> None:
    behind = b"2\r\n{}\r\n0\r\n\r\n" + request("/healthz")
    both = post("/v1/checks", b"Content-Length: 3", b"Transfer-Encoding: chunked", body=behind)
    assert ask(port, both.replace(b"Connection: close\r\n", b"", 1)) == [400]


def test_who_leaves_before_the_body_ends_is_no_error(with_webhook: int, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", with_webhook)) as caller:
        caller.sendall(post("/v1/hooks/github", b"Content-Length: 20"))
    assert ask(with_webhook, request("/healthz")) == [200]
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []
