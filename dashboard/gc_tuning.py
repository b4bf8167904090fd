"""What the dashboard's process does about memory, once, when everything it needs is imported."""

import ctypes
import gc
import sys

M_ARENA_MAX, ARENAS = -8, 2
"""Streamlit runs each view in a thread of its own, and glibc keeps the memory of up to eight threads per core apart."""


def tune_memory() -> None:
    """Two arenas for all threads, and no search for garbage among what stays for ever.

    Python's full collections walk over every object there is. With pandas, Plotly and Streamlit imported one took 160
    to 250 ms, in the midst of whatever a visitor had asked for; without those objects 26 ms (docs/measurements.md).
    """
    if sys.platform == "linux":
        # musl has no mallopt, and needs none.
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_ARENA_MAX, ARENAS)
    gc.collect()
    gc.freeze()
