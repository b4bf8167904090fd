"""Simulates many people: sessions that speak Streamlit's own protocol, without a browser each.

With twenty Chromium windows on two cores, Chromium would be measured. The time of a view is from the request for a page
until its script has ended and everything has arrived. browsing.py measures what a browser adds, one page at a time."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

THINK_S = (3.0, 12.0)
"""Seconds that a person looks at a page before the next one."""
VIEW_LIMIT_S = 60.0


@dataclass
class Seen:
    """Seconds and bytes of each view, and every error that a page showed."""

    took_s: list[float] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def browse(address: str, views: Sequence[str], *, people: int, views_each: int, think: bool) -> Seen:
    """Returns what `people` simulated people saw at once. Each has a session of their own and opens the views in an
    order of their own."""
    seen = Seen()

    async def everybody() -> None:
        await asyncio.gather(*(_visit(address, views, views_each, seen, i, think=think) for i in range(people)))

    asyncio.run(everybody())
    return seen


async def _visit(address: str, views: Sequence[str], count: int, seen: Seen, number: int, *, think: bool) -> None:
    own = random.Random(number)  # noqa: S311 - who looks at what when, no secret
    url = address.replace("http", "ws") + "/_stcore/stream"
    # Past the few hundred kB of a page, the default limit would end the session.
    async with connect(url, subprotocols=["streamlit"], max_size=None, open_timeout=VIEW_LIMIT_S) as session:  # type: ignore[list-item]
        for _ in range(count):
            if think:
                await asyncio.sleep(own.uniform(*THINK_S))
            view = own.choice(views)
            started = time.perf_counter()
            sent = await asyncio.wait_for(_open(session, view, seen), VIEW_LIMIT_S)
            seen.took_s.append(time.perf_counter() - started)
            seen.sent_bytes.append(sent)


async def _open(session: ClientConnection, view: str, seen: Seen) -> int:
    """Requests a page and receives all of it; returns the number of bytes."""
    page, _, query = view.lstrip("/").partition("?")
    request = BackMsg()
    request.rerun_script.query_string = query
    request.rerun_script.page_name = page
    await session.send(request.SerializeToString())
    sent, running = 0, False
    while True:
        payload = await session.recv()
        sent += len(payload)
        message = ForwardMsg()
        message.ParseFromString(payload if isinstance(payload, bytes) else payload.encode())
        kind = message.WhichOneof("type")
        if kind == "new_session":
            running = True  # messages until now belong to the previous page
        elif kind == "delta" and message.delta.HasField("new_element"):
            element = message.delta.new_element
            if element.WhichOneof("type") == "exception":
                seen.errors.append(f"{view}: {element.exception.type} {element.exception.message}")
            if element.WhichOneof("type") == "alert" and element.alert.format == element.alert.ERROR:
                seen.errors.append(f"{view}: {element.alert.body}")
        elif kind == "script_finished" and running:
            return sent
