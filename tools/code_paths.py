"""Draws the pictures of docs/develop/architecture.md from the code: a config's way to a dot, a commit's to an alert.

    python -m tools.code_paths            # writes docs/pictures/config_path.svg and docs/pictures/alert_path.svg
    python -m tools.code_paths --check    # ends with 1 when the pictures in docs/ are not those of the code

A path is a list of functions. The words in a picture are the first sentences of their docstrings, so a function that is
renamed, moved or described anew changes its picture.
"""

import ast
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"

CONFIG_PATH = (
    ("submit", "kernels/contract.py", "Space.configs"),
    ("submit", "kernels/catalog/catalog_child.py", "_plan"),
    ("submit", "worker/steps/write_plans.py", "_write_sweep"),
    ("submit", "db/fact_writes.py", "add_trials"),
    ("compile", "worker/steps/compile.py", "step"),
    ("compile", "kernels/compiling/compile_child.py", "_compile"),
    ("compile", "kernels/compiling/store.py", "CubinStore"),
    ("compile", "db/fact_writes.py", "add_compilations"),
    ("measure", "worker/steps/measure.py", "step"),
    ("measure", "kernels/measuring/sweep.py", "sweep"),
    ("measure", "kernels/gpu/gpu_child.py", "answer"),
    ("measure", "db/fact_writes.py", "write_trial_results"),
    ("show", "db/page_reads/sweeps.py", "list_trials"),
    ("show", "dashboard/frames/reads.py", "trials"),
    ("show", "dashboard/panels/series/sweep.py", "show"),
    ("show", "dashboard/charts/sweep.py", "cells"),
)
"""Steps from a config of a search space to a dot on the Series page. Each has a phase, a file and a function."""

ALERT_PATH = (
    ("submit", "worker/cli/submit.py", "nightly"),
    ("submit", "worker/submitting/submit.py", "submit_nightly"),
    ("compile", "worker/steps/compile.py", "step"),
    ("measure", "worker/steps/measure.py", "step"),
    ("measure", "worker/steps/write_run.py", "write_spooled"),
    ("judge", "worker/judging/judge.py", "step"),
    ("judge", "worker/detection/detector.py", "Detector.add_night"),
    ("judge", "worker/queue/follow_up.py", "ask"),
    ("confirm", "worker/steps/confirm.py", "step"),
    ("confirm", "kernels/measuring/replay.py", "replay"),
    ("judge", "worker/judging/open_regression.py", "open_for_commit"),
    ("notify", "worker/notify/outbox.py", "write_changes"),
    ("notify", "worker/notify/routing.py", "recipients"),
    ("notify", "worker/notify/senders.py", "Sender"),
)
"""Steps from `tilewatch submit nightly` to a message about a regression."""

FILLS = {
    "submit": "#e8eef7",
    "compile": "#e6f2ea",
    "measure": "#fdf1dc",
    "judge": "#f3e8f5",
    "confirm": "#fbe7e4",
    "notify": "#e4f1f4",
    "show": "#ececec",
}
WIDTH, ROW, TOP, LEFT, PHASE = 900, 46, 16, 16, 92
LINE, SHORT = 112, 24
"""Lengths in characters. A sentence in a box is cut to LINE. A sentence shorter than SHORT is shown with the next
one."""


@dataclass(frozen=True)
class Step:
    """One box of a picture: the phase of the work, the file, its function and the first sentence of the function's
    docstring."""

    phase: str
    file: str
    function: str
    sentence: str


class NoSuchStep(Exception):
    """Raised if a path names a function that its file lacks, or one without a docstring. The message names the
    function."""


def steps(path: tuple[tuple[str, str, str], ...]) -> list[Step]:
    """Returns the boxes of a path. Raises NoSuchStep."""
    return [Step(phase, file, function, _first_sentence(file, function)) for phase, file, function in path]


def svg(boxes: list[Step], title: str) -> str:
    """Returns a picture of boxes, one below the other, as the text of an SVG file."""
    height = 2 * TOP + ROW * len(boxes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    before = ""
    for number, box in enumerate(boxes):
        y = TOP + ROW * number
        if box.phase != before:
            lines.append(f'<text x="{LEFT}" y="{y + 23}" font-size="13" font-weight="bold">{escape(box.phase)}</text>')
            before = box.phase
        x = LEFT + PHASE
        lines += [
            f'<rect x="{x}" y="{y}" width="{WIDTH - x - LEFT}" height="{ROW - 10}" rx="4" fill="{FILLS[box.phase]}"/>',
            f'<text x="{x + 10}" y="{y + 15}" font-size="12" font-weight="bold">{escape(box.file)}'
            f'<tspan font-weight="normal" fill="#555555">  {escape(box.function)}</tspan></text>',
            f'<text x="{x + 10}" y="{y + 30}" font-size="11">{escape(_cut(box.sentence))}</text>',
        ]
        if number + 1 < len(boxes):
            middle = x + 24
            lines.append(f'<path d="M{middle} {y + ROW - 10} v7 m-3 -3 l3 3 l3 -3" stroke="#777777" fill="none"/>')
    return "\n".join([*lines, "</svg>", ""])


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= LINE else sentence[: LINE - 3].rsplit(" ", 1)[0] + " ..."


def _first_sentence(file: str, function: str) -> str:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    node: ast.AST = tree
    for name in function.split("."):
        node = _named(node, name, file)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    # A function without a docstring, such as `step`, is described by its module's.
    text = ast.get_docstring(node) or ast.get_docstring(tree)
    if not text:
        raise NoSuchStep(f"{function} of {file} has no docstring")
    sentences = " ".join(text.split("\n\n")[0].split()).split(". ")
    # "The judge step." says too little, so the next sentence is added.
    shown = sentences[:2] if len(sentences[0]) < SHORT else sentences[:1]
    return ". ".join(shown).rstrip(".") + "."


def _named(tree: ast.AST, name: str, file: str) -> ast.AST:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    raise NoSuchStep(f"{file} has no {name}: say in tools/code_paths.py what does its work now")


def pictures() -> dict[Path, str]:
    """Returns the text of each picture by its path."""
    return {
        PICTURES / "config_path.svg": svg(steps(CONFIG_PATH), "A config's way to a dot on the Series page"),
        PICTURES / "alert_path.svg": svg(steps(ALERT_PATH), "A commit's way to an alert"),
    }


def main() -> None:
    old = [path for path, text in pictures().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"not as the code is: {', '.join(path.name for path in old)}" if old else 0)
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
