"""The colours of states and verdicts, in tables and badges. Knows no query."""

from tilewatch.dashboard.frames import findings

GOING_ON, WELL, UNSURE, BADLY, OVER = "blue", "green", "orange", "red", "gray"
SUBMISSIONS = {
    "compiling": GOING_ON,
    "waiting for a GPU": UNSURE,
    "measuring": GOING_ON,
    "judging": GOING_ON,
    "measured": WELL,
    "static facts only": WELL,
    "nothing measured": UNSURE,
    "incomplete": UNSURE,
    "failed": BADLY,
    "cancelled": OVER,
    "recorded": OVER,
}
VERDICTS = {"regression": BADLY, "improvement": WELL, "unchanged": OVER, "undecided": OVER}
NIGHTS = {"done": WELL, "running": GOING_ON, "late": UNSURE, "missing": UNSURE, "failed": BADLY}
REGRESSIONS = {"new": BADLY, "reopened": BADLY, "acknowledged": UNSURE, "expected": OVER, "resolved": WELL}
CHECKS = {
    "fine": WELL,
    "slower": BADLY,
    "could not tell": UNSURE,
    "being prepared": GOING_ON,
    "being answered": GOING_ON,
}
SAFETIES = {"not safe": BADLY, "safe if re-tuned": UNSURE, "unknown": OVER, "safe": WELL}
OUTCOMES = {
    "open": GOING_ON,
    "slower": BADLY,
    "faster": WELL,
    "not slower": WELL,
    "undecided": UNSURE,
    "identical": OVER,
}

# Readable on the light and on the dark background.
_TEXT = {GOING_ON: "#3d7fe0", WELL: "#17857a", UNSURE: "#d98214", BADLY: "#cf4a2a", OVER: "#8a94a3"}


def word_colour(word: str) -> str:
    """The style of a cell that holds a state or a verdict."""
    colours = SUBMISSIONS | VERDICTS | REGRESSIONS | CHECKS | OUTCOMES | SAFETIES
    colour = colours.get(word)
    return f"color: {_TEXT[colour]}" if colour else ""


def change_colour(finding: str) -> str:
    """The style of a cell that holds a change of speed with this finding; coloured only where a change is claimed."""
    colour = {findings.FASTER: WELL, findings.SLOWER: BADLY}.get(finding)
    return f"color: {_TEXT[colour]}" if colour else ""
