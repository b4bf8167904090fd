"""Writes docs/develop/measurements.md and measurements-gpu.md from the results of the benchmarks (benchmarks/results).

    python -m benchmarks.restore --write benchmarks/results/restore.json
    python -m tools.measurements

Figures of one command are one row if they have the same bound and the same words after the last colon of their names.
The row shows the worst of them."""

import re
from collections.abc import Iterable, Sequence

from benchmarks.bounds import ROOT, Figure, Result, read_results
from tools.benchmark_runs import read_runs

FOLDER = ROOT / "docs" / "develop"
HEADS = {
    "measurements.md": """# Measured figures and their bounds

`make figures` writes this page from `benchmarks/results/*.json`. A missed bound is bold. A bound that is a number is
exact. A row "(of 9)" shows the worst of 9 figures. A row in bold names a module of `benchmarks`, its options, machine,
date and commit. [measurements-gpu.md](measurements-gpu.md) and [kernel-times.md](kernel-times.md) have those of GPUs.
""",
    "measurements-gpu.md": """# Figures that were measured on a GPU

[measurements.md](measurements.md) says how to read the table.
""",
}
TABLE = """
| figure | bound | value |
|---|---|---|
"""

CLONES = re.compile(" --[a-z]+ (" + "|".join(re.escape(name) for run in read_runs() for name in run.needs) + ")")
"""Options that name clones. The rows leave them out, because bounds.toml says which command needs which clones."""

ELSEWHERE = {"recorded"}
"""Benchmarks whose figures another page has beside more of their kind."""


def main() -> None:
    for name, page in write_pages(read_results().values()).items():
        (FOLDER / name).write_text(page, encoding="utf-8")


def write_pages(results: Iterable[Result]) -> dict[str, str]:
    """Returns the text of each page by its name."""
    rows = dict.fromkeys(HEADS, TABLE)
    for result in results:
        if _name(result) not in ELSEWHERE:
            rows["measurements.md" if result.machine.endswith("no GPU") else "measurements-gpu.md"] += _write(result)
    return {name: head + rows[name] for name, head in HEADS.items()}


def _name(result: Result) -> str:
    return result.command.removeprefix("python -m benchmarks.")


def _write(result: Result) -> str:
    name = _name(result)
    command, machine = CLONES.sub("", name), result.machine.removesuffix(", no GPU")
    first = f"| **{command}** | {machine} | {result.date}, {result.commit[:8]} |"
    said = f"{name.replace('_', ' ')}: "
    rows = (_write_row(figures).replace(f"| {said}", "| ", 1) for figures in group(result.figures))
    return "".join(f"{row}\n" for row in (first, *rows))


def group(figures: Sequence[Figure]) -> list[list[Figure]]:
    """Returns the figures in groups. Those of a group have the same bound and the same text after the last colon of
    their names."""
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.bound, figure.what.rpartition(": ")[2]), []).append(figure)
    return list(groups.values())


def find_worst(figures: Sequence[Figure]) -> Figure:
    """Returns the figure that misses the common bound by the most or, if none misses it, the one that is nearest to
    it."""
    if figures[0].bound.startswith(("at most", "at least")):
        sign = -1 if figures[0].bound.startswith("at least") else 1
        return max(figures, key=lambda figure: sign * read_number(figure.value, figure.bound))
    return min(figures, key=lambda figure: figure.is_met is True)


def read_number(text: str, bound: str) -> float:
    """Returns the number in a figure's text that its bound is about: the one in % if the bound is in %, else the first
    number."""
    share = re.search(r"([\d.]+) ?%", text) if "%" in bound else None
    found = share or re.search(r"(-?[\d,.]+)", text)
    return float(found[1].replace(",", "")) if found else float("nan")


def _write_row(figures: Sequence[Figure]) -> str:
    worst = find_worst(figures)
    name = worst.what if len(figures) == 1 else f"{worst.what} (of {len(figures)})"
    value = worst.value if worst.is_met else f"**{worst.value}**"
    return f"| {name} | {worst.bound.removeprefix('exactly ')} | {value} |"


if __name__ == "__main__":
    main()
