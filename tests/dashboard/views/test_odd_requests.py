"""The dashboard refuses requests with odd headers, or answers them like plain ones, and goes on."""

from urllib.parse import urlsplit

from tests.worker.fixtures import odd_requests
from tests.worker.fixtures.odd_requests import ask, request


def test_odd_requests_are_refused_or_harmless(address: str) -> None:
    port = urlsplit(address).port or 0
    for name, sent in odd_requests.list_refused("/", "/_stcore/upload_file/a/b").items():
        (status,) = ask(port, sent)
        assert 400 <= status < 500, name
    for name, sent in odd_requests.list_harmless("/").items():
        (status,) = ask(port, sent)
        assert status == 200 or 400 <= status < 500, name
    assert ask(port, request("/")) == [200]


def test_a_page_from_elsewhere_opens_no_session(address: str) -> None:
    keys = (b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Upgrade: websocket")
    opening = request("/_stcore/stream", *keys, b"Origin: http://elsewhere.example")
    port = urlsplit(address).port or 0
    assert ask(port, opening.replace(b"Connection: close", b"Connection: Upgrade")) == [403]
