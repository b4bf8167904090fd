"""What each colour means, the same on every page and on every day. Knows no figure and no page.

A colour belongs to an implementation or an outcome, never to an order. Good and bad are teal and orange-red, which stay
apart for every common kind of colour blindness, and wherever they mark a point the mark's shape says the same.
"""

import zlib

KERNEL = "#3d7fe0"
BASELINES = {"deepgemm": "#e58a2b", "deepgemm_as_called": "#b9955c", "cublaslt": "#2fa37c"}
OTHERS = ("#a064d8", "#c95f8a", "#8a7d3c", "#4aa3b8")
BETTER, WORSE, UNCERTAIN = "#17857a", "#cf4a2a", "#8a94a3"
VERDICTS = {"regression": WORSE, "improvement": BETTER}
VERDICT_MARKS = {"regression": "triangle-down-open", "improvement": "triangle-up-open"}
OUTCOMES = {
    "timed": "#2fa37c",
    "compiled": "#3d7fe0",
    "timeout": "#e5a52b",
    "compile error": "#d6344b",
    "wrong": "#a064d8",
    "launch error": "#c95f8a",
    "crashed": "#7d2f4d",
    "hung": "#8a7d3c",
    "waiting": "#9aa5b4",
}
GOOD_TO_BAD = ((0.0, "#1d7f74"), (0.35, "#8cc0a0"), (0.6, "#f1dfa0"), (1.0, "#d0603f"))
SLOWER_TO_FASTER = ((0.0, "#c4502d"), (0.25, "#e9a06f"), (0.5, "#f4ecd2"), (0.75, "#7dbfae"), (1.0, "#17756b"))
LINE = "#8a94a3"
"""Marks of the toolchain, zero lines and whiskers: readable on the light and on the dark background."""


def of(implementation: str, role: str) -> str:
    if role == "kernel":
        return KERNEL
    other = OTHERS[zlib.crc32(implementation.encode()) % len(OTHERS)]
    return BASELINES.get(implementation, other)
