"""Tunes memory of a process that answers people and programs, once, when everything it needs is imported."""

import ctypes
import gc
import sys

M_ARENA_MAX, ARENAS = -8, 2
"""Each view or call runs in a thread of its own, and glibc keeps up to eight arenas per core, which share no memory."""


def tune_memory() -> None:
    """Sets two arenas for all threads, and freezes what is imported, so that the garbage collector skips it.

    Python's full collections walk over every object, in the middle of a visitor's request. With pandas, Plotly and
    Streamlit imported one took 160 to 250 ms, without those objects 26 ms; in the API's process 94 to
    126 ms. Of 40 reads of a series of 1,000 nights 4 or 5 had one (2026-11-23).
    """
    if sys.platform == "linux":
        # musl has no mallopt, and needs none.
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_ARENA_MAX, ARENAS)
    gc.collect()
    gc.freeze()
