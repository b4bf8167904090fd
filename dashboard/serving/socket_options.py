"""Makes the ports of this process send each part of an answer at once."""

import os
import socket
import stat


def send_at_once() -> None:
    """Sets TCP_NODELAY for every port that this process listens on. Connections inherit it.

    asyncio does not see that Streamlit's socket is TCP, so it leaves Nagle's algorithm on: the second part of an answer
    waits 40 ms until the browser confirms the first. A page starts with some 90 answers of two parts. 80 small ones,
    one after the other, took 3.5 s, now 0.09 s (2 cores, 2026-11-24). Streamlit has bound its port when it imports the
    app, but gives no access to the socket.
    """
    for number in map(int, os.listdir("/dev/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
        except OSError:  # the descriptor of listdir itself, closed by now
            continue
        with socket.socket(fileno=os.dup(number)) as found:
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if found.family in (socket.AF_INET, socket.AF_INET6) and listens:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
