"""Draws the picture of docs/judging.md from what an H200 measured: one kernel's sessions, beside DeepGEMM's.

    python -m benchmarks.judging_picture

Every dot is a recorded sample of the same config, as a difference from the first session's median; the bars are
the sessions' medians. It reads recordings/h200.jsonl.gz and writes docs/pictures/judging.svg.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

RECORDING = Path("recordings/h200.jsonl.gz")
PICTURE = Path("docs/pictures/judging.svg")
KERNEL, PROBLEM, BASELINE = "gemm_fp8", "320x32576x7168", "deepgemm"
WIDTH, HEIGHT, TOP, LEFT = 860, 300, 50, 60
REACH = 0.03
"""The picture's upper and lower ends, relative to the first session."""
COLOURS = {"kernel": "#2563eb", "baseline": "#d97706", "ratio": "#059669"}


def main() -> None:
    sessions = _sessions()
    panels = [
        ("kernel", f"{KERNEL}: time", [kernel for kernel, _ in sessions]),
        ("baseline", "DeepGEMM: time", [baseline for _, baseline in sessions]),
        ("ratio", "time over DeepGEMM's, same round", [kernel / baseline for kernel, baseline in sessions]),
    ]
    heading = f"{PROBLEM} on an H200: {len(sessions)} sessions of one config"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        f' font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{heading}</text>',
    ]
    for tick in (-0.02, -0.01, 0.0, 0.01, 0.02):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{_y(tick):.1f}" y2="{_y(tick):.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{_y(tick) + 4:.1f}" text-anchor="end">{100 * tick:+.0f} %</text>')
    wide = (WIDTH - LEFT - 10) / len(panels)
    for number, (name, title, values) in enumerate(panels):
        parts += _panel(LEFT + number * wide, wide, title, values, COLOURS[name])
    PICTURE.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def _panel(left: float, wide: float, title: str, sessions: list[Any], colour: str) -> list[str]:
    level = float(np.median(sessions[0]))
    parts = [f'<text x="{left + 8:.0f}" y="40" fill="{colour}">{title}</text>']
    each = wide / len(sessions)
    for number, values in enumerate(sessions):
        start = left + number * each
        for place, value in enumerate(values / level - 1.0):
            x = start + 8 + (each - 16) * place / max(len(values) - 1, 1)
            parts.append(f'<circle cx="{x:.1f}" cy="{_y(value):.1f}" r="1.6" fill="{colour}" fill-opacity="0.45"/>')
        middle = float(np.median(values)) / level - 1.0
        bar = f'x1="{start + 6:.1f}" x2="{start + each - 6:.1f}" y1="{_y(middle):.1f}" y2="{_y(middle):.1f}"'
        parts.append(f'<line {bar} stroke="#111827" stroke-width="2"/>')
        parts.append(f'<text x="{start + 8:.1f}" y="{HEIGHT - 8}">{100 * middle:+.2f} %</text>')
    return parts


def _y(relative: float) -> float:
    inside = min(max(relative, -REACH), REACH)
    return TOP + (REACH - inside) / (2 * REACH) * (HEIGHT - TOP - 30)


def _sessions() -> list[tuple[Any, Any]]:
    """Samples of the kernel and of its baseline, session by session in the order they were measured."""
    sweeps: set[int] = set()
    runs: dict[str, tuple[str, int]] = {}
    samples: dict[str, dict[str, Any]] = {}
    with gzip.open(RECORDING, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("row") == "sweep" and (row["kernel"], row["problem"]) == (KERNEL, PROBLEM):
                sweeps.add(row["id"])
            elif row.get("row") == "run" and row["sweep"] in sweeps:
                runs[row["key"]] = (row["started_at"], row["sweep"])
            elif row.get("row") == "measurement" and row["run"] in runs:
                name = "kernel" if row["role"] == "kernel" else row["implementation"]
                samples.setdefault(row["run"], {})[name] = np.asarray(row["samples_us"])
    ordered = sorted(samples, key=lambda run: runs[run])
    return [(samples[run]["kernel"], samples[run][BASELINE]) for run in ordered]


if __name__ == "__main__":
    main()
