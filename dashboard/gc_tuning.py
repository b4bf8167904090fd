"""Tunes memory of the dashboard's process, once, when everything it needs is imported."""

import ctypes
import gc
import sys

M_ARENA_MAX, ARENAS = -8, 2
"""Streamlit runs each view in its own thread, and glibc keeps up to eight arenas per core, which share no memory."""


def tune_memory() -> None:
    """Sets two arenas for all threads, and freezes what is imported, so that the garbage collector skips it.

    Python's full collections walk over every object. With pandas, Plotly and Streamlit imported one took 160 to 250 ms,
    in the middle of a visitor's request; without those objects 26 ms (docs/measurements.md).
    """
    if sys.platform == "linux":
        # musl has no mallopt, and needs none.
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_ARENA_MAX, ARENAS)
    gc.collect()
    gc.freeze()
