"""Defines the colours. On every page, a colour means the same implementation or the same outcome.

Good is teal and bad is orange-red, because people with common colour blindness can distinguish these.
"""

import zlib
from collections.abc import Sequence
from itertools import pairwise

KERNEL = "#3d7fe0"
BASELINES = {
    "deepgemm": "#e58a2b",
    "deepgemm_as_called": "#b9955c",
    "cublaslt": "#2fa37c",
    "cublas": "#5f9a3f",
    "copy": "#b9955c",
}
"""Fixed colours of baselines. Other colours follow from the name. No kernel has two baselines of one colour."""
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
FAR_TO_NEAR = ((0.0, "#f4ecd2"), (1.0, "#17756b"))
"""The colour scale for a share of a physical limit, such as the memory bandwidth. No share is good or bad."""
TEXT = {
    "light": {"blue": "#2a66c2", "green": "#127a6f", "orange": "#9a5a06", "red": "#b83f21", "gray": "#5f6b7a"},
    "dark": {"blue": "#6ea8ff", "green": "#35b3a4", "orange": "#e8a04a", "red": "#f0795a", "gray": "#9aa5b4"},
}
"""The colours of words on a page's own background, by theme and by Streamlit's name of the colour. Each theme has its
own, because no colour has enough contrast in both. .streamlit/config.toml sets the same colours for Markdown."""
DARK_INK, LIGHT_INK = "#000000", "#ffffff"
"""The two colours for words on a coloured background. At least one of the two has enough contrast on any colour."""
LINE = "#8a94a3"
"""The colour of zero lines, whiskers and toolchain changes. It is visible on the light and on the dark background."""


def colour_of(implementation: str, role: str) -> str:
    if role == "kernel":
        return KERNEL
    other = OTHERS[zlib.crc32(implementation.encode()) % len(OTHERS)]
    return BASELINES.get(implementation, other)


def colour_at(scale: Sequence[tuple[float, str]], share: float) -> str:
    """Returns the colour of `scale` at `share`, which is clamped to the range from 0 to 1."""
    share = min(max(share, 0.0), 1.0)
    for (low, before), (high, after) in pairwise(scale):
        if share <= high:
            way = (share - low) / (high - low)
            mixed = (round(a + way * (b - a)) for a, b in zip(_rgb(before), _rgb(after), strict=True))
            return "#" + "".join(f"{part:02x}" for part in mixed)
    return scale[-1][1]


def ink_on(ground: str) -> str:
    """Returns DARK_INK or LIGHT_INK, whichever has more contrast on this background."""
    return max((DARK_INK, LIGHT_INK), key=lambda ink: contrast(ink, ground))


def contrast(one: str, other: str) -> float:
    """Returns the contrast ratio of two colours as WCAG 2 defines it, from 1 to 21. Words need at least 4.5."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (
        (part / 255 / 12.92) if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in _rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue
